//! `sampler verify`.

use serde_json::{Value, json};

use crate::api::{HOUR, World, events, usage};
use crate::stub::Stub;
use crate::{Ended, NOW, file, run, run_in, sampler};

const MOMENT: [&str; 2] = ["--now", "2026-11-22T13:00:00Z"];

/// Two spans that stopped and one that continues, in a world and in a file.
fn three() -> (World, String) {
    let mut world = World::new();
    let mut text = String::from("# three databases\n\n");
    for (instance, start, hours, is_open) in [
        ("orders", NOW - 50 * HOUR, 20, false),
        ("reports", NOW - 40 * HOUR, 5, false),
        ("shop", NOW - 7 * HOUR, 7, true),
    ] {
        world.add(instance, start, hours, is_open);
        text += &events(instance, start, hours, is_open);
    }
    (world, text)
}

impl Stub {
    /// Verifies these events.
    fn verify(&self, events: &str, more: &[&str]) -> Ended {
        let (_folder, path) = file("events.ndjson", events);
        self.run(&[&["verify", &path], &MOMENT[..], more].concat())
    }

    /// The document about these events, with its exit code.
    #[track_caller]
    fn verified(&self, code: i32, events: &str, more: &[&str]) -> Value {
        let ended = self.verify(events, &[&["--json"], more].concat());
        ended.writes(code, &[]);
        ended.json()
    }
}

#[test]
fn what_fits_is_said_and_shown_if_it_is_asked_for() {
    let (world, events) = three();
    let api = world.start();
    let text = api
        .verify(&events, &["--granularity", "hour", "--strict"])
        .done();
    let end = "Everything fits: 3 spans, 32 usages.\n--all shows the spans that fit, too.\n";
    assert!(text.ends_with(end), "{text}");
    assert!(!text.contains("postgres/large"), "{text}");
    let requests = api.whats();
    assert_eq!(requests[0], "GET /v1/spans?resource_id=postgres&limit=100");
    assert_eq!(requests.len(), 4, "{requests:#?}");
    let all = api.verify(&events, &["--all"]).output;
    let length = "20:00:00.000";
    let amounts = format!("used {length}, billed {length}, difference 0; 20 usages");
    assert!(all.starts_with("postgres/large/orders\n"), "{all}");
    assert!(all.contains(&amounts), "{all}");
}

#[test]
fn what_fits_is_said_to_machines() {
    let (world, events) = three();
    let document = world.start().verified(0, &events, &[]);
    assert_eq!(document["fits"], true);
    let used = 32 * HOUR;
    let duration =
        json!({ "used": used, "billed": used, "skipped": 0, "unanswered": 0, "difference": 0 });
    let totals = &document["totals"];
    assert_eq!(totals["duration"], duration);
    assert_eq!(totals["measures"]["memory"]["billed"], 512 * used);
    let spans = document["spans"].as_array().unwrap();
    assert_eq!(spans.len(), 3);
    assert_eq!(spans[0]["span"], "span-orders");
    assert_eq!(spans[0]["line"], 3);
    assert_eq!(spans[0]["findings"], json!([]));
}

#[test]
fn a_plan_is_asked_for_with_a_resource_as_it_has_no_index_by_itself() {
    let (world, events) = three();
    let api = world.start();
    let document = api.verified(0, &events, &["--plan-id", "large"]);
    assert_eq!(document["totals"]["spans"], 3);
    let asked = "GET /v1/spans?resource_id=postgres&plan_id=large&limit=100";
    assert_eq!(api.whats()[0], asked);
}

/// An empty page may lead on, too.
#[test]
fn pages_are_followed_to_their_end_by_their_cursor_alone() {
    for (links_are_absolute, begins_empty, requests) in [
        (false, false, 2 + 10 + 3 + 4),
        (true, false, 2 + 10 + 3 + 4),
        (false, true, 3 + 11 + 4 + 5),
    ] {
        let (mut world, events) = three();
        (world.page, world.links_are_absolute) = (2, links_are_absolute);
        world.begins_empty = begins_empty;
        let api = world.start();
        let document = api.verified(0, &events, &[]);
        assert_eq!(document["fits"], true, "{document:#}");
        assert_eq!(document["totals"]["usages"], 32);
        assert_eq!(api.whats().len(), requests);
    }
}

#[test]
fn spans_without_events_and_events_without_spans_are_named() {
    let (mut world, mut text) = three();
    world.add("ghost", NOW - 3 * HOUR, 1, false);
    text += &events("lost", NOW - 6 * HOUR, 2, false);
    let api = world.start();
    let document = api.verified(1, &text, &[]);
    for (instance, kind, difference) in [
        ("lost", "events-without-span", 2 * HOUR),
        ("ghost", "span-without-events", -HOUR),
    ] {
        let mut spans = document["spans"].as_array().unwrap().iter();
        let span = spans.find(|span| span["target"]["resource_instance_id"] == instance);
        let span = span.unwrap();
        assert_eq!(span["findings"][0]["kind"], kind);
        assert_eq!(span["difference"], difference);
    }
    // The list may have been wrong: the missing one was asked for by itself.
    let ids = "organization_id=o&resource_id=postgres&resource_instance_id=lost";
    let asked = format!("GET /v1/spans?{ids}&limit=100");
    assert!(api.whats().contains(&asked), "{:#?}", api.whats());
}

#[test]
fn events_that_contradict_each_other_do_not_fit() {
    let (world, mut text) = three();
    text += &events("shop", NOW - HOUR, 1, true).replace("shop-1", "shop-9");
    let ended = world.start().verify(&text, &[]);
    ended.writes(1, &["1 event contradicts others"]);
    let words: Vec<&str> = ended.output.split_whitespace().collect();
    let text = words.join(" ");
    assert!(text.contains("line 7 was not stopped"), "{text}");
}

/// The programs go on while one reads: a usage that came between two answers is not a fault.
#[test]
fn what_changes_while_it_is_read_is_read_again() {
    let (mut world, events) = three();
    world.on_usages = Some(|world| {
        for span in &mut world.spans {
            let id = span["id"].as_str().unwrap().to_owned();
            let at = span["sampled_to"].as_i64().unwrap();
            if span["end"].is_null() {
                let usages = world.usages.get_mut(&id).unwrap();
                usages.push(usage(&id, "shop", at, HOUR));
                span["sampled_to"] = json!(at + HOUR);
                for name in ["used", "billed"] {
                    let before = span["proof"][name].as_i64().unwrap();
                    span["proof"][name] = json!(before + HOUR);
                }
            }
        }
    });
    let api = world.start();
    let document = api.verified(0, &events, &["--allowance", "2h"]);
    assert_eq!(document["totals"]["usages"], 33);
    let again = "GET /v1/spans/span-shop".to_owned();
    assert!(api.whats().contains(&again));
}

#[test]
fn a_span_that_is_removed_meanwhile_is_told() {
    let (mut world, events) = three();
    world.on_usages = Some(|world| world.spans.clear());
    let api = world.start();
    let document = api.verified(0, &events, &[]);
    assert_eq!(document["spans"][0]["findings"][0]["kind"], "expired");
    // By now there are no spans at all.
    api.verified(1, &events, &[]);
}

#[test]
fn what_is_worth_knowing_counts_with_strict() {
    let (world, events) = three();
    let api = world.start();
    let (_folder, path) = file("events.ndjson", &events);
    let at = |now: &str, more: &[&str]| {
        let verify = ["verify", &path, "--granularity", "hour", "--now", now];
        api.run(&[&verify[..], more].concat())
    };
    let behind = "behind: billed to 2026-11-22T13:00";
    let later = "2026-11-22T15:30:00Z";
    at(later, &[]).writes(0, &[behind, "1 span has something worth knowing"]);
    at(later, &["--strict"]).writes(1, &[]);
    // A day later it is more than that.
    at("2026-11-23T13:00:00Z", &[]).writes(1, &["overdue: "]);
}

#[test]
fn the_scope_is_what_is_asked_for_and_compared() {
    let (mut world, mut text) = three();
    world.add("ghost", NOW - 3 * HOUR, 1, false);
    text += &events("lost", NOW - 6 * HOUR, 2, false);
    let api = world.start();
    let instance = ["--resource-instance-id", "orders"];
    let until = (NOW - 8 * HOUR).to_string();
    for (scope, spans) in [(instance, 1), (["--to", &until], 2)] {
        let document = api.verified(0, &text, &scope);
        assert_eq!(document["totals"]["spans"], spans, "{document:#}");
    }
    let asked = "GET /v1/spans?resource_instance_id=orders&limit=100";
    assert_eq!(api.whats()[0], asked);
    let ended = api.verify(&text, &["--organization-id", "x"]);
    ended.tells(2, &["of 7 events in the file none"]);
}

#[test]
fn an_api_that_is_busy_is_asked_again_and_given_up_in_the_end() {
    let (mut world, events) = three();
    let later = (503, Some("later"));
    world.trouble = vec![(503, Some("0")), (429, Some("0")), later, (502, None)];
    let api = world.start();
    api.verified(0, &events, &[]);
    assert_eq!(api.whats().len(), 4 + 4);
    let (mut world, events) = three();
    world.trouble = vec![(503, Some("0")); 10];
    let ended = world.start().verify(&events, &[]);
    ended.tells(3, &["/v1/spans is answered 503"]);
    assert_eq!(ended.output, "");
}

#[test]
fn an_api_that_cannot_be_read_is_told() {
    let troubled = |change: &dyn Fn(&mut World)| {
        let (mut world, _) = three();
        change(&mut world);
        world
    };
    let answering = |status| troubled(&|world| world.trouble = vec![(status, None)]);
    let secured = troubled(&|world| world.token = Some("secret"));
    let endless = troubled(&|world| world.never_ends = true);
    let odd = troubled(&|world| world.spans[0]["sampled_to"] = json!("noon"));
    let token = "401 Unauthorized: The token\u{fffd} is not valid.";
    for (world, words) in [
        (secured, token),
        (answering(404), "404 Not Found"),
        (answering(500), "500 Internal Server Error"),
        (answering(302), "302 Found"),
        (endless, "does not end"),
        (odd, "the answer to /v1/spans cannot be read"),
    ] {
        let ended = world.start().verify(&three().1, &[]);
        ended.tells(3, &[words]);
        assert_eq!(ended.output, "", "{ended:?}");
        assert!(!ended.errors.contains('\u{1b}'), "{ended:?}");
    }
}

#[test]
fn an_address_without_an_api_is_told() {
    let (_, events) = three();
    let (_folder, path) = file("events.ndjson", &events);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let ended = run(&["verify", &path, "--url", &url]);
    ended.tells(3, &["cannot be reached"]);
}

#[test]
fn a_token_comes_from_the_environment() {
    let (mut world, events) = three();
    world.token = Some("secret");
    let api = world.start();
    let (_folder, path) = file("events.ndjson", &events);
    let url = api.url();
    let verify = [&["verify", &path], &MOMENT[..]].concat();
    for (token, code) in [("", 3), ("wrong", 3), ("secret", 0)] {
        let variables = [("SAMPLER_URL", url.as_str()), ("SAMPLER_TOKEN", token)];
        run_in(&verify, &variables).writes(code, &[]);
    }
}

/// What a span's usages need of memory is the same for any number of them.
#[test]
fn long_ledgers_are_read_in_pages() {
    let mut world = World::new();
    let (start, hours) = (NOW - 9_000 * HOUR, 9_000);
    world.add("long", start, hours, true);
    let api = world.start();
    let document = api.verified(0, &events("long", start, hours, true), &["--strict"]);
    assert_eq!(document["totals"]["usages"], 9_000);
    assert_eq!(api.whats().len(), 1 + 9);
}

#[test]
fn cloud_events_are_read_as_they_are_sent() {
    let event = events("shop", NOW - 7 * HOUR, 7, true);
    let mut data: Value = serde_json::from_str(&event).unwrap();
    data.as_object_mut().unwrap().shift_remove("timestamp");
    let time = "2026-11-22T06:00:00.0004Z";
    let cloud_event = json!({ "specversion": "1.0", "type": "com.example.start", "source": "/b",
                              "id": "1", "time": time, "data": data });
    let mut world = World::new();
    world.add("shop", NOW - 7 * HOUR, 7, true);
    world.spans[0]["start_event_id"] = json!("/b\u{1f}1");
    world.start().verified(0, &format!("{cloud_event}\n"), &[]);
}

#[test]
fn events_come_from_standard_input_too() {
    let (world, events) = three();
    let api = world.start();
    let (_folder, path) = file("events.ndjson", &events);
    let url = api.url();
    let verify = ["verify", "-", "--format", "ndjson", "--url", &url];
    let mut command = sampler(&[&verify[..], &MOMENT].concat());
    command.stdin(std::fs::File::open(path).unwrap());
    let ended: Ended = command.output().unwrap().into();
    ended.writes(0, &[]);
}

//! `sampler verify`.

use serde_json::{Value, json};

use crate::api::{Api, HOUR, World, events, usage};
use crate::{Ended, file, run, sampler};

/// 2026-11-22T13:00:00Z.
pub(crate) const NOW: i64 = 1_795_352_400_000;
pub(crate) const MOMENT: &str = "2026-11-22T13:00:00Z";

/// Two spans that stopped and one that goes on, in a world and in a file.
pub(crate) fn three() -> (World, String) {
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

pub(crate) fn verify_with(api: &Api, events: &str, more: &[&str]) -> Ended {
    let (_folder, path) = file("events.ndjson", events);
    let url = api.url();
    let mut arguments = vec!["verify", &path, "--url", &url, "--now", MOMENT];
    arguments.extend(more);
    run(&arguments)
}

pub(crate) fn json_of(api: &Api, events: &str, more: &[&str]) -> (Option<i32>, Value) {
    let ended = verify_with(api, events, &[&["--json"], more].concat());
    let document = serde_json::from_str(&ended.output);
    (
        ended.code,
        document.unwrap_or_else(|error| panic!("{error}: {ended:?}")),
    )
}

#[test]
fn what_fits_is_said_and_shown_if_it_is_asked_for() {
    let (world, events) = three();
    let api = Api::start(world);
    let ended = verify_with(&api, &events, &["--granularity", "hour", "--strict"]);
    assert_eq!(
        (ended.code, ended.errors.as_str()),
        (Some(0), ""),
        "{ended:?}"
    );
    let end = "Everything fits: 3 spans, 32 usages.\n--all shows the spans that fit, too.\n";
    assert!(ended.output.ends_with(end), "{}", ended.output);
    assert!(!ended.output.contains("postgres/large"), "{}", ended.output);
    let requests = api.requests();
    assert_eq!(requests[0], "/v1/spans?limit=100&resource_id=postgres");
    assert_eq!(requests.len(), 4, "{requests:#?}");
    let all = verify_with(&api, &events, &["--all"]).output;
    let words: Vec<&str> = all.lines().nth(1).unwrap().split_whitespace().collect();
    let expected = [
        "postgres/large/orders",
        "2026-11-20T11:00:00.000Z",
        "20:00:00.000",
        "20:00:00.000",
        "20",
    ];
    assert_eq!(words, expected, "{all}");
}

#[test]
fn what_fits_is_said_to_machines() {
    let (world, events) = three();
    let api = Api::start(world);
    let (code, document) = json_of(&api, &events, &[]);
    assert_eq!(code, Some(0));
    assert_eq!(document["fits"], true);
    let used = 32 * HOUR;
    assert_eq!(
        document["totals"]["duration"],
        json!({ "used": used, "billed": used, "skipped": 0, "unanswered": 0, "difference": 0 })
    );
    assert_eq!(
        document["totals"]["measures"]["memory"]["billed"],
        512 * used
    );
    let spans = document["spans"].as_array().unwrap();
    assert_eq!(spans.len(), 3);
    assert_eq!(spans[0]["span"], "span-orders");
    assert_eq!(spans[0]["line"], 3);
    assert_eq!(spans[0]["findings"], json!([]));
}

#[test]
fn pages_are_followed_to_their_end_by_their_cursor_alone() {
    for links_are_absolute in [false, true] {
        let (mut world, events) = three();
        (world.page, world.links_are_absolute) = (2, links_are_absolute);
        let api = Api::start(world);
        let (code, document) = json_of(&api, &events, &[]);
        assert_eq!(
            (code, &document["fits"]),
            (Some(0), &json!(true)),
            "{document:#}"
        );
        assert_eq!(document["totals"]["usages"], 32);
        assert_eq!(api.requests().len(), 2 + 10 + 3 + 4);
    }
}

#[test]
fn an_empty_page_may_lead_on() {
    let (mut world, events) = three();
    world.begins_empty = true;
    let api = Api::start(world);
    let (code, document) = json_of(&api, &events, &[]);
    assert_eq!((code, &document["totals"]["usages"]), (Some(0), &json!(32)));
}

/// Each fault is named first, with the usage and the amount.
#[test]
fn what_does_not_fit_is_named() {
    let (mut world, events) = three();
    world.usages.get_mut("span-orders").unwrap().remove(7);
    let api = Api::start(world);
    let ended = verify_with(&api, &events, &[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let text = &ended.output;
    assert!(
        text.starts_with("1 of 3 spans does not fit:\n\npostgres/large/orders\n"),
        "{text}"
    );
    let amounts = "  used 20:00:00.000, billed 19:00:00.000, DIFFERENCE 1:00:00.000 (3600000 ms); 19 usages\n";
    assert!(text.contains(amounts), "{text}");
    assert!(text.contains("  not-adjacent: usage orders-"), "{text}");
    assert!(
        ended
            .output
            .contains("Something does not fit: 1 of 3 spans.\n"),
        "{}",
        ended.output
    );

    let (code, document) = json_of(&api, &events, &[]);
    assert_eq!((code, &document["fits"]), (Some(1), &json!(false)));
    let first = &document["spans"][0]["findings"][0];
    assert_eq!(first["kind"], "not-adjacent");
    assert_eq!(first["usage"], format!("orders-{}", NOW - 42 * HOUR));
    assert_eq!(document["spans"][0]["difference"], HOUR);
    assert_eq!(document["totals"]["wrong"], 1);
}

#[test]
fn spans_without_events_and_events_without_spans_are_named() {
    let (mut world, mut text) = three();
    world.add("ghost", NOW - 3 * HOUR, 1, false);
    text += &events("lost", NOW - 6 * HOUR, 2, false);
    let api = Api::start(world);
    let (code, document) = json_of(&api, &text, &[]);
    assert_eq!(code, Some(1));
    let spans = document["spans"].as_array().unwrap();
    let of = |instance: &str| {
        let mut spans = spans.iter();
        spans
            .find(|span| span["target"]["resource_instance_id"] == instance)
            .unwrap()
    };
    assert_eq!(of("lost")["findings"][0]["kind"], "events-without-span");
    assert_eq!(of("lost")["difference"], 2 * HOUR);
    assert_eq!(of("ghost")["findings"][0]["kind"], "span-without-events");
    assert_eq!(of("ghost")["difference"], -HOUR);
    // The list may have been wrong: the missing one was asked for by itself.
    let asked =
        "/v1/spans?limit=100&organization_id=o&resource_id=postgres&resource_instance_id=lost";
    assert!(
        api.requests().contains(&asked.to_owned()),
        "{:#?}",
        api.requests()
    );
}

#[test]
fn a_plan_other_than_the_events_is_named() {
    let (mut world, events) = three();
    world.spans[1]["target"]["plan_id"] = json!("xl");
    let api = Api::start(world);
    let (code, document) = json_of(&api, &events, &[]);
    assert_eq!(code, Some(1));
    assert_eq!(document["totals"]["spans"], 3);
    let finding = &document["spans"][1]["findings"][0];
    assert_eq!(finding["kind"], "target");
    assert!(
        finding["detail"].as_str().unwrap().contains("plan_id"),
        "{finding}"
    );
}

#[test]
fn events_that_contradict_each_other_do_not_fit() {
    let (world, mut text) = three();
    text += &events("shop", NOW - HOUR, 1, true).replace("shop-1", "shop-9");
    let api = Api::start(world);
    let ended = verify_with(&api, &text, &[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let words: Vec<&str> = ended.output.split_whitespace().collect();
    let text = words.join(" ");
    assert!(text.contains("line 7 was not stopped"), "{text}");
    assert!(
        ended.output.contains("1 event contradicts others"),
        "{}",
        ended.output
    );
}

/// The programs go on while one reads: a usage that came between two answers is no fault.
#[test]
fn what_changes_while_it_is_read_is_read_again() {
    let (mut world, events) = three();
    world.on_usages = Some(|world| {
        for span in &mut world.spans {
            let id = span["id"].as_str().unwrap().to_owned();
            let at = span["sampled_to"].as_i64().unwrap();
            if span["end"].is_null() {
                world
                    .usages
                    .get_mut(&id)
                    .unwrap()
                    .push(usage(&id, "shop", at, HOUR));
                span["sampled_to"] = json!(at + HOUR);
                for (name, by) in [("used", HOUR), ("billed", HOUR), ("usages", 1)] {
                    let before = span["proof"][name].as_i64().unwrap();
                    span["proof"][name] = json!(before + by);
                }
            }
        }
    });
    let api = Api::start(world);
    let (code, document) = json_of(&api, &events, &["--allowance", "2h"]);
    assert_eq!(code, Some(0), "{document:#}");
    assert_eq!(document["totals"]["usages"], 33);
    assert!(api.requests().contains(&"/v1/spans/span-shop".to_owned()));
}

#[test]
fn a_span_that_is_removed_meanwhile_is_told() {
    let (mut world, events) = three();
    world.on_usages = Some(|world| world.spans.clear());
    let api = Api::start(world);
    let (code, document) = json_of(&api, &events, &[]);
    assert_eq!(code, Some(0), "{document:#}");
    assert_eq!(document["spans"][0]["findings"][0]["kind"], "removed");
    let (code, _) = json_of(&api, &events, &[]);
    assert_eq!(code, Some(1), "by now there are no spans at all");
}

#[test]
fn what_is_worth_knowing_counts_with_strict() {
    let (world, events) = three();
    let api = Api::start(world);
    let later = ["--now", "2026-11-22T15:30:00Z", "--granularity", "hour"];
    let (_folder, path) = file("events.ndjson", &events);
    let url = api.url();
    let arguments = [&["verify", &path, "--url", &url][..], &later].concat();
    let ended = run(&arguments);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended.output.contains("behind: billed to 2026-11-22T13:00"),
        "{}",
        ended.output
    );
    assert!(
        ended.output.contains("1 span has something worth knowing"),
        "{}",
        ended.output
    );
    assert_eq!(run(&[&arguments[..], &["--strict"]].concat()).code, Some(1));
    // A day later it is more than that.
    let later = ["--now", "2026-11-23T13:00:00Z", "--granularity", "hour"];
    let ended = run(&[&["verify", &path, "--url", &url][..], &later].concat());
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.output.contains("overdue: "), "{}", ended.output);
}

#[test]
fn the_scope_is_what_is_asked_for_and_compared() {
    let (mut world, mut text) = three();
    world.add("ghost", NOW - 3 * HOUR, 1, false);
    text += &events("lost", NOW - 6 * HOUR, 2, false);
    let api = Api::start(world);
    let (code, document) = json_of(&api, &text, &["--resource-instance-id", "orders"]);
    assert_eq!(
        (code, &document["totals"]["spans"]),
        (Some(0), &json!(1)),
        "{document:#}"
    );
    assert_eq!(
        api.requests()[0],
        "/v1/spans?limit=100&resource_instance_id=orders"
    );
    let until = (NOW - 8 * HOUR).to_string();
    let (code, document) = json_of(&api, &text, &["--to", &until]);
    assert_eq!(
        (code, &document["totals"]["spans"]),
        (Some(0), &json!(2)),
        "{document:#}"
    );
    let ended = verify_with(&api, &text, &["--organization-id", "x"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(
        ended.errors.contains("of 7 events in the file none"),
        "{ended:?}"
    );
}

#[test]
fn an_api_that_is_busy_is_asked_again() {
    let (mut world, events) = three();
    world.trouble = vec![
        (503, Some("0")),
        (429, Some("0")),
        (503, Some("later")),
        (502, None),
    ];
    let api = Api::start(world);
    let (code, _) = json_of(&api, &events, &[]);
    assert_eq!(code, Some(0));
    assert_eq!(api.requests().len(), 4 + 4);
}

#[test]
fn an_api_that_stays_busy_is_given_up() {
    let (mut world, events) = three();
    world.trouble = vec![(503, Some("0")); 10];
    let api = Api::start(world);
    let ended = verify_with(&api, &events, &[]);
    assert_eq!(
        (ended.code, ended.output.as_str()),
        (Some(3), ""),
        "{ended:?}"
    );
    assert!(
        ended.errors.contains("/v1/spans is answered 503"),
        "{ended:?}"
    );
}

#[test]
fn an_api_that_cannot_be_read_is_told() {
    let (_, events) = three();
    let fails = |world: World, words: &str| {
        let api = Api::start(world);
        let ended = verify_with(&api, &events, &[]);
        assert_eq!(
            (ended.code, ended.output.as_str()),
            (Some(3), ""),
            "{ended:?}"
        );
        assert!(ended.errors.contains(words), "{words}: {ended:?}");
        assert!(!ended.errors.contains('\u{1b}'), "{ended:?}");
    };
    let secured = Some("secret".to_owned());
    fails(
        World {
            token: secured,
            ..three().0
        },
        "401 Unauthorized: The token\u{fffd} is not valid.",
    );
    fails(
        World {
            trouble: vec![(404, None)],
            ..three().0
        },
        "a receiver that has a ledger?",
    );
    fails(
        World {
            trouble: vec![(500, None)],
            ..three().0
        },
        "500 Internal Server Error",
    );
    fails(
        World {
            trouble: vec![(302, None)],
            ..three().0
        },
        "302 Found",
    );
    fails(
        World {
            never_ends: true,
            ..three().0
        },
        "does not end",
    );
    let (mut world, _) = three();
    world.spans[0]["sampled_to"] = json!("noon");
    fails(world, "the answer to /v1/spans cannot be read");
}

#[test]
fn an_address_without_an_api_is_told() {
    let (_, events) = three();
    let (_folder, path) = file("events.ndjson", &events);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let ended = run(&["verify", &path, "--url", &url]);
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.errors.contains("cannot be reached"), "{ended:?}");
}

#[test]
fn a_token_comes_from_the_environment_or_a_file() {
    let (mut world, events) = three();
    world.token = Some("secret".to_owned());
    let api = Api::start(world);
    let (_folder, path) = file("events.ndjson", &events);
    let (_folder2, token) = file("token", "secret\n");
    let url = api.url();
    let arguments = ["verify", &path, "--now", MOMENT];
    let code = |variables: &[(&str, &str)]| {
        let mut command = sampler(&arguments);
        command
            .env("SAMPLER_URL", &url)
            .envs(variables.iter().copied());
        command.output().unwrap().status.code()
    };
    assert_eq!(code(&[]), Some(3));
    assert_eq!(code(&[("SAMPLER_TOKEN", "secret")]), Some(0));
    assert_eq!(
        code(&[("SAMPLER_TOKEN", "wrong"), ("SAMPLER_TOKEN_FILE", &token)]),
        Some(0)
    );
}

/// What a span's usages need of memory is the same for any number of them.
#[test]
fn long_ledgers_are_read_in_pages() {
    let mut world = World::new();
    let (start, hours) = (NOW - 9_000 * HOUR, 9_000);
    world.add("long", start, hours, true);
    let api = Api::start(world);
    let (code, document) = json_of(&api, &events("long", start, hours, true), &["--strict"]);
    assert_eq!(
        (code, &document["totals"]["usages"]),
        (Some(0), &json!(9_000))
    );
    assert_eq!(api.requests().len(), 1 + 9);
}

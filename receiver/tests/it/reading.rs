//! Spans and their usages, as those see them who ask.

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use sampler_domain::{Again, Entry, Excluded, Interval, Usage};
use sampler_receiver::reading::AT_ONCE;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::acts::tag_of;
use crate::event::{on, start, stop, with};
use crate::store::Behaviour;
use crate::world::{CAUSE, DAY, HOUR, NOW, PAST, SPANS, World, at};

impl World {
    /// Starts an instance; says where its span is.
    pub(crate) async fn starts(&self, instance: &str, timestamp: i64) -> String {
        let event = on(instance, &start(timestamp));
        let answer = self.start(&event).await;
        answer.is_created();
        answer.header("location").unwrap().to_owned()
    }
}

/// The database continues with what a client does not wait for any more.
#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_makes_no_room_for_more_reads_than_there_may_be() {
    let world = World::new();
    world.starts("an instance", NOW).await;
    world.store.set_behaviour(Behaviour::Held);
    let second = Duration::from_secs(1);
    for _ in 0..10 {
        let read = timeout(second, world.get(SPANS)).await;
        assert!(read.is_err(), "it is held");
    }
    world.store.wait_until_held(AT_ONCE as usize).await;
    world.store.release();
    assert_eq!(world.items(SPANS).await.len(), 1);
}

#[tokio::test]
async fn a_span_is_shown_as_it_is_kept() {
    let world = World::new();
    let event = with(&start(NOW), "id", "start-1");
    let answer = world.start(&event).await;
    let location = answer.header("location").unwrap();
    let id = location.strip_prefix("/v1/spans/").unwrap();
    let mut expected = json!({
        "id": id,
        "target": {
            "organization_id": "an organization",
            "space_id": "a space",
            "consumer_id": "app:a consumer",
            "resource_id": "postgres",
            "plan_id": "large",
            "resource_instance_id": "an instance",
        },
        "measured_usage": [
            {"measure": "instances", "quantity": 1},
            {"measure": "memory", "quantity": 0.5},
        ],
        "start": NOW, "end": null, "state": "open",
        "start_event_id": "start-1", "end_event_id": null,
        "sampled_to": NOW, "due_at": NOW + DAY,
        "planned": null,
        "delivery": {"attempts": 0, "unanswered": false, "last_error": null},
        "proof": {
            "used": 0, "billed": 0, "skipped": 0, "unanswered": 0, "unsampled": 0,
            "usages": 0, "ledger": 0, "difference": 0,
        },
    });
    assert_eq!(world.read(location).await, expected);
    // A list reads no ledger.
    let mut listed = expected.clone();
    let proof = listed["proof"].as_object_mut().unwrap();
    proof.retain(|name, _| !["usages", "ledger", "difference"].contains(&name.as_str()));
    assert_eq!(world.read(SPANS).await, json!({ "items": [listed] }));

    let end = with(&stop(NOW + HOUR), "id", "stop-1");
    world.stop(&end).await.is_created();
    let span = world.goes_on(location, NOW + HOUR).await;
    let guid = &span.processing.planned.as_ref().unwrap().usage_guid;
    world.refuses(location, NOW + HOUR).await;
    let error = json!({"at": NOW + HOUR, "status": 400, "error": "no mapping"});
    expected["end"] = json!(NOW + HOUR);
    expected["state"] = json!("suspended");
    expected["end_event_id"] = json!("stop-1");
    expected["due_at"] = Value::Null;
    expected["planned"] = json!({"start": NOW, "end": NOW + HOUR, "usage_id": guid});
    let delivery = json!({"attempts": 1, "unanswered": true, "last_error": error});
    let undelivered = std::mem::replace(&mut expected["delivery"], delivery);
    // Nothing is sampled yet, and an hour has run.
    expected["proof"]["unsampled"] = json!(HOUR);
    world.alter(location, |span| {
        span.processing.planned.as_mut().unwrap().unanswered = true;
    });
    assert_eq!(world.read(location).await, expected);

    world.alter(location, |span| *span = span.resumed(0, false, at(NOW)));
    world.accepts(location, NOW + HOUR).await;
    expected["state"] = json!("complete");
    expected["sampled_to"] = json!(NOW + HOUR);
    expected["planned"] = Value::Null;
    expected["delivery"] = undelivered;
    expected["proof"] = json!({
        "used": HOUR, "billed": HOUR, "skipped": 0, "unanswered": 0, "unsampled": 0,
        "usages": 1, "ledger": HOUR, "difference": 0,
    });
    assert_eq!(world.read(location).await, expected);
}

/// A range of hours after [`NOW`] that does not count.
fn range(start: i64, end: i64, back_to: Option<i64>) -> Excluded {
    let [start, end] = [start, end].map(|hour| at(NOW + hour * HOUR));
    Excluded {
        interval: Interval { start, end },
        back_to: back_to.map(|hour| at(NOW + hour * HOUR)),
        unanswered: start.as_millis() == NOW,
        usage_guid: None,
        error: None,
    }
}

fn again(range: Excluded, is_way_back: bool) -> Again {
    Again {
        range,
        at: at(NOW),
        by: None,
        attempts: 0,
        posts_end_by: None,
        accepted: None,
        is_way_back,
    }
}

#[tokio::test]
async fn what_does_not_count_is_shown_and_the_proof_leaves_it_out() {
    let world = World::new();
    let location = world.starts("i", NOW).await;
    world.alter(&location, |span| {
        let processing = &mut span.processing;
        processing.last.end = at(NOW + 9 * HOUR);
        processing.excluded = vec![range(0, 2, None), range(7, 12, Some(9))];
        processing.again = vec![
            again(range(3, 6, Some(5)), true),
            again(range(2, 3, None), false),
        ];
    });
    let hours = |start: i64, end: i64| json!({ "start": NOW + start * HOUR, "end": NOW + end * HOUR, "unanswered": start == 0 });
    let mut trimmed = hours(7, 12);
    trimmed["back_to"] = json!(NOW + 9 * HOUR);
    let shown = world.read(&location).await;
    assert_eq!(shown["excluded"], json!([hours(0, 2), trimmed]));
    // Of the first, the usage counts. What is left is its way back. Without entries nothing is compared.
    assert_eq!(shown["again"], json!([hours(6, 5), hours(2, 3)]));
    let proof = json!({
        "used": 9 * HOUR, "billed": 5 * HOUR, "skipped": 4 * HOUR, "unanswered": 2 * HOUR,
        "unsampled": 0, "usages": 0, "ledger": 0, "difference": 0,
    });
    assert_eq!(shown["proof"], proof);
}

/// What the ledger says is read by itself. Entries expire, and the rest is compared with its time.
#[tokio::test]
async fn the_proof_compares_the_span_with_the_entries_that_are_kept() {
    let world = World::new();
    let location = world.starts("i", NOW).await;
    world.goes_on(&location, NOW + 3 * DAY).await;
    let mut usages = Vec::new();
    for second in 0..3 {
        let accepted_at = NOW + 3 * DAY + second * 1_000;
        usages.push(world.accepts(&location, accepted_at).await.usage_guid);
    }
    let proof = async || {
        let proof = &world.read(&location).await["proof"];
        ["billed", "usages", "ledger", "difference"].map(|name| proof[name].as_i64().unwrap())
    };
    assert_eq!(proof().await, [3 * DAY, 3, 3 * DAY, 0]);
    let removes = |usage: &String| world.store.memory.with(|table| table.remove_entry(usage));
    removes(&usages[0]);
    assert_eq!(
        proof().await,
        [3 * DAY, 2, 2 * DAY, 0],
        "the oldest has expired"
    );
    removes(&usages[2]);
    assert_eq!(proof().await, [3 * DAY, 1, DAY, DAY], "one is missing");
}

#[tokio::test]
async fn a_start_says_where_its_span_is_each_time_that_it_is_sent() {
    let world = World::with(|options| options.settings.events.lenient_repeats = true);
    let event = with(&start(NOW - PAST), "id", "a");
    let first = world.start(&event).await;
    first.is_created();
    let location = first.header("location").unwrap();
    let id = world.spans()[0].id.to_string();
    assert_eq!(location, format!("/v1/spans/{id}"));
    let other = with(&event, "measured_usage", json!([]));
    for event in [&event, &other] {
        for now in [NOW, NOW + DAY] {
            world.clock.set(now);
            let again = world.start(event).await;
            again.is_replayed();
            assert_eq!(again.header("location"), Some(location), "{now} {event}");
        }
    }
    let end = world.stop(&stop(NOW)).await;
    end.is_created();
    assert_eq!(end.header("location"), None);
}

#[tokio::test]
async fn a_list_goes_on_by_its_links() {
    let world = World::new();
    let mut addresses = Vec::new();
    for number in 0..5 {
        addresses.push(world.starts(&format!("i&{number}"), NOW + number).await);
    }
    let newest_first: Vec<String> = addresses.iter().rev().cloned().collect();
    for (limit, pages) in [(1, 5), (2, 3), (4, 2), (5, 1), (1_000, 1)] {
        let path = format!("{SPANS}&limit={limit}&to={}", NOW + 100);
        let (items, count) = world.pages(&path).await;
        let shown = items.iter().map(|item| item["id"].as_str().unwrap());
        let shown: Vec<String> = shown.map(|id| format!("/v1/spans/{id}")).collect();
        assert_eq!((shown, count), (newest_first.clone(), pages), "{limit}");
    }
    for (query, count) in [
        ("resource_instance_id=i%263", 1),
        ("resource_id=postgres&plan_id=small", 0),
        (
            "resource_id=postgres&state=open&from=2018-08-03T00:00:00Z",
            5,
        ),
        ("resource_id=postgres&to=2018-08-03T02:00:00.003+02:00", 3),
        ("state=suspended", 0),
    ] {
        let items = world.items(&format!("/v1/spans?{query}")).await;
        assert_eq!(items.len(), count, "{query}");
    }
    // By when they were received, whatever time they are of.
    let last = world.starts("late", NOW - DAY).await;
    let newest = world.read("/v1/spans?order=received&limit=2").await;
    let newest = [0, 1].map(|index| newest["items"][index]["id"].as_str().unwrap().to_owned());
    let expected = [&last, &addresses[4]].map(|it| it.rsplit('/').next().unwrap());
    assert_eq!(newest, expected);
}

#[tokio::test]
async fn a_query_that_no_index_answers_is_told_what_to_add() {
    let world = World::new();
    let wide = "?space_id=a&consumer_id=b&plan_id=c&state=open&from=1";
    let ids = ["organization_id", "resource_id", "resource_instance_id"];
    for query in ["", "?", wide] {
        let answer = world.get(&format!("/v1/spans{query}")).await;
        answer.tells(422, "query-too-wide", &ids);
        answer.tells(422, "query-too-wide", &["suspended", "excluded"]);
    }
    assert_eq!(world.store.calls(), 0);
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let world = World::new();
    let location = world.starts("i", NOW).await;
    let (all_but_one, _) = location.split_at(location.len() - 1);
    let shorter = all_but_one.strip_prefix("/v1/spans/").unwrap();
    for id in [shorter, "a", "%ff", "%24gt"] {
        for path in [format!("/v1/spans/{id}"), format!("/v1/spans/{id}/usages")] {
            world.get(&path).await.names(404, "no-such-span", &[]);
        }
    }
}

#[tokio::test]
async fn the_tag_of_a_span_changes_with_the_span() {
    let world = World::new();
    let location = world.starts("i", NOW).await;
    let tag = tag_of(&world.get(&location).await);
    assert_eq!(tag_of(&world.get(&location).await), tag);
    let end = on("i", &stop(NOW + 1));
    world.stop(&end).await.is_created();
    let changed = world.get(&location).await;
    assert_ne!(changed.header("etag"), Some(&*tag));
    let head = Request::head(&location).body(Body::empty()).unwrap();
    let head = world.send(head).await;
    assert_eq!(head.status, 200);
    assert_eq!(tag_of(&head), tag_of(&changed));
}

/// The proof of what is sampled adds up from the start on. What waits stands beside it, and a client
/// that has read a span can still act on it later.
#[tokio::test]
async fn what_has_run_and_is_not_billed_yet_grows_with_time_alone() {
    let world = World::new();
    let location = world.starts("i", NOW).await;
    let tag = tag_of(&world.get(&location).await);
    world.clock.set(NOW + 3 * HOUR);
    let later = world.get(&location).await;
    assert_eq!(tag_of(&later), tag);
    let proof = world.read(&location).await["proof"].clone();
    assert_eq!([&proof["used"], &proof["difference"]], [0, 0]);
    assert_eq!(proof["unsampled"], 3 * HOUR);
    // What was sampled beyond a stop is to be taken back.
    world.goes_on(&location, NOW + DAY).await;
    world.accepts(&location, NOW + DAY).await;
    let end = on("i", &stop(NOW + HOUR));
    world.stop(&end).await.is_created();
    let proof = world.read(&location).await["proof"].clone();
    assert_eq!(proof["unsampled"], HOUR - DAY);
}

#[tokio::test(start_paused = true)]
async fn few_read_at_the_same_time_and_nobody_who_writes_waits_for_them() {
    let world = World::new();
    let location = world.starts("i", NOW).await;
    world.store.set_behaviour(Behaviour::Held);
    let reads = async { tokio::join!(world.get(SPANS), world.get(&location)) };
    let others = async {
        world.store.wait_until_held(2).await;
        world.store.set_behaviour(Behaviour::Served);
        world.starts("j", NOW).await;
        let usages = format!("{location}/usages");
        let more = ["/v1/suspended", "/v1/unconfirmed", CAUSE, "/v1/audit"];
        for path in [SPANS, &location, &usages].iter().chain(&more) {
            let beyond = world.get(path).await;
            beyond.names(503, "overloaded", &[]);
            beyond.may_come_again_after(1);
        }
        world.store.release();
    };
    let ((list, one), ()) = tokio::join!(reads, others);
    assert_eq!((list.status, one.status), (200, 200));
    assert_eq!(world.get(SPANS).await.status, 200);
}

/// A span with three usages that were accepted an hour after they were due, and a fourth that takes back all but
/// an hour; a fifth is planned again.
async fn with_usages(world: &World) -> (String, Vec<Entry>) {
    let location = world.starts("i", NOW).await;
    let mut entries = Vec::new();
    for day in 1..=3 {
        world.goes_on(&location, NOW + day * DAY).await;
        entries.push(world.accepts(&location, NOW + day * DAY + HOUR).await);
    }
    world.clock.set(NOW + 3 * DAY);
    world
        .stop(&on("i", &stop(NOW + 2 * DAY + HOUR)))
        .await
        .is_created();
    world.goes_on(&location, NOW + 4 * DAY).await;
    entries.push(world.accepts(&location, NOW + 4 * DAY + HOUR).await);
    (location, entries)
}

#[tokio::test]
async fn usages_come_in_the_order_in_which_they_were_accepted() {
    let world = World::new();
    let (location, entries) = with_usages(&world).await;
    let path = format!("{location}/usages");
    let id = location.strip_prefix("/v1/spans/").unwrap();
    let usage = |number: usize| {
        let (entry, interval) = (&entries[number], entries[number].interval);
        json!({
            "id": entry.usage_guid, "span": id, "interval": interval,
            "timestamp": interval.midpoint(), "duration": interval.duration(),
            // As it is posted.
            "measured_usage": Usage::of_entry(entry).measured_usage,
            "accepted_at": entry.acceptance.at, "status": 202, "location": "https://abacus/1",
        })
    };
    let all = [usage(0), usage(1), usage(2), usage(3)];
    assert_eq!(all[3]["duration"], HOUR - DAY);
    let posted = all[3]["measured_usage"].as_array().unwrap();
    let duration = json!({ "measure": "duration", "quantity": HOUR - DAY });
    assert_eq!((posted.len(), posted.last()), (3, Some(&duration)));
    let mut newest = all.to_vec();
    newest.reverse();
    for (limit, count) in [(1, 4), (2, 2), (3, 2), (4, 1)] {
        let (items, pages) = world.pages(&format!("{path}?limit={limit}")).await;
        assert_eq!((items, pages), (all.to_vec(), count), "{limit}");
        let (items, pages) = world
            .pages(&format!("{path}?order=newest&limit={limit}"))
            .await;
        assert_eq!((items, pages), (newest.clone(), count), "{limit}");
    }
    // By their timestamps: the middle of a day each.
    let half = NOW + DAY / 2;
    let first = format!("{path}?from={half}&to={}", half + DAY);
    assert_eq!(world.items(&first).await, all[..1]);
    let others = format!("{path}?from={}&limit=1", half + 1);
    assert_eq!(world.items(&others).await, all[1..]);
    // By their acceptance.
    let accepted = NOW + 2 * DAY + HOUR;
    for (accepted_to, count) in [(accepted - 1, 1), (accepted, 2)] {
        let early = format!("{path}?accepted_to={accepted_to}");
        assert_eq!(world.items(&early).await, all[..count]);
        let early = format!("{path}?accepted_to={accepted_to}&order=newest&limit=1");
        assert_eq!(world.items(&early).await, newest[4 - count..]);
    }
}

//! Batches: their layouts and answers. Events of one target keep their order. That each is answered as it
//! would be alone is shown by the table of events.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::answer::Answer;
use crate::bodies::{gzip, zipped};
use crate::event::{by, on, start, stop, with, without};
use crate::store::Behaviour;
use crate::world::{EVENTS, HOUR, NOW, START, STOP, UPDATE, World, request, request_as};

pub(crate) const NDJSON: &str = "application/x-ndjson";
pub(crate) const CLOUD_EVENTS: &str = "application/cloudevents-batch+json";

/// An event of a kind.
pub(crate) type Typed = (&'static str, Value);

pub(crate) fn path(kind: &str) -> &'static str {
    match kind {
        "start" => START,
        "stop" => STOP,
        _ => UPDATE,
    }
}

/// As it is in a batch.
fn typed((kind, event): &Typed) -> Value {
    let mut item = event.clone();
    if let Some(members) = item.as_object_mut() {
        members.insert("type".to_owned(), json!(kind));
    }
    item
}

pub(crate) fn list(events: &[Typed]) -> String {
    events.iter().map(typed).collect::<Value>().to_string()
}

pub(crate) fn lines(events: &[Typed]) -> String {
    let lines = events.iter().map(|event| typed(event).to_string() + "\n");
    lines.collect()
}

/// What each event of a batch was answered with.
pub(crate) fn results(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let document = answer.json();
    let results = document["results"].as_array().unwrap().clone();
    let count = |is: &dyn Fn(&Value) -> bool| results.iter().filter(|one| is(one)).count();
    let counts = json!({
        "accepted": count(&|one| one["replayed"] == false),
        "replayed": count(&|one| one["replayed"] == true),
        "refused": count(&|one| (400..500).contains(&one["status"].as_u64().unwrap())),
        "failed": count(&|one| one["status"].as_u64().unwrap() >= 500),
    });
    for (name, count) in counts.as_object().unwrap() {
        assert_eq!(document[name], *count, "{name} of {document:#}");
    }
    for (index, result) in results.iter().enumerate() {
        assert_eq!(result["index"], index, "{document:#}");
        assert_eq!(result["status"] == 201, result.get("problem").is_none());
    }
    results
}

pub(crate) fn statuses(answer: &Answer) -> Vec<u64> {
    let results = results(answer).into_iter();
    results.map(|one| one["status"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn a_result_names_the_span_that_was_started() {
    let world = World::new();
    let events = [
        ("start", by("a", &start(NOW))),
        ("start", by("a", &start(NOW))),
        ("stop", by("z", &stop(NOW))),
        ("stop", by("z", &stop(NOW))),
    ];
    let answer = world.send(request(EVENTS, list(&events))).await;
    let results = results(&answer);
    let span = json!(world.spans()[0].id.to_string());
    for (index, replayed) in [(0, false), (1, true)] {
        let started = json!({"index": index, "status": 201, "replayed": replayed, "span": span});
        assert_eq!(results[index], started);
    }
    assert_eq!(results[3]["replayed"], true);
    let again = world.send(request(EVENTS, list(&events))).await;
    assert_eq!(statuses(&again), [201; 4]);
    let counts = br#"{"accepted":0,"replayed":4,"refused":0,"failed":0,"#;
    assert!(again.body.starts_with(counts));
    world.assert_kept(&[(&events[0].1, Some(&events[2].1))]);
}

#[tokio::test]
async fn an_event_of_no_kind_is_refused_alone() {
    let world = World::new();
    let body = json!([
        start(NOW),
        with(&start(NOW), "type", "begin"),
        with(&start(NOW), "type", 1),
        7,
        with(&start(NOW), "type", "start"),
    ]);
    let answer = world.post(EVENTS, &body).await;
    assert_eq!(statuses(&answer), [400, 400, 400, 400, 201]);
    let results = results(&answer);
    for (index, pointer) in [(0, "#/type"), (1, "#/type"), (2, "#/type"), (3, "#")] {
        let problem = &results[index]["problem"];
        assert_eq!(problem["type"], "/problems/invalid-event");
        assert_eq!(problem["errors"][0]["pointer"], pointer);
    }
}

#[tokio::test]
async fn lines_that_are_no_json_are_refused_alone_and_blank_ones_are_passed_over() {
    let world = World::new();
    let event = lines(&[("start", start(NOW))]);
    let end = typed(&("stop", stop(NOW))).to_string();
    let body = [
        b"\r\n".as_slice(),
        event.as_bytes(),
        b" \t\n{\"type\": \"start\",\nnope\n\"\xff\"\n{\"type\":\"stop\",\"type\":\"stop\"}\r\n",
        end.as_bytes(),
    ];
    let answer = world.send(request_as(NDJSON, EVENTS, body.concat())).await;
    assert_eq!(statuses(&answer), [201, 400, 400, 400, 400, 201]);
    for result in &results(&answer)[1..5] {
        let kind = &result["problem"]["type"];
        assert_eq!(kind, "/problems/malformed-json", "{result}");
    }
    world.assert_kept(&[(&start(NOW), Some(&stop(NOW)))]);
    for empty in ["", "\n\n"] {
        let answer = world.send(request_as(NDJSON, EVENTS, empty)).await;
        assert_eq!(statuses(&answer), [0_u64; 0]);
    }
}

#[tokio::test]
async fn a_list_that_is_no_json_is_refused_as_a_whole() {
    let event = typed(&("start", start(NOW)));
    let malformed = [
        "",
        " \n",
        "[",
        "[E",
        "[E,",
        "[E,]",
        "[E E]",
        "[E]]",
        "[E] x",
        "[,E]",
        "nope",
        "{\"a\":",
        "\u{feff}[E]",
    ];
    let world = World::new();
    for body in malformed {
        let written = body.replace('E', &event.to_string());
        let answer = world.send(request(EVENTS, written)).await;
        let text = answer.problem(400, "malformed-json")["detail"].to_string();
        assert!(
            text.contains("empty") || text.contains("line"),
            "{body}: {text}"
        );
    }
    let text = format!("[{event},\n {event},\n  nope]");
    let answer = world.send(request(EVENTS, text)).await;
    let detail = answer.problem(400, "malformed-json")["detail"].clone();
    assert_eq!(detail, "The body is not JSON, at line 3, column 4.");
    for body in [json!({}), event, json!("x"), json!(null), json!(1.5)] {
        let answer = world.post(EVENTS, &body).await;
        answer.names(400, "invalid-event", &["#"]);
    }
    assert_eq!(world.store.calls(), 0);
    let answer = world.post(EVENTS, &json!([])).await;
    assert_eq!(statuses(&answer), [0_u64; 0]);
}

#[tokio::test]
async fn another_media_type_is_refused_with_those_that_are_accepted() {
    let world = World::new();
    for media_type in [
        "text/plain",
        "application/ndjson",
        "application/json; charset=utf-16",
        "",
    ] {
        let answer = world.send(request_as(media_type, EVENTS, "[]")).await;
        answer.names(415, "unsupported-media-type", &[]);
        let accepted = "application/json, application/x-ndjson, \
                        application/cloudevents-batch+json, application/cloudevents+json";
        assert_eq!(answer.header("accept"), Some(accepted));
    }
    for media_type in ["Application/X-NDJSON; charset=UTF-8", CLOUD_EVENTS] {
        let body = if media_type == CLOUD_EVENTS { "[]" } else { "" };
        let answer = world.send(request_as(media_type, EVENTS, body)).await;
        assert_eq!(statuses(&answer), [0_u64; 0]);
    }
}

fn many(count: usize) -> Vec<Typed> {
    let name = |number: usize| format!("instance {number}");
    let start = |number| ("start", by("a", &on(&name(number), &start(NOW))));
    (0..count).map(start).collect()
}

#[tokio::test]
async fn events_of_one_target_follow_each_other_and_those_of_others_do_not_wait() {
    let world = Arc::new(World::new());
    world.store.set_behaviour(Behaviour::Held);
    let mut events = many(600);
    let end = |(_, event): Typed| {
        let event = with(&event, "timestamp", NOW + HOUR);
        ("stop", by("z", &without(&event, "measured_usage")))
    };
    events.extend(many(300).into_iter().map(end));
    let sending = world.begin(request(EVENTS, list(&events)));
    // A start of each target is under way, and no stop; and no more than so many at a time.
    world.store.wait_until_held(512).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.store.calls(), 512);
    world.store.release();
    assert_eq!(statuses(&sending.await.unwrap()), [201; 900]);
    assert_eq!(world.ended(), 300);
}

/// Starts in batches have permits of their own (2,048 of a client): a single start finds one, however many wait.
#[tokio::test]
async fn an_event_that_comes_alone_does_not_wait_for_those_of_batches() {
    let world = Arc::new(World::new());
    world.store.set_behaviour(Behaviour::Held);
    let events = many(2_500);
    let mut sending = JoinSet::new();
    for part in events.chunks(500) {
        let (world, body) = (Arc::clone(&world), list(part));
        sending.spawn(async move { world.send(request(EVENTS, body)).await });
    }
    let limit = Duration::from_mins(1);
    let held = timeout(limit, world.store.wait_until_held(2_048)).await;
    held.expect("they have all of theirs");
    let alone = by("alone", &on("alone", &start(NOW)));
    let single = world.begin(request(START, alone.to_string()));
    let held = timeout(limit, world.store.wait_until_held(2_049)).await;
    held.expect("it has a permit");
    world.store.release();
    single.await.unwrap().is_created();
    while let Some(answer) = sending.join_next().await {
        assert_eq!(statuses(&answer.unwrap()), [201; 500]);
    }
}

#[tokio::test]
async fn what_has_no_final_answer_fails_with_all_that_follows_it_on_its_instance() {
    let world = World::new();
    let other = on("another", &start(NOW));
    let events = [
        ("start", by("a", &start(NOW))),
        ("stop", without(&stop(NOW), "plan_id")),
        ("stop", by("a", &stop(NOW + HOUR))),
        ("start", by("b", &start(NOW + HOUR))),
        ("start", by("c", &other)),
    ];
    for (behaviour, status, slug, calls, kept) in [
        // A start that is refused without a reason may be kept by its repeat: a stop behind it must not be
        // refused for good.
        (Behaviour::Refused, 500, "internal", 2, 0),
        (Behaviour::Lost, 503, "database-unavailable", 4, 2),
        (Behaviour::Unknown, 503, "database-unavailable", 6, 2),
        (Behaviour::Unavailable, 503, "database-unavailable", 8, 2),
        (Behaviour::Overloaded, 503, "overloaded", 10, 2),
    ] {
        world.store.set_behaviour(behaviour);
        let answer = world.send(request(EVENTS, list(&events))).await;
        let expected = [status, 503, 503, 503, status];
        assert_eq!(statuses(&answer), expected, "{behaviour:?}");
        assert_eq!(
            (world.store.calls(), world.kept().len()),
            (calls, kept),
            "{behaviour:?}"
        );
        let results = results(&answer);
        let held_back = if status == 503 {
            slug
        } else {
            "database-unavailable"
        };
        for (index, slug) in [(0, slug), (2, held_back), (3, held_back), (4, slug)] {
            let result = &results[index];
            let uri = format!("/problems/{slug}");
            assert_eq!(result["problem"]["type"], uri, "{result}");
            let waits = result["retry_after"].as_u64() >= Some(1);
            assert_eq!(waits, result["status"] == 503, "{result}");
        }
        let detail = results[3]["problem"]["detail"].as_str().unwrap();
        assert!(detail.contains("This one was not tried"), "{detail}");
    }
    world.store.set_behaviour(Behaviour::Served);
    let answer = world.send(request(EVENTS, list(&events))).await;
    assert_eq!(statuses(&answer), [201, 400, 201, 201, 201]);
    let replayed = results(&answer)
        .into_iter()
        .map(|one| one["replayed"] == true);
    assert!(replayed.eq([true, false, false, false, true]));
}

#[tokio::test]
async fn a_thousand_events_are_taken_and_of_more_none_is() {
    for (media_type, status) in [
        ("application/json", 201),
        (NDJSON, 201),
        // None of them is a CloudEvent.
        (CLOUD_EVENTS, 400),
    ] {
        let world = World::new();
        let send = async |count: usize| {
            let events = many(count);
            let body = match media_type {
                NDJSON => lines(&events),
                _ => list(&events),
            };
            world.send(request_as(media_type, EVENTS, body)).await
        };
        send(1_001).await.names(413, "payload-too-large", &[]);
        assert_eq!(world.store.calls(), 0);
        assert_eq!(statuses(&send(1_000).await), [status; 1_000]);
    }
}

#[tokio::test]
async fn a_batch_of_too_many_bytes_is_refused_and_one_at_the_limit_is_taken() {
    let world = World::new();
    let body = list(&many(5));
    let padded = |length: usize| format!("{body}{}", " ".repeat(length - body.len()));
    let answer = world.send(request(EVENTS, padded((4 << 20) + 1))).await;
    answer.names(413, "payload-too-large", &[]);
    let zipped = |body: String| zipped(EVENTS, gzip(body.as_bytes()));
    let answer = world.send(zipped(padded((4 << 20) + 1))).await;
    answer.names(413, "payload-too-large", &[]);
    assert_eq!(world.store.calls(), 0);
    // The largest batch that may be sent at all, and what it was decompressed from, fit together.
    let answer = world.send(zipped(padded(4 << 20))).await;
    assert_eq!(statuses(&answer), [201; 5]);
}

/// Its time limits do not pass while it works.
#[tokio::test(start_paused = true)]
async fn the_answer_is_bounded_however_much_is_wrong() {
    let world = World::new();
    let measures = vec![json!({}); 100];
    let event = typed(&("start", json!({ "measured_usage": measures })));
    let named = |result: &Value| result["problem"]["errors"].as_array().unwrap().len();
    for (count, each) in [(1, 100), (100, 100), (1_000, 10)] {
        let events = Value::from_iter(vec![event.clone(); count]);
        let answer = world.post(EVENTS, &events).await;
        assert!(results(&answer).iter().all(|result| named(result) == each));
    }
}

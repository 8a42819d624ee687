//! Dry runs: what would become of events is what becomes of them, and nothing is kept.

use sampler_domain::{Forecast, Granularities, Granularity, Policy, Timestamp};
use serde_json::{Value, json};

use crate::batches::{self, Typed, path};
use crate::event::{by, moved, start, stop, with};
use crate::event_table::table;
use crate::store::Behaviour;
use crate::world::{DAY, EVENTS, HOUR, NOW, START, STOP, UPDATE, World, request, request_as};

/// A receiver whose store refuses each write.
fn read_only(world: World) -> World {
    world.store.set_behaviour(Behaviour::ReadOnly);
    world
}

pub(crate) fn dry(path: &str) -> String {
    format!("{path}?dry_run=true")
}

fn events() -> Vec<Typed> {
    table().into_iter().map(|(event, _)| event).collect()
}

/// What a request is answered with that is a dry run.
pub(crate) async fn would(world: &World, path: &str, event: &Value) -> Value {
    let answer = world.post(path, event).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

/// The durations of the usages that would be posted.
fn durations(would: &Value) -> Vec<i64> {
    let usages = would["usages"].as_array().unwrap().iter();
    let duration = |usage: &Value| {
        let measure = usage["measured_usage"].as_array()?.last()?;
        measure["quantity"].as_i64()
    };
    usages.filter_map(duration).collect()
}

#[tokio::test]
async fn what_would_become_of_an_event_is_what_becomes_of_it() {
    for lenient in [false, true] {
        let world = World::with(|options| options.settings.events.lenient_repeats = lenient);
        for (index, (kind, event)) in events().iter().enumerate() {
            let before = world.documents();
            world.store.set_behaviour(Behaviour::ReadOnly);
            let foreseen = world.post(&dry(path(kind)), event).await;
            world.store.set_behaviour(Behaviour::Served);
            assert_eq!(world.documents(), before);
            let answer = world.post(path(kind), event).await;
            if answer.status == 413 {
                foreseen.names(413, "payload-too-large", &[]);
                continue;
            }
            assert_eq!(foreseen.status, 200, "{index}: {foreseen:?}");
            let foreseen = foreseen.json();
            assert_eq!(foreseen["would"], answer.status, "{index}: {foreseen:#}");
            if answer.status == 201 {
                let is_replayed = answer.header("idempotency-replayed").is_some();
                assert_eq!(foreseen["replayed"], is_replayed, "{index}: {foreseen:#}");
                assert!(foreseen["usages"].is_array());
            } else {
                assert_eq!(foreseen["problem"], answer.any_problem(), "{index}");
                assert_eq!(foreseen.get("usages"), None);
            }
        }
    }
}

#[tokio::test]
async fn each_event_of_a_batch_is_looked_at_as_if_those_before_had_taken_effect() {
    let (real, events) = (World::new(), events());
    let answer = real.send(request(EVENTS, batches::list(&events))).await;
    let real = batches::results(&answer);
    let body = batches::list(&events);
    let world = read_only(World::new());
    for (media_type, body) in [
        ("application/json", body),
        (batches::NDJSON, batches::lines(&events)),
    ] {
        let answer = world.send(request_as(media_type, &dry(EVENTS), body)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let foreseen: Vec<Value> = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(foreseen.len(), real.len());
        for (index, (foreseen, real)) in foreseen.iter().zip(&real).enumerate() {
            let said = |of: &Value, status: &str| {
                [status, "replayed", "problem"].map(|name| of.get(name).cloned())
            };
            assert_eq!(said(foreseen, "would"), said(real, "status"), "{index}");
        }
    }
    world.assert_kept(&[]);
}

#[tokio::test]
async fn the_usages_are_those_that_a_worker_posts() {
    let world = World::new();
    let event = by("a", &start(NOW - 2 * DAY - HOUR));
    let end = by("z", &stop(NOW + HOUR));
    let begun = would(&world, &dry(START), &event).await;
    assert_eq!(durations(&begun), [HOUR, DAY, DAY], "{begun:#}");
    assert_eq!(world.documents().len(), 0);
    world.start(&event).await.is_created();
    let policy = Policy {
        granularities: Granularities::all(Granularity::Day),
        stop_grace: HOUR,
    };
    let span = world.spans().remove(0);
    let usages = Forecast::new(span.clone(), Timestamp::clamped(NOW), &policy);
    let usages: Vec<_> = usages.collect();
    // Byte by byte, as they are in the answer.
    let written = serde_json::to_string(&usages).unwrap();
    let answer = world.post(&dry(START), &event).await;
    let text = answer.text();
    assert!(text.contains(&written), "{text}");
    assert_eq!(begun["usages"], serde_json::to_value(&usages).unwrap());
    // A stop in the future is billed once it is over.
    for (until, expected) in [
        (String::new(), &[HOUR, DAY, DAY][..]),
        (format!("&until={}", NOW + DAY), &[HOUR, DAY, DAY, HOUR]),
        ("&until=2018-08-01T00:00:00Z".to_owned(), &[HOUR]),
    ] {
        let shown = would(&world, &format!("{}{until}", dry(STOP)), &end).await;
        assert_eq!(durations(&shown), expected, "{until}");
    }
    world.assert_kept(&[(&event, None)]);
}

#[tokio::test]
async fn an_update_shows_both_spans() {
    let world = World::new();
    let event = by("a", &start(NOW - DAY));
    world.start(&event).await.is_created();
    let shown = would(&world, &dry(UPDATE), &moved(NOW - HOUR)).await;
    let plans = shown["usages"].as_array().unwrap().iter();
    let plans: Vec<_> = plans
        .map(|usage| usage["plan_id"].as_str().unwrap())
        .collect();
    assert_eq!(plans, ["large", "larger"]);
    assert_eq!(durations(&shown), [DAY - HOUR, HOUR]);
    world.assert_kept(&[(&event, None)]);
}

#[tokio::test]
async fn what_is_shown_is_bounded() {
    let world = World::with(|options| {
        options.settings.sampling.dimension = Some(Granularity::Minute);
    });
    let event = by("a", &start(NOW - 10 * DAY));
    let mut large = event.clone();
    large["measured_usage"][0]["quantity"] = json!("x".repeat(400_000));
    let more = json!(true);
    for (event, count, more) in [
        (event, 1_000, Some(&more)),
        (large, 10, Some(&more)),
        (start(NOW - HOUR), 60, None),
    ] {
        let shown = would(&world, &dry(START), &event).await;
        assert_eq!((durations(&shown).len(), shown.get("more")), (count, more));
    }
}

#[tokio::test]
async fn a_query_that_is_wrong_keeps_nothing() {
    let world = World::new();
    for (query, names) in [
        ("dry_run=yes", &["dry_run"][..]),
        ("dry_run=", &["dry_run"]),
        ("dry_run=true&dry_run=true", &["dry_run"]),
        ("dry_run=true&until=now", &["until"]),
        ("until=1533254400000", &["until"]),
        ("dry_run=false&until=1533254400000", &["until"]),
        ("dry_run=true&when=1", &["when"]),
    ] {
        for path in [START, UPDATE, EVENTS] {
            let answer = world.post(&format!("{path}?{query}"), &start(NOW)).await;
            answer.names(400, "invalid-query", names);
        }
    }
    for path in [START, STOP, UPDATE, EVENTS] {
        for name in ["dryrun", "dry-run", "dryRun", "DRY_RUN"] {
            let query = format!("{path}?{name}=true");
            let answer = world.post(&query, &start(NOW)).await;
            answer.names(400, "invalid-query", &[name]);
        }
    }
    world.assert_kept(&[]);
    // Other parameters are not looked at.
    let path = format!("{START}?dry_run=false&id=x&timestamp=y");
    world.post(&path, &start(NOW)).await.is_created();
    world.assert_kept(&[(&start(NOW), None)]);
}

#[tokio::test]
async fn what_cannot_be_foreseen_is_answered_as_ever() {
    let world = World::new();
    let broken = world.send(request(&dry(START), "{")).await;
    broken.names(400, "malformed-json", &[]);
    world.store.set_behaviour(Behaviour::Unavailable);
    for (path, body) in [
        (START, start(NOW)),
        (EVENTS, json!([with(&start(NOW), "type", "start")])),
    ] {
        let answer = world.post(&dry(path), &body).await;
        answer.names(503, "database-unavailable", &[]);
    }
    let unknowing = World::with(|options| options.settings.sampling.dimension = None);
    let answer = unknowing.post(&dry(START), &start(NOW)).await;
    answer.names(501, "dry-run-unavailable", &[]);
}

/// Small events can be about large spans.
#[tokio::test]
async fn the_spans_of_a_dry_run_have_a_limit() {
    let world = World::new();
    let text = "x".repeat(400_000);
    let of =
        |event: Value, number: usize| with(&event, "resource_instance_id", format!("i {number}"));
    for number in 0..30 {
        let usage = json!([{ "measure": "m", "quantity": text }]);
        let event = with(&start(NOW), "measured_usage", usage);
        world.start(&of(event, number)).await.is_created();
    }
    for (count, status) in [(10, 200), (30, 413)] {
        let stops = (0..count).map(|number| with(&of(stop(NOW + HOUR), number), "type", "stop"));
        let answer = world.post(&dry(EVENTS), &stops.collect()).await;
        assert_eq!(answer.status, status, "{count}");
    }
}

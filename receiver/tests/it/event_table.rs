//! What events are answered: one table, which holds for events alone and in batches.

use std::collections::BTreeSet;
use std::slice;

use serde_json::{Value, json};

use crate::auth::{bearer, secured};
use crate::batches::{NDJSON, Typed, lines, list, path, results};
use crate::event::{TARGET, as_kept, by, moved, on, resized, start, stop, with, without};
use crate::store::Behaviour;
use crate::updates::halves;
use crate::world::{EVENTS, FUTURE, HOUR, NOW, PAST, START, World, request, request_as};

/// Long after all that is dated around [`NOW`] has left the slack.
const LONG_AFTER: i64 = NOW + 2 * PAST;

/// What an event is answered.
enum Expected {
    Created,
    Replayed,
    /// Its id is that of another one; these fields differ. A setting takes it for a repeat.
    Differs(&'static [&'static str]),
    /// With this status and kind of problem, these fields, and these words.
    Refused(u16, &'static str, &'static [&'static str], &'static str),
}

use Expected::{Created, Differs, Refused, Replayed};

const TIME: &[&str] = &["#/timestamp"];
const MEASURES: &[&str] = &["#/measured_usage"];
const OPEN: Expected = Refused(409, "open-span", &[], "");
const NOT_OPEN: Expected = Refused(422, "no-open-span", &[], "");
const EARLY: Expected = Refused(422, "stop-before-start", TIME, "2018-08-03T00:00:00.000Z");
const OVERLAPS: Expected = Refused(422, "overlapping-start", TIME, "2018-08-03T01:00:00.000Z");
const OUTSIDE: Expected = Refused(
    422,
    "outside-slack",
    TIME,
    "between 2018-06-03T00:00:00.000Z and 2018-08-05T00:00:00.000Z",
);

fn unmeasured(event: &Value) -> Value {
    with(event, "measured_usage", json!([]))
}

fn wrong(pointers: &'static [&'static str]) -> Expected {
    Refused(400, "invalid-event", pointers, "")
}

type Row = (&'static str, Value, Expected);

/// Events in their order, with each kind of answer that is about the event.
fn table() -> Vec<(Typed, Expected)> {
    let rows = [
        of_one_target(),
        of_wrong_events(),
        of_other_targets(),
        of_ids_of_others(),
        of_updates(),
    ];
    let rows = rows.into_iter().flatten();
    rows.map(|(kind, event, expected)| ((kind, event), expected))
        .collect()
}

#[rustfmt::skip]
fn of_one_target() -> Vec<Row> {
    let mut text = by("a", &start(NOW));
    text["measured_usage"][1]["quantity"] = json!("0.5");
    let larger = with(&by("plan", &start(NOW + 5 * HOUR)), "plan_id", "larger");
    vec![
        ("stop", by("early", &stop(NOW)), NOT_OPEN),
        ("start", by("a", &start(NOW)), Created),
        ("start", by("a", &start(NOW)), Replayed),
        ("start", by("b", &start(NOW)), OPEN),
        ("start", by("b", &start(NOW + HOUR)), OPEN),
        ("start", unmeasured(&start(NOW)), OPEN),
        // Without an id a repeat is taken for a second start.
        ("start", start(NOW), OPEN),
        // Fault 4 of the original: an id that was seen before answered 201, and the event was lost.
        ("start", by("a", &start(NOW + 1)), Differs(TIME)),
        ("start", by("a", &start(NOW - 1)), Differs(TIME)),
        ("start", by("a", &unmeasured(&start(NOW))), Differs(MEASURES)),
        ("start", text, Differs(MEASURES)),
        ("start", by("a", &unmeasured(&start(NOW + 1))), Differs(&["#/timestamp", "#/measured_usage"])),
        // Fault 5 of the original. The id of what was refused is free.
        ("stop", by("z", &stop(NOW - 1)), EARLY),
        ("stop", by("other plan", &with(&stop(NOW), "plan_id", "another")), NOT_OPEN),
        ("stop", by("z", &stop(NOW + HOUR)), Created),
        ("stop", by("z", &stop(NOW + HOUR)), Replayed),
        ("stop", by("z", &stop(NOW + HOUR + 1)), Differs(TIME)),
        ("start", by("a", &start(NOW + 1)), Differs(TIME)),
        ("stop", by("y", &stop(NOW + HOUR)), NOT_OPEN),
        ("stop", stop(NOW + HOUR), NOT_OPEN),
        // Fault 12 of the original.
        ("start", by("inside", &start(NOW + 1)), OVERLAPS),
        ("start", by("inside", &start(NOW)), OVERLAPS),
        ("start", by("inside", &start(NOW - HOUR)), OVERLAPS),
        ("start", by("old", &start(NOW - PAST - 1)), OUTSIDE),
        ("start", by("", &start(NOW + FUTURE + 1)), OUTSIDE),
        ("start", start(0), OUTSIDE),
        ("start", start(253_402_300_800_000), OUTSIDE),
        ("stop", stop(NOW + FUTURE + 1), OUTSIDE),
        ("stop", by("old", &stop(NOW - PAST - 1)), OUTSIDE),
        ("start", by("", &start(NOW + HOUR)), Created),
        ("start", by("", &start(NOW + HOUR)), OPEN),
        ("update", resized("u", NOW + 2 * HOUR), Created),
        ("update", resized("u", NOW + 2 * HOUR), Replayed),
        ("update", resized("u", NOW + 3 * HOUR), Differs(TIME)),
        ("update", resized("back", NOW + HOUR), Refused(422, "stop-before-start", TIME, "")),
        ("update", with(&larger, "previous", json!({"plan_id": "large"})), Created),
        ("stop", with(&stop(NOW + 6 * HOUR), "plan_id", "larger"), Created),
        ("stop", stop(NOW + 6 * HOUR), NOT_OPEN),
    ]
}

#[rustfmt::skip]
fn of_wrong_events() -> Vec<Row> {
    let mut unreadable = start(NOW);
    unreadable["measured_usage"][0]["quantity"] = Value::Null;
    unreadable["plan_id"] = json!("");
    let mut unreadable_update = with(&without(&moved(NOW), "id"), "timestamp", "now");
    unreadable_update["previous"] = json!({"plan_id": "", "space_id": "a\nb"});
    unreadable_update["consumer_id"] = json!("");
    vec![
        ("start", unreadable, wrong(&["#/plan_id", "#/measured_usage/0/quantity"])),
        ("stop", without(&stop(NOW), "space_id"), wrong(&["#/space_id"])),
        ("stop", start(NOW), wrong(MEASURES)),
        ("start", json!({}), wrong(&["#/timestamp", "#/organization_id", "#/space_id", "#/consumer_id", "#/resource_id",
            "#/plan_id", "#/resource_instance_id", "#/measured_usage"])),
        ("update", start(NOW), wrong(&["#/id"])),
        ("update", with(&moved(NOW), "previous", json!({"plan": "x"})), wrong(&["#/previous/plan"])),
        ("update", with(&moved(NOW), "previous", json!({"space_id": 2})), wrong(&["#/previous/space_id"])),
        ("start", with(&start(NOW), "id", "control \u{1f}"), wrong(&["#/id"])),
        ("update", by("", &moved(NOW)), wrong(&["#/id"])),
        ("update", unreadable_update, wrong(&["#/id", "#/timestamp", "#/consumer_id", "#/previous/plan_id",
            "#/previous/space_id"])),
        ("update", with(&moved(NOW), "previous", json!(null)), wrong(&["#/previous"])),
        ("update", with(&moved(NOW), "previous", json!([])), wrong(&["#/previous"])),
        ("update", with(&moved(NOW), "previous", json!("x")), wrong(&["#/previous"])),
        ("start", with(&start(NOW), "previous", json!({})), wrong(&["#/previous"])),
        ("start", with(&start(NOW), "space_id", "x".repeat(600_000)), Refused(413, "payload-too-large", &[], "")),
    ]
}

#[rustfmt::skip]
fn of_other_targets() -> Vec<Row> {
    vec![
        // At the edges of the slack.
        ("start", on("early", &start(NOW - PAST)), Created),
        ("stop", on("early", &stop(NOW - PAST)), Created),
        ("start", on("late", &start(NOW + FUTURE)), Created),
        ("stop", on("late", &stop(NOW + FUTURE)), Created),
        ("stop", on("nothing", &stop(NOW + HOUR)), NOT_OPEN),
        // A moment may be a text with an offset.
        ("start", on("in words", &by("words", &start(NOW))), Created),
        ("start", on("in words", &with(&by("words", &start(NOW)), "timestamp", "2018-08-03T02:00:00+02:00")), Replayed),
        // The id of a start that was refused is free.
        ("start", on("free", &by("a", &start(NOW - PAST - 1))), OUTSIDE),
        ("start", on("free", &by("a", &start(NOW))), Created),
        // A stop and a start at one moment may have one id, and the next start follows at once.
        ("start", on("renewed", &by("create", &start(NOW))), Created),
        ("stop", on("renewed", &by("renew", &stop(NOW + HOUR))), Created),
        ("start", on("renewed", &by("renew", &unmeasured(&start(NOW + HOUR)))), Created),
        ("stop", on("renewed", &by("renew", &stop(NOW + HOUR))), Replayed),
        ("start", on("renewed", &by("renew", &unmeasured(&start(NOW + HOUR)))), Replayed),
        ("stop", on("renewed", &by("renew", &stop(NOW + 2 * HOUR))), Differs(TIME)),
    ]
}

/// Nobody can take an id away from somebody else's target, nor find out which ids that has: in each field of the target
/// another one makes another event of it. A stop of a target that was not started says so.
fn of_ids_of_others() -> Vec<Row> {
    let (event, end) = (by("a", &start(NOW)), by("a", &stop(NOW + HOUR)));
    let of = |name: &str| {
        let [event, end] = [&event, &end].map(|it| with(it, name, "whose id is a"));
        [
            ("stop", end.clone(), NOT_OPEN),
            ("start", event.clone(), Created),
            ("start", event, Replayed),
            ("stop", end.clone(), Created),
            ("stop", end, Replayed),
        ]
    };
    TARGET.into_iter().flat_map(of).collect()
}

#[rustfmt::skip]
fn of_updates() -> Vec<Row> {
    vec![
        // An update of which a half would be refused keeps nothing.
        ("start", on("moved", &by("first", &start(NOW - HOUR))), Created),
        ("update", on("moved", &resized("u", NOW - HOUR - 1)), Refused(422, "stop-before-start", TIME, "")),
        ("update", on("moved", &resized("u", NOW - PAST - 1)), OUTSIDE),
        ("update", on("moved", &with(&moved(NOW), "previous", json!({"plan_id": "a third"}))), NOT_OPEN),
        ("start", on("moved", &with(&start(NOW - HOUR), "plan_id", "larger")), Created),
        ("update", on("moved", &moved(NOW)), OPEN),
        ("stop", on("moved", &with(&stop(NOW + 1), "plan_id", "larger")), Created),
        ("update", on("moved", &moved(NOW)), Refused(422, "overlapping-start", TIME, "")),
        ("update", on("moved", &moved(NOW + 1)), Created),
        // A half that stands alone under the id counts as that half.
        ("start", on("stopped", &start(NOW - HOUR)), Created),
        ("stop", on("stopped", &by("u", &stop(NOW))), Created),
        ("update", on("stopped", &resized("u", NOW)), Created),
        ("update", on("stopped", &resized("u", NOW)), Replayed),
        ("start", on("left", &start(NOW - HOUR)), Created),
        ("stop", on("left", &by("u", &stop(NOW))), Created),
        ("update", on("left", &moved(NOW)), Created),
        ("update", on("left", &moved(NOW)), Replayed),
        ("start", on("entered", &start(NOW - HOUR)), Created),
        ("start", on("entered", &without(&moved(NOW), "previous")), Created),
        ("update", on("entered", &moved(NOW)), Created),
        ("update", on("entered", &moved(NOW)), Replayed),
        ("start", on("by halves", &start(NOW - HOUR)), Created),
        ("stop", on("by halves", &by("u", &stop(NOW))), Created),
        ("start", on("by halves", &without(&moved(NOW), "previous")), Created),
        ("update", on("by halves", &moved(NOW)), Replayed),
        // The end of the span that the update ends is not in its own way.
        ("start", on("at once", &start(NOW)), Created),
        ("update", on("at once", &resized("u", NOW)), Created),
        // Its start stands alone under the id, and no other span is open: what it started is not ended.
        ("start", on("own", &start(NOW - HOUR)), Created),
        ("stop", on("own", &by("by hand", &stop(NOW))), Created),
        ("start", on("own", &resized("u", NOW)), Created),
        ("update", on("own", &resized("u", NOW)), NOT_OPEN),
        // The stop of an update stands alone under its id, and another event is in the way of its start.
        ("start", on("halved", &start(NOW)), Created),
        ("stop", on("halved", &by("half", &stop(NOW + HOUR))), Created),
        ("start", on("halved", &start(NOW + HOUR)), Created),
        ("update", on("halved", &resized("half", NOW + HOUR)), Refused(409, "open-span", &[], "\"stopped\":true")),
    ]
}

/// What events are answered with one by one.
async fn alone(world: &World, events: &[Typed]) -> Vec<Value> {
    let mut answers = Vec::new();
    for (kind, event) in events {
        let calls = world.store.calls();
        let answer = world.post(path(kind), event).await;
        // What is wrong is not looked for in the store.
        assert!(
            answer.status != 400 || world.store.calls() == calls,
            "{event}"
        );
        answers.push(if answer.status == 201 {
            json!({"status": 201, "replayed": answer.header("idempotent-replayed").is_some()})
        } else {
            json!({"status": answer.status, "problem": answer.any_problem()})
        });
    }
    answers
}

/// Sends events alone, and in a batch of either layout, each time to a world of its own. All are answered
/// alike, and keep the same.
async fn all_ways(world: impl AsyncFn() -> World, events: &[Typed]) -> Vec<Value> {
    let one_by_one = world().await;
    let expected = alone(&one_by_one, events).await;
    for (media_type, body) in [("application/json", list(events)), (NDJSON, lines(events))] {
        let together = world().await;
        let answer = together.send(request_as(media_type, EVENTS, body)).await;
        let results = results(&answer);
        assert_eq!(results.len(), expected.len());
        for (mut result, expected) in results.into_iter().zip(&expected) {
            let only_in_batches = ["index", "span", "retry_after"];
            let members = result.as_object_mut().unwrap();
            let [_, _, waits] = only_in_batches.map(|name| members.shift_remove(name));
            assert_eq!(waits.is_some(), expected["status"] == 503, "{result}");
            assert_eq!(result, *expected, "{media_type}");
        }
        assert_eq!(together.kept().len(), one_by_one.kept().len());
        for span in one_by_one.kept() {
            assert!(together.kept().contains(&span), "{span:?}");
        }
    }
    expected
}

fn assert_answered(answer: &Value, expected: &Expected, lenient: bool, row: &Typed) {
    let (status, slug, pointers, words) = match *expected {
        Created => {
            return assert_eq!(
                *answer,
                json!({"status": 201, "replayed": false}),
                "{row:?}"
            );
        }
        Differs(pointers) if !lenient => (409, "id-taken", pointers, ""),
        Replayed | Differs(_) => {
            return assert_eq!(*answer, json!({"status": 201, "replayed": true}), "{row:?}");
        }
        Refused(status, slug, pointers, words) => (status, slug, pointers, words),
    };
    let problem = &answer["problem"];
    assert_eq!(answer["status"], status, "{row:?}: {answer:#}");
    assert_eq!(problem["type"], format!("/problems/{slug}"), "{row:?}");
    let errors = problem["errors"].as_array().cloned().unwrap_or_default();
    let named: Vec<_> = errors
        .iter()
        .map(|error| error["pointer"].as_str().unwrap())
        .collect();
    assert_eq!(named, pointers, "{row:?}");
    assert!(problem.to_string().contains(words), "{row:?}: {problem:#}");
}

#[tokio::test]
async fn each_event_is_answered_as_the_table_says_alone_and_in_batches() {
    for lenient in [false, true] {
        let (events, expected): (Vec<_>, Vec<_>) = table().into_iter().unzip();
        let world =
            async || World::with(|options| options.settings.events.lenient_repeats = lenient);
        let answers = all_ways(world, &events).await;
        for ((answer, expected), event) in answers.iter().zip(&expected).zip(&events) {
            assert_answered(answer, expected, lenient, event);
        }
    }
}

/// The start and the stop that are kept of an event.
fn to_keep((kind, event): &Typed) -> (Option<Value>, Option<Value>) {
    let event = as_kept(event);
    match *kind {
        "start" => (Some(event), None),
        "stop" => (None, Some(event)),
        _ => {
            let (end, begin) = halves(&event);
            (Some(begin), Some(end))
        }
    }
}

#[tokio::test]
async fn what_is_accepted_is_kept_and_nothing_else() {
    let world = World::new();
    for (row, _) in table() {
        let before = world.documents();
        let answer = world.post(path(row.0), &row.1).await;
        if answer.status != 201 || answer.header("idempotent-replayed").is_some() {
            assert_eq!(world.documents(), before, "{row:?}");
            continue;
        }
        let (begin, end) = to_keep(&row);
        let kept = world.kept();
        let (starts, stops): (Vec<_>, Vec<_>) = kept.into_iter().unzip();
        assert!(begin.is_none_or(|it| starts.contains(&it)), "{row:?}");
        assert!(end.is_none() || stops.contains(&end), "{row:?}");
    }
}

/// Fault 4 of the original: a repeat is told from another event under its id at any later time.
#[tokio::test]
async fn fault_4_an_id_is_known_once_its_events_have_left_the_slack() {
    for lenient in [false, true] {
        let world = World::with(|options| options.settings.events.lenient_repeats = lenient);
        let (events, _): (Vec<_>, Vec<_>) = table().into_iter().unzip();
        alone(&world, &events).await;
        let kept = world.documents();
        world.clock.set(LONG_AFTER);
        for (row, expected) in table() {
            let expected = match expected {
                Created | Replayed if has_id(&row.1) => Replayed,
                Differs(pointers) => Differs(pointers),
                _ => continue,
            };
            let answer = alone(&world, slice::from_ref(&row)).await.remove(0);
            assert_answered(&answer, &expected, lenient, &row);
            // The id is known of its target alone.
            let (path, unknown) = (path(row.0), with(&row.1, "space_id", "unknown"));
            let answer = world.post(path, &unknown).await;
            answer.problem(422, "outside-slack");
        }
        assert_eq!(world.documents(), kept);
    }
}

fn has_id(event: &Value) -> bool {
    event["id"].as_str().is_some_and(|id| !id.is_empty())
}

/// All that an event can be answered with.
const OF_EVENTS: [&str; 14] = [
    "database-unavailable",
    "forbidden",
    "id-taken",
    "internal",
    "invalid-event",
    "malformed-json",
    "no-open-span",
    "open-span",
    "outside-slack",
    "overlapping-start",
    "overloaded",
    "payload-too-large",
    "stop-before-start",
    "throttled",
];

/// What is no JSON, alone and in a batch.
async fn malformed() -> [Value; 2] {
    let world = World::new();
    let text = "{\"id\": 1,}";
    let one = world.send(request(START, text)).await.any_problem();
    let answer = world.send(request_as(NDJSON, EVENTS, text)).await;
    [one, results(&answer)[0]["problem"].clone()]
}

/// A token that does not allow the resource, alone and in a batch.
async fn forbidden() -> [Value; 2] {
    let (key, world) = secured();
    let bearer = bearer(&key, &["abacus.sampler.redis.write"]);
    let mut event = start(NOW);
    let one = world.ask("POST", START, &[&bearer], &event).await;
    event["type"] = json!("start");
    let all = world.ask("POST", EVENTS, &[&bearer], &json!([event])).await;
    let all = all.answer.json();
    [
        one.answer.any_problem(),
        all["results"][0]["problem"].clone(),
    ]
}

#[tokio::test]
async fn each_kind_of_problem_is_the_same_alone_and_in_a_batch() {
    let (events, _): (Vec<_>, Vec<_>) = table().into_iter().unzip();
    let mut answers = all_ways(async || World::new(), &events).await;
    let event = [("start", by("a", &start(NOW)))];
    for behaviour in [
        Behaviour::Unavailable,
        Behaviour::Unknown,
        Behaviour::Lost,
        Behaviour::Overloaded,
        Behaviour::Refused,
    ] {
        let world = async || {
            let world = World::new();
            world.store.set_behaviour(behaviour);
            world
        };
        answers.extend(all_ways(world, &event).await);
    }
    let drained = async || {
        let world = World::new();
        world.let_in(0.0).await;
        world
    };
    answers.extend(all_ways(drained, &event).await);
    let mut problems: Vec<_> = answers
        .iter()
        .map(|answer| answer["problem"].clone())
        .collect();
    for [one, in_batch] in [malformed().await, forbidden().await] {
        assert_eq!(one, in_batch);
        problems.push(one);
    }
    let kinds = problems
        .iter()
        .filter_map(|problem| problem["type"].as_str());
    let met: BTreeSet<_> = kinds
        .map(|kind| kind.trim_start_matches("/problems/"))
        .collect();
    assert_eq!(met, BTreeSet::from(OF_EVENTS));
}

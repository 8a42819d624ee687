//! Updates: the previous span stops and the new one starts, both or neither. The table of events has most
//! answers, and the simulation what comes between the halves.

use serde_json::{Value, json};

use crate::answer::Answer;
use crate::event::{by, moved, resized, start, with, without};
use crate::store::Behaviour;
use crate::world::{FUTURE, HOUR, NOW, PAST, START, STOP, UPDATE, World};

const TIME: &[&str] = &["#/timestamp"];
const MEASURES: &[&str] = &["#/measured_usage"];

/// The stop and the start that an update is.
pub(crate) fn halves(update: &Value) -> (Value, Value) {
    let mut end = without(update, "measured_usage");
    let mut begin = update.clone();
    if let Some(previous) = update.get("previous") {
        begin = without(update, "previous");
        end = without(&end, "previous");
        for (name, value) in previous.as_object().unwrap() {
            end[name] = value.clone();
        }
    }
    (end, begin)
}

/// A world in which the target is used since an hour ago.
async fn used() -> (World, Value) {
    let (world, first) = (World::new(), by("first", &start(NOW - HOUR)));
    world.start(&first).await.is_created();
    (world, first)
}

#[tokio::test]
async fn an_update_ends_the_previous_span_and_starts_the_new_one() {
    for update in [resized("u", NOW), moved(NOW)] {
        let (world, first) = used().await;
        let (end, begin) = halves(&update);
        let answer = world.update(&update).await;
        answer.is_created();
        let spans = world.spans();
        let location = format!("/v1/spans/{}", spans[1].id);
        assert_eq!(answer.header("location"), Some(location.as_str()));
        world.assert_kept(&[(&first, Some(&end)), (&begin, None)]);
        for now in [NOW, NOW + 2 * PAST] {
            world.clock.set(now);
            let answer = world.update(&update).await;
            answer.is_replayed();
            assert_eq!(answer.header("location"), Some(location.as_str()));
        }
        world.clock.set(NOW);
        // Also once the new span has ended, and the next one has begun.
        let later = without(&with(&begin, "timestamp", NOW + HOUR), "measured_usage");
        world.stop(&by("z", &later)).await.is_created();
        world.update(&update).await.is_replayed();
    }
}

/// An event that is sent before, with the path that takes it.
type Before = (&'static str, Value);

/// What is sent before an update, how far the clock is then, what the update is answered, and whether that says that its
/// stop was kept.
type Row = (
    Vec<Before>,
    i64,
    Value,
    (u16, &'static str, &'static [&'static str]),
    bool,
);

/// Updates of which a half is there already, and the other one is refused. What else refuses a half refuses both, as the
/// table of events shows. What is kept under the id stays, and is billed: a start under another id would be billed, too.
#[rustfmt::skip]
fn halved() -> Vec<Row> {
    let (end, begin) = halves(&moved(NOW));
    let first = (START, by("first", &start(NOW - HOUR)));
    let stopped = |more: &[Before]| [&[first.clone(), (STOP, end.clone())], more].concat();
    let started = |name, value| (START, with(&begin, name, value));
    let other = by("other", &with(&begin, "timestamp", NOW - HOUR));
    let later = without(&with(&other, "timestamp", NOW + HOUR), "measured_usage");
    let unmeasured = with(&moved(NOW), "measured_usage", json!([]));
    let (taken, outside) = (|field| (409, "id-taken", field), (422, "outside-slack", TIME));
    let update = || moved(NOW);
    vec![
        // The start has the id of another event.
        (vec![first.clone(), started("timestamp", json!(NOW - HOUR))], 0, update(), taken(TIME), false),
        (vec![first.clone(), started("measured_usage", json!([]))], 0, update(), taken(MEASURES), false),
        (stopped(&[started("timestamp", json!(NOW + 1))]), 0, update(), taken(TIME), true),
        (stopped(&[started("measured_usage", json!([]))]), 0, update(), taken(MEASURES), true),
        // The update was kept as a whole, and is sent again with other quantities.
        (vec![first.clone(), (UPDATE, update())], 0, unmeasured, taken(MEASURES), true),
        // A start of its own says nothing of a stop.
        (vec![(START, begin.clone())], 0, update(), (422, "no-open-span", &[]), false),
        (vec![(START, begin.clone())], 2 * PAST, update(), outside, false),
        // The slack is that of the time at which the repeat comes.
        (stopped(&[]), PAST + 1, update(), outside, true),
        (stopped(&[]), -FUTURE - 1, update(), outside, true),
        (stopped(&[(START, other.clone())]), 0, update(), (409, "open-span", &[]), true),
        (stopped(&[(START, other), (STOP, later)]), 0, update(), (422, "overlapping-start", TIME), true),
    ]
}

#[tokio::test]
async fn a_half_that_is_kept_is_told_with_whatever_refuses_the_other_one() {
    for (before, passed, update, (status, slug, pointers), stop_is_kept) in halved() {
        let world = World::new();
        for (path, event) in &before {
            world.post(path, event).await.is_created();
        }
        let kept = world.kept();
        world.clock.set(NOW + passed);
        let answer = world.update(&update).await;
        assert_eq!(answer.status, status, "{before:?}");
        answer.names(status, slug, pointers);
        assert_eq!(
            answer.json().get("stopped").is_some(),
            stop_is_kept,
            "{before:?}"
        );
        if stop_is_kept {
            says_that_the_stop_was_kept(&answer);
        }
        assert_eq!(world.kept(), kept, "{before:?}");
    }
}

/// The same request again completes the update: nothing says that the stop was not kept.
fn says_that_the_stop_was_kept(answer: &Answer) {
    let problem = answer.any_problem();
    assert_eq!(problem["stopped"], true, "{problem}");
    let detail = problem["detail"].to_string();
    for wrong in ["not kept", "Nothing was kept"] {
        assert!(!detail.contains(wrong), "{detail}");
    }
}

/// Two updates under one id from two targets to one: each stops its own, and both start the same span.
#[tokio::test]
async fn what_two_updates_under_one_id_start_is_started_once() {
    let world = World::new();
    let first = by("first", &start(NOW - HOUR));
    let second = by("second", &with(&start(NOW - HOUR), "plan_id", "a third"));
    world.start(&first).await.is_created();
    world.start(&second).await.is_created();
    let one = moved(NOW);
    let other = with(&one, "previous", json!({"plan_id": "a third"}));
    let ((first_end, begin), (second_end, _)) = (halves(&one), halves(&other));
    world.update(&one).await.is_created();
    world.update(&other).await.is_created();
    for update in [&one, &other] {
        world.update(update).await.is_replayed();
    }
    world.assert_kept(&[
        (&first, Some(&first_end)),
        (&second, Some(&second_end)),
        (&begin, None),
    ]);
}

/// The second half meets a store that fails. The answer does not deny the first, and a repeat makes
/// the second.
#[tokio::test]
async fn an_update_that_is_cut_between_its_halves_is_completed_by_its_repeat() {
    for update in [resized("u", NOW), moved(NOW)] {
        for behaviour in [
            Behaviour::Unavailable,
            Behaviour::Overloaded,
            Behaviour::Unknown,
            Behaviour::Lost,
        ] {
            let (world, first) = used().await;
            let (end, begin) = halves(&update);
            world.store.set_behaviour_after_next_stop(behaviour);
            let answer = world.update(&update).await;
            assert_eq!(answer.status, 503, "{answer:?}");
            says_that_the_stop_was_kept(&answer);
            world.store.set_behaviour(Behaviour::Served);
            let answer = world.update(&update).await;
            let is_replayed = answer.header("idempotent-replayed").is_some();
            assert_eq!(is_replayed, behaviour == Behaviour::Lost);
            world.assert_kept(&[(&first, Some(&end)), (&begin, None)]);
        }
    }
}

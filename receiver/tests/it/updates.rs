//! Updates: the previous span stops and the new one starts, both or neither. The table of events has most
//! answers, and the model each order in which the steps of two updates can come.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::answer::Answer;
use crate::event::{by, moved, resized, start, with, without};
use crate::store::Behaviour;
use crate::world::{FUTURE, HOUR, NOW, PAST, UPDATE, World, request};

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

/// An update whose answer waits once its stop is kept, until the store lets it go.
async fn halved(world: &Arc<World>, update: &Value) -> JoinHandle<Answer> {
    world.store.set_behaviour_after_next_stop(Behaviour::Held);
    let updating = world.begin(request(UPDATE, update.to_string()));
    world.store.wait_until_held(1).await;
    // What the store holds back is nothing that comes from now on.
    world.store.set_behaviour(Behaviour::Served);
    updating
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
        world.assert_kept(&[(&first, Some(&end)), (&begin, None)]);
        // Also once the new span has ended, and the next one has begun.
        let later = without(&with(&begin, "timestamp", NOW + HOUR), "measured_usage");
        world.stop(&by("z", &later)).await.is_created();
        world.update(&update).await.is_replayed();
    }
}

/// What else refuses a half refuses both, as the table of events shows.
#[tokio::test]
async fn an_update_of_which_a_half_has_the_id_of_another_event_keeps_nothing() {
    let begin = halves(&moved(NOW)).1;
    for (name, value) in [
        ("timestamp", json!(NOW - HOUR)),
        ("measured_usage", json!([])),
    ] {
        let event = with(&begin, name, value);
        let (world, first) = used().await;
        world.start(&event).await.is_created();
        let answer = world.update(&moved(NOW)).await;
        answer.names(409, "id-taken", &[&format!("#/{name}")]);
        world.assert_kept(&[(&first, None), (&event, None)]);
    }
}

/// A start of its own says nothing of a stop.
#[tokio::test]
async fn an_update_of_which_the_start_alone_is_kept_is_refused_for_its_stop() {
    let world = World::new();
    let (_, begin) = halves(&moved(NOW));
    world.start(&begin).await.is_created();
    let answer = world.update(&moved(NOW)).await;
    answer.names(422, "no-open-span", &[]);
    assert_eq!(answer.json().get("stopped"), None);
    world.clock.set(NOW + 2 * PAST);
    let answer = world.update(&moved(NOW)).await;
    answer.names(422, "outside-slack", &["#/timestamp"]);
    world.assert_kept(&[(&begin, None)]);
}

/// What is kept under the id stays, and is billed: a start under another id would be billed, too.
#[tokio::test]
async fn an_update_whose_start_says_something_else_is_told_which_field() {
    let (end, begin) = halves(&moved(NOW));
    for (name, value) in [("timestamp", json!(NOW + 1)), ("measured_usage", json!([]))] {
        let (world, first) = used().await;
        let other = with(&begin, name, value);
        world.stop(&end).await.is_created();
        world.start(&other).await.is_created();
        let answer = world.update(&moved(NOW)).await;
        answer.names(409, "id-taken", &[&format!("#/{name}")]);
        says_that_the_stop_was_kept(&answer);
        world.assert_kept(&[(&first, Some(&end)), (&other, None)]);
    }
    // The update was kept as a whole, and is sent again with other quantities.
    let (world, first) = used().await;
    world.update(&moved(NOW)).await.is_created();
    let other = with(&moved(NOW), "measured_usage", json!([]));
    let answer = world.update(&other).await;
    answer.names(409, "id-taken", &["#/measured_usage"]);
    says_that_the_stop_was_kept(&answer);
    world.assert_kept(&[(&first, Some(&end)), (&begin, None)]);
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

/// The slack is that of the time at which the repeat comes.
#[tokio::test]
async fn a_half_that_is_kept_is_told_with_whatever_refuses_the_other_one() {
    let (world, first) = used().await;
    let update = moved(NOW);
    let (end, begin) = halves(&update);
    world.stop(&end).await.is_created();
    for now in [NOW + PAST + 1, NOW - FUTURE - 1] {
        world.clock.set(now);
        let answer = world.update(&update).await;
        answer.names(422, "outside-slack", &["#/timestamp"]);
        says_that_the_stop_was_kept(&answer);
    }
    world.clock.set(NOW);
    let other = by("other", &with(&begin, "timestamp", NOW - HOUR));
    world.start(&other).await.is_created();
    let answer = world.update(&update).await;
    answer.names(409, "open-span", &[]);
    says_that_the_stop_was_kept(&answer);
    let later = without(&with(&other, "timestamp", NOW + HOUR), "measured_usage");
    world.stop(&later).await.is_created();
    let answer = world.update(&update).await;
    answer.names(422, "overlapping-start", &["#/timestamp"]);
    says_that_the_stop_was_kept(&answer);
    world.assert_kept(&[(&first, Some(&end)), (&other, Some(&later))]);
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

/// Somebody starts the new target between the halves, so the update cannot be completed now.
#[tokio::test]
async fn a_start_between_the_halves_is_told_without_denying_the_stop() {
    let world = Arc::new(World::new());
    let first = by("first", &start(NOW - HOUR));
    world.start(&first).await.is_created();
    let (end, begin) = halves(&moved(NOW));
    let other = by("other", &with(&begin, "timestamp", NOW - 1));
    let updating = halved(&world, &moved(NOW)).await;
    world.start(&other).await.is_created();
    world.store.release();
    let answer = updating.await.unwrap();
    for answer in [answer, world.update(&moved(NOW)).await] {
        answer.names(409, "open-span", &[]);
        says_that_the_stop_was_kept(&answer);
    }
    // Once the way is free the repeat completes it.
    let other_end = without(&with(&other, "timestamp", NOW), "measured_usage");
    world.stop(&other_end).await.is_created();
    world.update(&moved(NOW)).await.is_created();
    world.update(&moved(NOW)).await.is_replayed();
    let kept = world.kept();
    for span in [(first, Some(end)), (begin, None)] {
        assert!(kept.contains(&span), "{kept:?}");
    }
}

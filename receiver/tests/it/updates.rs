//! Updates: the previous span stops and the new one starts, both or neither. The table of events has most
//! answers, and the model each order in which the steps of two updates can come.

use std::sync::Arc;

use sampler_domain::Timestamp;
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

/// An index of the original would refuse the start for good, once the stop is kept.
#[tokio::test]
async fn an_id_that_another_target_has_beside_an_original_refuses_the_update_as_a_whole() {
    for update in [resized("u", NOW), moved(NOW)] {
        let (world, first) = used().await;
        world.store.set_behaviour(Behaviour::TakenElsewhere);
        world.update(&update).await.names(409, "id-taken", &[]);
        world.assert_kept(&[(&first, None)]);
    }
}

/// A complete span is removed some time after its end, and the new one runs on.
#[tokio::test]
async fn an_update_whose_previous_span_is_removed_is_repeated() {
    for update in [resized("u", NOW), moved(NOW)] {
        let (world, _) = used().await;
        world.update(&update).await.is_created();
        let new = world.spans()[1].clone();
        let world = World::new();
        world.store.memory.insert_original(new);
        let (_, begin) = halves(&update);
        for now in [NOW, NOW + 2 * PAST] {
            world.clock.set(now);
            world.update(&update).await.is_replayed();
            world.assert_kept(&[(&begin, None)]);
        }
    }
    // A start of its own says nothing of a stop.
    let world = World::new();
    let (_, begin) = halves(&moved(NOW));
    world.start(&begin).await.is_created();
    world.clock.set(NOW + 2 * PAST);
    let answer = world.update(&moved(NOW)).await;
    answer.names(422, "outside-slack", &["#/timestamp"]);
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

fn says_that_the_stop_was_kept(answer: &Answer) {
    let detail = answer.any_problem()["detail"].to_string();
    assert!(detail.contains("was stopped by this update"), "{detail}");
    for wrong in ["not kept", "Nothing was kept", "send a start", "its start"] {
        assert!(!detail.contains(wrong), "{detail}");
    }
}

#[tokio::test]
async fn what_is_in_the_way_for_good_is_told_with_the_way_out() {
    let (world, first) = used().await;
    let update = moved(NOW);
    let (end, _) = halves(&update);
    world.stop(&end).await.is_created();
    for (now, behaviour, words, end) in [
        (
            NOW,
            Behaviour::TakenElsewhere,
            "Do not repeat the update",
            "an event with another id.",
        ),
        (
            NOW + PAST + 1,
            Behaviour::Served,
            "",
            "and a later timestamp.",
        ),
        (
            NOW - FUTURE - 1,
            Behaviour::Served,
            "",
            "with the same id later.",
        ),
    ] {
        world.clock.set(now);
        world.store.set_behaviour(behaviour);
        let answer = world.update(&update).await;
        answer.tells(409, "update-incomplete", &[words]);
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.ends_with(end), "{detail}");
    }
    world.assert_kept(&[(&first, Some(&end))]);
}

/// The start of the new target is missing, and another event has started it. What is advised bills each
/// hour of it once.
#[tokio::test]
async fn what_is_advised_to_an_update_that_is_halved_bills_once() {
    let (world, _) = used().await;
    let update = moved(NOW);
    let (end, begin) = halves(&update);
    world.stop(&end).await.is_created();
    let is_halved = async |words: &[&str]| {
        let answer = world.update(&update).await;
        answer.tells(409, "update-incomplete", words);
    };
    let other = by("other", &with(&begin, "timestamp", NOW - HOUR));
    world.start(&other).await.is_created();
    let at = format!("at {} at the latest", Timestamp::clamped(NOW));
    is_halved(&["nothing is to be done", &at]).await;
    let later = without(&with(&other, "timestamp", NOW + HOUR), "measured_usage");
    world.stop(&later).await.is_created();
    let until = format!("{} or a later", Timestamp::clamped(NOW + HOUR));
    is_halved(&["Do not repeat the update", &until]).await;
    let rest = by("rest", &with(&begin, "timestamp", NOW + HOUR));
    world.start(&rest).await.is_created();
    // Who repeats it all the same is not billed twice either.
    let is_late = format!("starts after {}, do not repeat", Timestamp::clamped(NOW));
    is_halved(&["nothing is to be done", &is_late]).await;
}

/// Each half would be taken for a half of the second one, and one use be billed twice, or never.
#[tokio::test]
async fn an_id_is_that_of_one_update_whatever_its_halves_have_in_common() {
    let other_target = with(&moved(NOW), "plan_id", "largest");
    let other_previous = with(&moved(NOW), "previous", json!({"plan_id": "a third"}));
    let no_previous = by("u", &start(NOW));
    for other in [other_target, other_previous, no_previous] {
        let (world, first) = used().await;
        let third = with(&start(NOW - HOUR), "plan_id", "a third");
        world.start(&third).await.is_created();
        world.update(&moved(NOW)).await.is_created();
        let (end, begin) = halves(&moved(NOW));
        let answer = world.update(&other).await;
        answer.names(409, "id-taken", &["#/previous"]);
        world.assert_kept(&[(&first, Some(&end)), (&third, None), (&begin, None)]);
        world.update(&moved(NOW)).await.is_replayed();
    }
}

/// Both see that nothing is kept under their id. Each stops the span that it comes from, and one of
/// them starts the span that both go to.
#[tokio::test]
async fn of_two_updates_under_one_id_to_one_target_one_is_kept() {
    let world = Arc::new(World::new());
    let first = by("first", &start(NOW - HOUR));
    let second = by("second", &with(&start(NOW - HOUR), "plan_id", "a third"));
    world.start(&first).await.is_created();
    world.start(&second).await.is_created();
    let slow = moved(NOW);
    let fast = with(&slow, "previous", json!({"plan_id": "a third"}));
    let (first_end, begin) = halves(&slow);
    let (second_end, _) = halves(&fast);
    let updating = halved(&world, &slow).await;
    world.update(&fast).await.is_created();
    world.store.release();
    let answer = updating.await.unwrap();
    // Its stop was kept, also by the account of a repeat.
    for answer in [answer, world.update(&slow).await] {
        answer.names(409, "id-taken", &["#/previous"]);
        says_that_the_stop_was_kept(&answer);
    }
    world.update(&fast).await.is_replayed();
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
    answer.tells(409, "update-incomplete", &["open-span"]);
    let again = world.update(&moved(NOW)).await;
    again.names(409, "update-incomplete", &[]);
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

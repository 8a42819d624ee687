//! Updates: the previous span stops and the new one starts, both or neither. The table of events has most
//! answers, and the model each order in which the steps of two updates can come.

use std::sync::Arc;

use sampler_domain::Timestamp;
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::event::{by, start, with, without};
use crate::store::Behaviour;
use crate::world::{FUTURE, HOUR, NOW, PAST, UPDATE, World, request};

/// A change of the quantities.
fn resize(at: i64) -> Value {
    let measures = json!([{"measure": "memory", "quantity": 4}]);
    by("u", &with(&start(at), "measured_usage", measures))
}

/// A change of the plan.
fn change(at: i64) -> Value {
    let event = by("u", &with(&start(at), "plan_id", "larger"));
    with(&event, "previous", json!({"plan_id": "large"}))
}

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
    for update in [resize(NOW), change(NOW)] {
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
    let begin = halves(&change(NOW)).1;
    for (event, pointer) in [
        (with(&begin, "timestamp", NOW - HOUR), "#/timestamp"),
        (
            with(&begin, "measured_usage", json!([])),
            "#/measured_usage",
        ),
    ] {
        let (world, first) = used().await;
        world.start(&event).await.is_created();
        let answer = world.update(&change(NOW)).await;
        answer.names(409, "id-taken", &[pointer]);
        world.assert_kept(&[(&first, None), (&event, None)]);
    }
}

/// An index of the original would refuse the start for good, once the stop is kept.
#[tokio::test]
async fn an_id_that_another_target_has_beside_an_original_refuses_the_update_as_a_whole() {
    for update in [resize(NOW), change(NOW)] {
        let (world, first) = used().await;
        world.store.set_behaviour(Behaviour::TakenElsewhere);
        world.update(&update).await.names(409, "id-taken", &[]);
        let answer = world.post("/v1/events/update?dry_run=true", &update).await;
        let foreseen = answer.json();
        assert_eq!(foreseen["would"], 409, "{foreseen:#}");
        world.assert_kept(&[(&first, None)]);
    }
}

/// A complete span is removed some time after its end, and the new one runs on.
#[tokio::test]
async fn an_update_whose_previous_span_is_removed_is_repeated() {
    for update in [resize(NOW), change(NOW)] {
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
    let (_, begin) = halves(&change(NOW));
    world.start(&begin).await.is_created();
    world.clock.set(NOW + 2 * PAST);
    let answer = world.update(&change(NOW)).await;
    answer.names(422, "outside-slack", &["#/timestamp"]);
}

/// What is kept under the id stays, and is billed: a start under another id would be billed, too.
#[tokio::test]
async fn an_update_whose_start_says_something_else_is_told_which_field() {
    let (end, begin) = halves(&change(NOW));
    for (name, value) in [("timestamp", json!(NOW + 1)), ("measured_usage", json!([]))] {
        let (world, first) = used().await;
        let other = with(&begin, name, value);
        world.stop(&end).await.is_created();
        world.start(&other).await.is_created();
        let answer = world.update(&change(NOW)).await;
        answer.names(409, "id-taken", &[&format!("#/{name}")]);
        says_that_the_stop_was_kept(&answer);
        world.assert_kept(&[(&first, Some(&end)), (&other, None)]);
    }
    // The update was kept as a whole, and is sent again with other quantities.
    let (world, first) = used().await;
    world.update(&change(NOW)).await.is_created();
    let other = with(&change(NOW), "measured_usage", json!([]));
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
    let update = change(NOW);
    let (end, _) = halves(&update);
    world.stop(&end).await.is_created();
    let detail = async |behaviour| {
        world.store.set_behaviour(behaviour);
        let answer = world.update(&update).await;
        let problem = answer.problem(409, "update-incomplete");
        problem["detail"].as_str().unwrap().to_owned()
    };
    let taken = detail(Behaviour::TakenElsewhere).await;
    assert!(taken.ends_with("an event with another id."), "{taken}");
    assert!(taken.contains("Do not repeat the update"), "{taken}");
    world.clock.set(NOW + PAST + 1);
    let late = detail(Behaviour::Served).await;
    assert!(late.ends_with("and a later timestamp."), "{late}");
    world.clock.set(NOW - FUTURE - 1);
    let early = detail(Behaviour::Served).await;
    assert!(early.ends_with("with the same id later."), "{early}");
    world.assert_kept(&[(&first, Some(&end))]);
}

/// The start of the new target is missing, and another event has started it. What is advised bills each
/// hour of it once.
#[tokio::test]
async fn what_is_advised_to_an_update_that_is_halved_bills_once() {
    let (world, _) = used().await;
    let update = change(NOW);
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
    is_halved(&["nothing is to be done"]).await;
}

/// Each half would be taken for a half of the second one, and one use be billed twice, or never.
#[tokio::test]
async fn an_id_is_that_of_one_update_whatever_its_halves_have_in_common() {
    let other_target = with(&change(NOW), "plan_id", "largest");
    let other_previous = with(&change(NOW), "previous", json!({"plan_id": "a third"}));
    let no_previous = by("u", &start(NOW));
    for other in [other_target, other_previous, no_previous] {
        let (world, first) = used().await;
        let third = with(&start(NOW - HOUR), "plan_id", "a third");
        world.start(&third).await.is_created();
        world.update(&change(NOW)).await.is_created();
        let (end, begin) = halves(&change(NOW));
        let foreseen = world.post(&format!("{UPDATE}?dry_run=true"), &other).await;
        let foreseen = foreseen.json();
        assert_eq!(foreseen["would"], 409, "{foreseen:#}");
        let answer = world.update(&other).await;
        answer.names(409, "id-taken", &["#/previous"]);
        world.assert_kept(&[(&first, Some(&end)), (&third, None), (&begin, None)]);
        world.update(&change(NOW)).await.is_replayed();
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
    let slow = change(NOW);
    let fast = with(&slow, "previous", json!({"plan_id": "a third"}));
    let (first_end, begin) = halves(&slow);
    let (second_end, _) = halves(&fast);
    world.store.set_behaviour_after_next_stop(Behaviour::Held);
    let updating = world.begin(request(UPDATE, change(NOW).to_string()));
    world.store.wait_until_held(1).await;
    world.store.set_behaviour(Behaviour::Served);
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
    for update in [resize(NOW), change(NOW)] {
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
            assert_eq!(
                answer.header("idempotency-replayed").is_some(),
                behaviour == Behaviour::Lost
            );
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
    let (end, begin) = halves(&change(NOW));
    let other = by("other", &with(&begin, "timestamp", NOW - 1));
    world.store.set_behaviour_after_next_stop(Behaviour::Held);
    let updating = world.begin(request(UPDATE, change(NOW).to_string()));
    world.store.wait_until_held(1).await;
    // What the store holds back is not this start.
    world.store.set_behaviour(Behaviour::Served);
    world.start(&other).await.is_created();
    world.store.release();
    let answer = updating.await.unwrap();
    answer.tells(409, "update-incomplete", &["open-span"]);
    world
        .update(&change(NOW))
        .await
        .names(409, "update-incomplete", &[]);
    // Once the way is free the repeat completes it.
    let other_end = without(&with(&other, "timestamp", NOW), "measured_usage");
    world.stop(&other_end).await.is_created();
    world.update(&change(NOW)).await.is_created();
    world.update(&change(NOW)).await.is_replayed();
    let kept = world.kept();
    assert!(
        kept.contains(&(first, Some(end))) && kept.contains(&(begin, None)),
        "{kept:?}"
    );
}

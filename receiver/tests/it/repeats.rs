//! An `id` that comes again: with the same event, or with another.

use serde_json::{Value, json};

use crate::event::{TARGET, by, start, stop, with};
use crate::store::Behaviour;
use crate::world::{HOUR, NOW, PAST, START, World, request};

/// Long after all that is dated around [`NOW`] has left the slack.
const LONG_AFTER: i64 = NOW + 2 * PAST;

#[tokio::test]
async fn a_start_that_comes_again_is_told_so_at_any_later_time() {
    let world = World::new();
    let event = by("a", &start(NOW));
    let (end, next) = (stop(NOW + HOUR), start(NOW + HOUR));
    world.start(&event).await.is_created();
    world.start(&event).await.is_replayed();
    world.clock.set(NOW + PAST);
    world.start(&event).await.is_replayed();
    world.clock.set(NOW);
    world.stop(&end).await.is_created();
    world.start(&event).await.is_replayed();
    world.start(&next).await.is_created();
    world.start(&event).await.is_replayed();
    world.clock.set(LONG_AFTER);
    world.start(&event).await.is_replayed();
    world.assert_kept(&[(&event, Some(&end)), (&next, None)]);
}

#[tokio::test]
async fn a_stop_that_comes_again_is_told_so_at_any_later_time() {
    let world = World::new();
    let (event, end) = (start(NOW), by("z", &stop(NOW + HOUR)));
    let (next, next_end) = (start(NOW + HOUR), stop(NOW + 2 * HOUR));
    world.start(&event).await.is_created();
    world.stop(&end).await.is_created();
    world.stop(&end).await.is_replayed();
    // By its fields it could end this one as well.
    world.start(&next).await.is_created();
    world.stop(&end).await.is_replayed();
    world.clock.set(LONG_AFTER);
    world.stop(&end).await.is_replayed();
    world.clock.set(NOW);
    world.assert_kept(&[(&event, Some(&end)), (&next, None)]);
    world.stop(&next_end).await.is_created();
    world.stop(&end).await.is_replayed();
    world.clock.set(LONG_AFTER);
    world.stop(&end).await.is_replayed();
    world.assert_kept(&[(&event, Some(&end)), (&next, Some(&next_end))]);
}

#[tokio::test]
async fn start_and_stop_may_share_an_id_and_both_may_come_again() {
    let world = World::new();
    let (event, end) = (by("a", &start(NOW)), by("a", &stop(NOW)));
    world.start(&event).await.is_created();
    world.stop(&end).await.is_created();
    for now in [NOW, LONG_AFTER] {
        world.clock.set(now);
        world.start(&event).await.is_replayed();
        world.stop(&end).await.is_replayed();
    }
    world.assert_kept(&[(&event, Some(&end))]);
}

#[tokio::test]
async fn the_same_event_written_otherwise_is_the_same_event() {
    let world = World::new();
    let mut event = by("a", &start(NOW));
    event["measured_usage"][0]["quantity"] = json!({"a": [1, 2.5], "b": "x"});
    world.start(&event).await.is_created();
    let text = event.to_string();
    let (head, tail) = text.rsplit_once(",\"id\":\"a\"").unwrap();
    let reordered = format!("{{\"id\":\"\\u0061\",{}{tail}", &head[1..]);
    let spread = serde_json::to_string_pretty(&event).unwrap();
    let double = text.replace("[1,2.5]", "[1.0,25e-1]");
    let swapped = text.replace(r#"{"a":[1,2.5],"b":"x"}"#, r#"{"b":"x","a":[1,2.5]}"#);
    for written in [reordered, spread, double, swapped] {
        assert_ne!(written, text);
        world.send(request(START, written)).await.is_replayed();
    }
    world.assert_kept(&[(&event, None)]);
}

/// Every way in which a start may differ from another of its target, with the pointers to name.
fn other_starts(event: &Value) -> [(Value, Vec<&'static str>); 5] {
    let (timestamp, measures) = ("#/timestamp", "#/measured_usage");
    let later = with(event, "timestamp", NOW + 1);
    let earlier = with(event, "timestamp", NOW - 1);
    let fewer = with(event, "measured_usage", json!([]));
    let mut more = event.clone();
    more["measured_usage"][1]["quantity"] = json!("0.5");
    let all = with(&fewer, "timestamp", NOW + 1);
    [
        (later, vec![timestamp]),
        (earlier, vec![timestamp]),
        (fewer, vec![measures]),
        (more, vec![measures]),
        (all, vec![timestamp, measures]),
    ]
}

#[tokio::test]
async fn fault_4_a_start_with_an_id_of_another_is_refused_and_the_fields_are_named() {
    let world = World::new();
    let (event, end) = (by("a", &start(NOW)), stop(NOW + HOUR));
    world.start(&event).await.is_created();
    let refuse = async || {
        for (other, pointers) in other_starts(&event) {
            world.start(&other).await.names(409, "id-taken", &pointers);
        }
    };
    refuse().await;
    world.clock.set(LONG_AFTER);
    refuse().await;
    world.clock.set(NOW);
    world.assert_kept(&[(&event, None)]);
    world.stop(&end).await.is_created();
    refuse().await;
    world.assert_kept(&[(&event, Some(&end))]);
}

#[tokio::test]
async fn fault_4_a_stop_with_an_id_of_another_is_refused_and_ends_nothing() {
    let world = World::new();
    let (event, end) = (start(NOW), by("z", &stop(NOW + HOUR)));
    let next = start(NOW + HOUR);
    world.start(&event).await.is_created();
    world.stop(&end).await.is_created();
    world.start(&next).await.is_created();
    let later = with(&end, "timestamp", NOW + 2 * HOUR);
    for now in [NOW, LONG_AFTER] {
        world.clock.set(now);
        let answer = world.stop(&later).await;
        answer.names(409, "id-taken", &["#/timestamp"]);
    }
    world.assert_kept(&[(&event, Some(&end)), (&next, None)]);
}

/// Nobody can take an id away from somebody else's target, nor find out which ids that has.
#[tokio::test]
async fn the_same_id_on_another_target_is_another_event() {
    let world = World::new();
    let (event, end) = (by("a", &start(NOW)), by("a", &stop(NOW + HOUR)));
    world.start(&event).await.is_created();
    world.stop(&end).await.is_created();
    for name in TARGET {
        let (other, other_end) = (with(&event, name, "another"), with(&end, name, "another"));
        // A stop of a target that was not started says so, whatever others did with its id.
        world.stop(&other_end).await.problem(422, "no-open-span");
        world.start(&other).await.is_created();
        world.start(&other).await.is_replayed();
        world.stop(&other_end).await.is_created();
        world.stop(&other_end).await.is_replayed();
        // Outside the slack, where a known id answers otherwise than an unknown one.
        world.clock.set(LONG_AFTER);
        let unknown = with(&other, name, "a third");
        world.start(&unknown).await.problem(422, "outside-slack");
        let unknown = with(&other_end, name, "a third");
        world.stop(&unknown).await.problem(422, "outside-slack");
        world.clock.set(NOW);
    }
    assert_eq!(world.kept().len(), 1 + TARGET.len());
}

/// While the original's indexes forbid the id of another target, nothing is told of that.
#[tokio::test]
async fn an_id_that_an_index_of_an_original_forbids_is_refused_without_a_field() {
    let world = World::new();
    world.store.set_behaviour(Behaviour::TakenElsewhere);
    for answer in [
        world.start(&by("a", &start(NOW))).await,
        world.stop(&by("a", &stop(NOW))).await,
    ] {
        let problem = answer.problem(409, "id-taken");
        assert_eq!(problem.get("errors"), None, "{problem:#}");
    }
}

#[tokio::test]
async fn a_setting_takes_other_timestamps_and_measures_of_the_same_target_for_repeats() {
    let world = World::with(|options| options.settings.events.lenient_repeats = true);
    let (event, end) = (by("a", &start(NOW)), by("z", &stop(NOW + HOUR)));
    world.start(&event).await.is_created();
    for (other, _) in other_starts(&event) {
        world.start(&other).await.is_replayed();
    }
    world.assert_kept(&[(&event, None)]);
    world.stop(&end).await.is_created();
    for now in [NOW, LONG_AFTER] {
        world.clock.set(now);
        let later = with(&end, "timestamp", NOW + HOUR + 1);
        world.stop(&later).await.is_replayed();
        let fewer = with(&event, "measured_usage", json!([]));
        world.start(&fewer).await.is_replayed();
    }
    world.assert_kept(&[(&event, Some(&end))]);
}

#[tokio::test]
async fn the_id_of_what_was_refused_is_free() {
    let world = World::new();
    let (old, event) = (by("a", &start(NOW - PAST - 1)), by("a", &start(NOW)));
    world.start(&old).await.problem(422, "outside-slack");
    world.start(&event).await.is_created();
    let second = by("b", &start(NOW));
    world.start(&second).await.problem(409, "open-span");
    let second = with(&second, "plan_id", "another");
    world.start(&second).await.is_created();
    world.assert_kept(&[(&event, None), (&second, None)]);
}

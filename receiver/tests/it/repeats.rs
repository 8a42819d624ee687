//! An `id` that comes again: with the same event, or with another.

use serde_json::json;

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

/// Fault 4 of the original. The table of events has the differences; this is at any later time.
#[tokio::test]
async fn fault_4_the_id_of_another_event_is_refused_at_any_later_time() {
    for lenient in [false, true] {
        let world = World::with(|options| options.settings.events.lenient_repeats = lenient);
        let (event, end) = (by("a", &start(NOW)), by("z", &stop(NOW + HOUR)));
        let next = start(NOW + HOUR);
        world.start(&event).await.is_created();
        world.stop(&end).await.is_created();
        world.start(&next).await.is_created();
        let (later, fewer) = (
            with(&end, "timestamp", NOW + 2 * HOUR),
            with(&event, "measured_usage", json!([])),
        );
        for now in [NOW, LONG_AFTER] {
            world.clock.set(now);
            let answers = [world.stop(&later).await, world.start(&fewer).await];
            for (answer, pointer) in answers.iter().zip(["#/timestamp", "#/measured_usage"]) {
                if lenient {
                    answer.is_replayed();
                } else {
                    answer.names(409, "id-taken", &[pointer]);
                }
            }
        }
        world.assert_kept(&[(&event, Some(&end)), (&next, None)]);
    }
}

//! An `id` that comes again: with the same event, or with another.

use serde_json::json;

use crate::event::{TARGET, by, start, stop, with};
use crate::store::Behaviour;
use crate::world::{HOUR, NOW, PAST, START, World, request};

/// Long after all that is dated around [`NOW`] has left the slack.
pub(crate) const LONG_AFTER: i64 = NOW + 2 * PAST;

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

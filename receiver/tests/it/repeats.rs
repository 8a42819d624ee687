//! An `id` that comes again: with the same event, or with another.

use serde_json::json;

use crate::event::{by, start};
use crate::world::{NOW, PAST, START, World, request};

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

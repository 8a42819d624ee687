//! The limits of a batch and of its answer.

use serde_json::{Value, json};

use super::{CLOUD_EVENTS, NDJSON, Typed, lines, list, many, results, statuses, typed};
use crate::bodies::{gzip, zipped};
use crate::world::{EVENTS, World, request, request_as};

#[tokio::test]
async fn a_thousand_events_are_taken_and_of_more_none_is() {
    for media_type in ["application/json", NDJSON, CLOUD_EVENTS] {
        let write = |events: &[Typed]| {
            if media_type == NDJSON {
                lines(events)
            } else {
                list(events)
            }
        };
        let world = World::new();
        let send = async |count: usize| {
            let body = write(&many(count));
            world.send(request_as(media_type, EVENTS, body)).await
        };
        send(1_001).await.names(413, "payload-too-large", &[]);
        assert_eq!(world.store.calls(), 0);
        let answer = send(1_000).await;
        let expected = if media_type == CLOUD_EVENTS { 400 } else { 201 };
        assert_eq!(statuses(&answer), [expected; 1_000]);
    }
}

#[tokio::test]
async fn a_batch_of_too_many_bytes_is_refused_and_one_at_the_limit_is_taken() {
    let world = World::new();
    let body = list(&many(5));
    let padded = |length: usize| format!("{body}{}", " ".repeat(length - body.len()));
    let answer = world.send(request(EVENTS, padded((4 << 20) + 1))).await;
    answer.names(413, "payload-too-large", &[]);
    let zipped = |body: String| zipped(EVENTS, gzip(body.as_bytes()));
    let answer = world.send(zipped(padded((4 << 20) + 1))).await;
    answer.names(413, "payload-too-large", &[]);
    assert_eq!(world.store.calls(), 0);
    // The largest batch that may be sent at all, and what it was decompressed from, fit together.
    let answer = world.send(zipped(padded(4 << 20))).await;
    assert_eq!(statuses(&answer), [201; 5]);
}

/// Its time limits do not pass while it works.
#[tokio::test(start_paused = true)]
async fn the_answer_is_bounded_however_much_is_wrong() {
    let world = World::new();
    let measures = vec![json!({}); 100];
    let event = typed(&("start", json!({ "measured_usage": measures })));
    let named = |result: &Value| result["problem"]["errors"].as_array().unwrap().len();
    for (count, each) in [(1, 100), (100, 100), (1_000, 10)] {
        let events = Value::from_iter(vec![event.clone(); count]);
        let answer = world.post(EVENTS, &events).await;
        assert!(results(&answer).iter().all(|result| named(result) == each));
    }
}

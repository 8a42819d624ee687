//! What a start is kept as, and what settings and the clock change. The table of events has the answers.

use sampler_domain::{Interval, SpanId, Timestamp};

use crate::event::{by, start, stop};
use crate::world::{DAY, FUTURE, HOUR, NOW, PAST, World};

#[tokio::test]
async fn a_start_is_kept_as_a_span_that_nobody_has_sampled_yet() {
    let world = World::new();
    let event = by("a start", &start(NOW - HOUR));
    world.start(&event).await.is_created();
    world.assert_kept(&[(&event, None)]);
    let documents = world.documents();
    let span = &documents[0].span;
    let moment = Timestamp::clamped(NOW - HOUR);
    assert_eq!(span.processing.last, Interval::at(moment));
    assert_eq!(span.processing.planned, None);
    assert_eq!(span.processing.version, 1);
    assert!(!span.processing.complete);
    assert_eq!(span.id, SpanId::new(Timestamp::clamped(NOW), 0));
    // The policy samples by the day.
    assert_eq!(span.processing.due_at, Timestamp::clamped(NOW));
    // Its stop makes it due earlier, and shuts out a change that a worker has decided before.
    let end = stop(NOW - 1);
    world.stop(&end).await.is_created();
    world.assert_kept(&[(&event, Some(&end))]);
    let mut expected = span.processing.clone();
    expected.due_at = Timestamp::clamped(NOW - 1);
    expected.version = 2;
    assert_eq!(world.spans()[0].processing, expected);
}

#[tokio::test]
async fn the_slack_is_that_of_the_time_when_an_event_arrives() {
    let world = World::new();
    let event = start(NOW - PAST);
    world.start(&event).await.is_created();
    world.clock.set(NOW + DAY);
    for beyond in [NOW + DAY - PAST - 1, NOW + DAY + FUTURE + 1] {
        let answer = world.stop(&stop(beyond)).await;
        answer.names(422, "outside-slack", &["#/timestamp"]);
    }
    let end = stop(NOW + DAY + FUTURE);
    world.stop(&end).await.is_created();
    world.assert_kept(&[(&event, Some(&end))]);
}

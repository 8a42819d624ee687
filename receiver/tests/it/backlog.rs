//! What waits for the workers, as it is shown.

use sampler_domain::Timestamp;
use sampler_store::{Backlog, ClosingBacklog, Operating};
use serde_json::json;

use crate::event;
use crate::world::{DAY, HOUR, NOW, World};

#[tokio::test]
async fn where_no_worker_counts_a_receiver_does() {
    let world = World::new();
    let nothing = json!({
        "due": 0, "at_least": false, "oldest": null, "suspended": 0, "rate": 0, "closing": null,
    });
    // The month has begun two days ago.
    assert_eq!(world.read("/v1/backlog").await, nothing);
    let start = NOW - DAY - HOUR - 500;
    world.start(&event::start(start)).await.is_created();
    world.clock.set(NOW + 10_000);
    let due = NOW - DAY;
    let expected = json!({
        "due": 1, "at_least": false, "oldest": due, "suspended": 0, "rate": 0,
        "closing": null,
    });
    assert_eq!(world.read("/v1/backlog").await, expected);
}

#[tokio::test]
async fn what_a_worker_has_counted_is_shown_as_long_as_it_is_recent() {
    let world = World::new();
    let counted = Backlog {
        due: 1_200,
        at_least: true,
        oldest: Some(Timestamp::clamped(NOW - HOUR)),
        suspended: 3,
        rate: 5_012.3,
        closing: None,
        cost: 0,
    };
    world.store.memory.publish_backlog(&counted).await.unwrap();
    let expected = json!({
        "due": 1_200, "at_least": true, "oldest": NOW - HOUR, "suspended": 3,
        "rate": 5_012.3, "closing": null,
    });
    assert_eq!(world.read("/v1/backlog").await, expected);
    world.clock.set(NOW + 60_000);
    assert_eq!(world.read("/v1/backlog").await["due"], 0);
}

#[tokio::test]
async fn while_a_month_closes_it_is_told_what_is_left() {
    let world = World::new();
    // 2018-08-01T00:05 UTC.
    let august = NOW - 2 * DAY;
    world.clock.set(august + 300_000);
    let counted = Backlog {
        closing: Some(ClosingBacklog {
            start: Timestamp::clamped(august - 31 * DAY),
            end: Timestamp::clamped(august),
            spans: 1_200,
        }),
        ..Backlog::default()
    };
    world.store.memory.publish_backlog(&counted).await.unwrap();
    let expected = json!({ "month": "2018-07", "left": 1_200, "closes_at": august + 600_000 });
    assert_eq!(world.read("/v1/backlog").await["closing"], expected);
    world.clock.set(august + 601_000);
    world.store.memory.publish_backlog(&counted).await.unwrap();
    assert_eq!(world.read("/v1/backlog").await["closing"], json!(null));
}

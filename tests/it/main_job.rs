//! Events go in, usages come out, and the difference is zero.

use sampler_testkit::build::{start_event, stop_event, with};
use sampler_testkit::{now_millis, wait_until};

use crate::landscape::{DAY, HOUR, Landscape, MINUTE, PATIENCE, until_ready};

#[tokio::test(flavor = "multi_thread")]
async fn spans_are_billed_for_what_they_lasted_to_the_millisecond() {
    let world = Landscape::new("main_job").await;
    let receiver = world.receiver().start().await.unwrap();
    let worker = world.worker().start().await.unwrap();
    until_ready(&world.http, &receiver).await;
    let now = now_millis();
    let lengths = [0, 1, MINUTE + 17, HOUR, 5 * HOUR + 3, 3 * DAY + 4_321];
    for (target, length) in (0..).zip(lengths) {
        let start = now - 4 * DAY - 7;
        let id = format!("id-{target}");
        let event = with(start_event(target, start), "id", id.as_str());
        world.take(&receiver, "/v1/events/start", &event).await;
        let event = with(stop_event(target, start + length), "id", id.as_str());
        world.take(&receiver, "/v1/events/stop", &event).await;
    }
    world.until_complete(lengths.len() as u64).await;
    for (target, length) in lengths.iter().enumerate() {
        assert_eq!(
            world.billed(&format!("instance-{target}")),
            i128::from(*length)
        );
    }
    assert!(
        world
            .abacus
            .counted()
            .iter()
            .all(|counted| counted.usage.duration() != 0)
    );
    let counted = world.abacus.counted_count();
    assert_eq!(world.assert_ledger().await as u64, counted);
    // All of it is complete, so all of it expires.
    let usages = world.usages().await;
    wait_until("all entries expire", PATIENCE, async || {
        let lasting = bson::doc! { "expires_at": { "$exists": false } };
        usages.count_documents(lasting).await.unwrap() == 0
    })
    .await;
    drop(worker);
}

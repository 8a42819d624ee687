//! Taking the place of the original Sampler in its own collection, while it still runs: the steps
//! of `docs/migration.md`, each with its check, and the way back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bson::{Bson, doc};
use sampler_testkit::abacus::Fault;
use sampler_testkit::build::{start_event, stop_event};
use sampler_testkit::{now_millis, wait_until};

use crate::landscape::{DAY, HOUR, Landscape, MINUTE, PATIENCE, until_ready};
use crate::original::Original;

/// The steps of the document, one after the other, and all the way back.
#[tokio::test(flavor = "multi_thread")]
async fn a_landscape_moves_to_us_and_back_again_and_every_bill_is_right() {
    let world = Landscape::new("migration").await;
    let original = Arc::new(Original::install(&world).await);
    let start = now_millis() - 9 * HOUR - 7;
    let end = start + 3 * HOUR + MINUTE;
    for target in 0..30 {
        original.start(target, start).await;
    }
    // Both receivers write, the original's worker samples what both have written.
    let receiver = world.receiver().start().await.unwrap();
    until_ready(&world.http, &receiver).await;
    for target in 30..40 {
        world
            .take(&receiver, "/v1/events/start", &start_event(target, start))
            .await;
    }
    for target in 0..5 {
        world
            .take(&receiver, "/v1/events/stop", &stop_event(target, end))
            .await;
    }
    for target in (5..10).chain(30..35) {
        original.stop(target, end).await;
    }
    for _ in 0..5 {
        original.poll().await;
    }
    assert_eq!(
        world.spans().await.count_documents(doc! {}).await.unwrap(),
        40
    );

    // Both workers sample, until the original's is stopped.
    let over = Arc::new(AtomicBool::new(false));
    let polling = tokio::spawn({
        let (original, over) = (Arc::clone(&original), Arc::clone(&over));
        async move {
            while !over.load(Ordering::Relaxed) {
                original.poll().await;
            }
        }
    });
    let worker = world.worker().start().await.unwrap();
    until_taken_in(&world).await;
    over.store(true, Ordering::Relaxed);
    polling.await.unwrap();
    world.until_complete(15).await;
    for target in 10..15 {
        world
            .take(&receiver, "/v1/events/stop", &stop_event(target, end))
            .await;
    }
    world.until_complete(20).await;

    // The worker dies with usages that Abacus has and it does not know of; then all goes back.
    world.abacus.fault(Fault::lose_answer());
    for target in 15..20 {
        world
            .take(&receiver, "/v1/events/stop", &stop_event(target, end))
            .await;
    }
    wait_until("usages were sent in vain", PATIENCE, async || {
        let planned = doc! { "processing.attempts": { "$gt": 0 } };
        world.spans().await.count_documents(planned).await.unwrap() == 5
    })
    .await;
    worker.kill().unwrap();
    receiver.sigterm().unwrap();
    assert_eq!(receiver.wait_exit(PATIENCE).await.unwrap(), 0);
    world.abacus.clear_faults();
    for target in (20..30).chain(35..40) {
        original.stop(target, end).await;
    }
    original.start(40, end).await;
    original.stop(40, end + DAY / 24).await;
    original.poll_until_done().await;
    let complete = doc! { "processing.complete": true };
    assert_eq!(
        world.spans().await.count_documents(complete).await.unwrap(),
        41
    );
    for target in 0..40 {
        let billed = world.billed(&format!("instance-{target}"));
        assert_eq!(billed, i128::from(end - start), "{target}");
    }
    assert_eq!(world.billed("instance-40"), i128::from(HOUR));
    let entries = world.assert_ledger().await;
    assert!(entries > 0, "we have sampled some of it");
}

/// The check of the step in which the spans are taken in.
async fn until_taken_in(world: &Landscape) {
    let spans = world.spans().await;
    wait_until("all spans are taken in", PATIENCE, async || {
        let left = doc! { "processing.complete": false, "processing.partition": Bson::Null };
        let indexed = spans
            .list_index_names()
            .await
            .unwrap()
            .contains(&"search_due".to_owned());
        indexed
            && spans
                .count_documents(left)
                .hint(mongodb::options::Hint::Name("search_due".to_owned()))
                .await
                .unwrap()
                == 0
    })
    .await;
}

//! Spans with large measures.

use std::time::Duration;

use sampler_domain::{Measure, Measures, Quantity};

use crate::world::{HOUR, World};

/// Measures with so many bytes of text.
fn text(bytes: usize) -> Measures {
    let quantity = Quantity::new("x".repeat(bytes).into()).unwrap();
    Measures::from_store(vec![Measure::new("m", quantity).unwrap()])
}

/// Samples five spans of this size; says how many of them were posted at once.
async fn posted_at_once(bytes: usize) -> usize {
    let world = World::new();
    for number in 0..5 {
        let instance = format!("{number}");
        world.start_with(&instance, -HOUR, text(bytes)).await;
    }
    *world.abacus.latency.lock().unwrap() = Duration::from_secs(1);
    let worker = world.run("w");
    world
        .until("all are sampled", || world.abacus.post_count() == 5)
        .await;
    worker.stop().await;
    *world.abacus.most_in_flight.lock().unwrap()
}

#[tokio::test(start_paused = true)]
async fn large_spans_are_driven_one_after_the_other_and_small_ones_side_by_side() {
    assert_eq!(posted_at_once(1 << 10).await, 4);
    assert_eq!(posted_at_once(3 << 19).await, 2);
    assert_eq!(posted_at_once(9 << 19).await, 1);
}

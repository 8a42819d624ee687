//! Any number of workers on one store.

use std::time::Duration;

use crate::world::{HOUR, World};

/// Fault 11 of the original: every worker read the same first spans.
#[tokio::test(start_paused = true)]
async fn fault_11_workers_share_the_spans_and_post_each_usage_once() {
    let world = World::new();
    *world.abacus.latency.lock().unwrap() = Duration::from_millis(500);
    let workers: Vec<_> = (0..4)
        .map(|number| world.run(&format!("w{number}")))
        .collect();
    // All know of each other before there is anything to do.
    world.pass(6_000).await;
    for number in 0..100 {
        world.start(&format!("{number}"), -5 * HOUR).await;
    }
    world
        .until("all are through", || {
            (0..100).all(|number| world.abacus.sum(&format!("{number}")) == 5 * HOUR)
        })
        .await;
    assert_eq!(world.abacus.post_count(), 500);
    assert!(
        *world.abacus.most_in_flight.lock().unwrap() > 8,
        "more than two workers post"
    );
    for worker in workers {
        worker.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_partitions_of_a_worker_that_died_are_taken_over() {
    let world = World::new();
    let dead = world.run("a");
    let alive = world.run("b");
    world.pass(6_000).await;
    dead.kill();
    for number in 0..50 {
        world.start(&format!("{number}"), -HOUR).await;
    }
    world
        .until("all are through", || {
            (0..50).all(|number| world.abacus.sum(&format!("{number}")) == HOUR)
        })
        .await;
    assert!(world.began.elapsed() < Duration::from_mins(1));
    alive.stop().await;
}

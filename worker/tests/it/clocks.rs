//! One clock decides, the database's. The machine's is not asked, and the upstream's only warns.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use sampler_service::environment::Clock;
use sampler_store::StoreError;
use sampler_store_testing::faulty::{Fault, FaultyStore};
use sampler_worker::{Parts, ReportProgress};

use crate::world::{DAY, HOUR, MINUTE, NOON, World, options, run_with};

const SECOND: i64 = 1_000;

/// Counts signs of life.
#[derive(Default)]
pub(crate) struct ReportCount(pub(crate) AtomicUsize);

impl ReportProgress for ReportCount {
    fn report(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_wrong_or_steps_neither_hurries_nor_delays() {
    for step in [3 * HOUR, -3 * HOUR, 800 * DAY] {
        let world = World::new();
        world.clock.step(step);
        world.start("i", -HOUR).await;
        let worker = world.run("w");
        world.pass(59 * MINUTE).await;
        assert_eq!(world.abacus.sum("i"), HOUR, "{step}: not over yet");
        world.clock.step(-step);
        world.pass(59 * SECOND).await;
        assert_eq!(world.abacus.sum("i"), HOUR, "{step}: not over yet");
        world.pass(10 * SECOND).await;
        assert_eq!(world.abacus.sum("i"), 2 * HOUR, "{step}: over");
        worker.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_begun_before_the_first_heartbeat() {
    let world = World::new();
    world.clock.step(DAY);
    world.start("i", -HOUR).await;
    let is_away = Arc::new(AtomicBool::new(true));
    let away = Arc::clone(&is_away);
    let faults = move |method: &str, _: String| {
        let fails = method == "heartbeat" && away.load(Ordering::Relaxed);
        fails.then(|| Fault::NotDone(StoreError::Unavailable("nobody answers".into())))
    };
    let parts = Parts {
        work: FaultyStore::new(world.store.clone(), faults),
        ..world.parts()
    };
    let worker = run_with(parts, options("w"));
    world.pass(10 * MINUTE).await;
    assert_eq!(world.abacus.post_count(), 0);
    is_away.store(false, Ordering::Relaxed);
    world.pass(10 * SECOND).await;
    assert_eq!(world.abacus.sum("i"), HOUR);
    worker.stop().await;
}

/// While it slept, time went on.
#[tokio::test(start_paused = true)]
async fn a_machine_that_has_slept_begins_nothing_before_the_next_heartbeat() {
    let world = World::new();
    let worker = world.run("w");
    world.pass(12 * SECOND).await;
    world.clock.step(HOUR);
    world.start("i", -HOUR).await;
    world.pass(2 * SECOND).await;
    assert_eq!(world.abacus.post_count(), 0);
    world.pass(5 * SECOND).await;
    assert_eq!(world.abacus.sum("i"), HOUR);
    worker.stop().await;
}

/// What a cache or one wrong gateway says is outvoted; nothing stops by what all say.
#[tokio::test(start_paused = true)]
async fn an_upstream_with_another_clock_is_told_of_and_gets_its_usages() {
    let world = World::new();
    world.abacus.date(|now| Some(now.plus(-DAY)));
    world.start("i", -5 * HOUR).await;
    let worker = world.run("w");
    world.pass(MINUTE).await;
    assert_eq!(world.abacus.sum("i"), 5 * HOUR);
    assert!(worker.worker.clocks_differ());
    world.abacus.date(Some);
    world.pass(3 * HOUR).await;
    assert!(!worker.worker.clocks_differ());
    let now = worker.worker.clock().now();
    assert_eq!(now, NOON.plus(3 * HOUR + MINUTE));
    worker.stop().await;
}

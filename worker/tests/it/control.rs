//! Pauses of sampling, what workers tell of the backlog, and the controller of starts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use sampler_domain::{Control, ControllerSettings, SamplingControl};
use sampler_store::{Backlog, ControllerState, Operating, Published};
use sampler_store_testing::faulty::{Fault, Faults, FaultyStore};

use crate::world::{HOUR, MINUTE, World, options, run_with};

fn paused(paused: bool) -> Control {
    Control {
        sampling: SamplingControl { paused },
        ..Control::default()
    }
}

impl World {
    async fn set(&self, control: &Control) {
        let version = self.store.control().await.unwrap().version;
        assert!(self.store.set_control(control, version).await.unwrap());
    }

    async fn published_backlog(&self) -> Published<Backlog> {
        self.store.published_backlog().await.unwrap().unwrap()
    }

    async fn controller(&self) -> Option<ControllerState> {
        let published = self.store.controller().await.unwrap();
        published.map(|published| published.value)
    }
}

#[tokio::test(start_paused = true)]
async fn while_sampling_is_paused_what_is_in_flight_is_finished_and_nothing_is_begun() {
    let world = World::new();
    *world.abacus.latency.lock().unwrap() = Duration::from_secs(1);
    world.start_all("i", 20, -5 * HOUR).await;
    let worker = world.run("w");
    world
        .until("it posts", || world.abacus.post_count() > 4)
        .await;
    world.set(&paused(true)).await;
    world.pass(5_000).await;
    let posts = world.abacus.post_count();
    assert_eq!(world.entries().len(), posts, "what was posted is noted");
    world.assert_ledger();
    world.pass(30 * MINUTE).await;
    assert_eq!(world.abacus.post_count(), posts);
    world.set(&paused(false)).await;
    world.pass(5_000).await;
    assert!(
        world.abacus.post_count() > posts,
        "it continues within five seconds"
    );
    world.until_billed("i", 20, 5 * HOUR).await;
    world.assert_ledger();
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_starts_during_a_pause_begins_nothing() {
    let world = World::new();
    world.set(&paused(true)).await;
    world.start("a", -5 * HOUR).await;
    let worker = world.run("w");
    world.pass(10 * MINUTE).await;
    assert_eq!(world.abacus.post_count(), 0);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn one_worker_counts_for_all_and_another_when_that_one_dies() {
    let world = World::new();
    world.set(&paused(true)).await;
    let mut workers = vec![world.run("a"), world.run("b")];
    world.pass(10_000).await;
    world.start_all("i", 3, -HOUR).await;
    world.pass(5_000).await;
    assert_eq!(world.published_backlog().await.value.due, 3);
    workers.remove(0).kill();
    world.start("another", -HOUR).await;
    world.pass(30_000).await;
    let published = world.published_backlog().await;
    assert_eq!(published.value.due, 4);
    assert!(published.age < 5_000);
}

#[tokio::test(start_paused = true)]
async fn the_rate_is_how_fast_workers_are_while_they_have_something_to_do() {
    let world = World::new();
    *world.abacus.latency.lock().unwrap() = Duration::from_millis(500);
    world.start_all("i", 40, -10 * HOUR).await;
    let worker = world.run("w");
    world.pass(30_000).await;
    let rate = world.published_backlog().await.value.rate;
    // Four posts at once, each of half a second.
    assert!((6.0..9.0).contains(&rate), "{rate}");
    worker.stop().await;
}

fn controlled(target_seconds: f64) -> Control {
    Control {
        controller: ControllerSettings {
            enabled: true,
            target_seconds,
            ..ControllerSettings::default()
        },
        ..Control::default()
    }
}

#[tokio::test(start_paused = true)]
async fn the_controller_makes_a_step_each_minute_whoever_makes_it() {
    let world = World::new();
    world.set(&controlled(600.0)).await;
    let mut workers = vec![world.run("a"), world.run("b"), world.run("c")];
    world.pass(10 * MINUTE + 10_000).await;
    let version = async || {
        let state = world.controller().await;
        state.map_or(0, |state| state.version)
    };
    let steps = version().await;
    assert!((9..=11).contains(&steps), "{steps}");
    // Whichever of them made the steps dies, one after the other.
    workers.remove(0).kill();
    world.pass(5 * MINUTE).await;
    let later = version().await;
    assert!(later >= steps + 3, "{steps} {later}");
    workers.remove(0).kill();
    world.pass(5 * MINUTE).await;
    assert!(version().await >= later + 3);
}

#[tokio::test(start_paused = true)]
async fn a_backlog_beyond_the_target_turns_starts_away_and_it_goes_when_that_is_gone() {
    let world = World::new();
    *world.abacus.latency.lock().unwrap() = Duration::from_secs(2);
    world.set(&controlled(60.0)).await;
    world.start_all("i", 200, -10 * HOUR).await;
    let worker = world.run("w");
    world.pass(3 * MINUTE).await;
    let state = world.controller().await.unwrap();
    assert!(state.rate.get() < 1.0, "{state:?}");
    world.until_billed("i", 200, 10 * HOUR).await;
    world.pass(40 * MINUTE).await;
    let state = world.controller().await.unwrap();
    assert!(state.rate.get() >= 100.0, "{state:?}");
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_controller_with_wrong_parameters_is_off() {
    let world = World::new();
    world.set(&controlled(0.0)).await;
    let worker = world.run("w");
    world.pass(10 * MINUTE).await;
    assert!(world.controller().await.is_none());
    worker.stop().await;
}

/// Heartbeats that take so long, ms.
struct SlowHeartbeats(Arc<AtomicU64>);

#[async_trait]
impl Faults for SlowHeartbeats {
    async fn fault(&self, method: &'static str, _: String) -> Option<Fault> {
        if method == "heartbeat" {
            let took = self.0.load(Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(took)).await;
        }
        None
    }
}

#[tokio::test(start_paused = true)]
async fn sampling_pauses_while_heartbeats_are_slow_and_goes_on_below_the_lower_bound() {
    let world = World::new();
    let took = Arc::new(AtomicU64::new(0));
    let store = FaultyStore::new(Arc::clone(&world.store), SlowHeartbeats(Arc::clone(&took)));
    let mut parts = world.parts();
    parts.work = store;
    let worker = run_with(parts, options("w"));
    let heartbeats_take = async |millis: u64| {
        took.store(millis, Ordering::Relaxed);
        world.pass(20_000).await;
    };
    heartbeats_take(5_000).await;
    world.start("a", -HOUR).await;
    world.pass(5_000).await;
    assert_eq!(world.abacus.post_count(), 1);
    heartbeats_take(5_001).await;
    world.start("b", -HOUR).await;
    world.pass(MINUTE).await;
    heartbeats_take(1_001).await;
    world.pass(MINUTE).await;
    assert_eq!(world.abacus.post_count(), 1, "it stays below neither bound");
    // Stops are kept all the while.
    world.stop("b", 0).await;
    heartbeats_take(999).await;
    world.until("it continues", || world.is_complete("b")).await;
    assert_eq!(world.abacus.sum("b"), HOUR);
    worker.stop().await;
}

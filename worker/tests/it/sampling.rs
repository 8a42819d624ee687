//! What is billed in the end: end minus start.

use std::sync::atomic::Ordering;
use std::time::Duration;

use sampler_domain::{Measure, Measures, Quantity};
use sampler_store::Operating;
use sampler_worker::{Options, Periods};

use crate::world::{DAY, HOUR, MINUTE, World, options, run_with};

#[tokio::test(start_paused = true)]
async fn a_backlog_is_worked_off_without_waiting_for_the_next_poll() {
    let world = World::new();
    world.start("i", -30 * DAY).await;
    let worker = world.run("w");
    world
        .until("the backlog is gone", || world.abacus.post_count() == 720)
        .await;
    assert!(world.began.elapsed().as_secs() < 2);
    assert_eq!(world.abacus.sum("i"), 30 * DAY);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_open_span_is_billed_window_by_window_as_time_goes_on() {
    let world = World::new();
    world.start("i", -90 * MINUTE).await;
    let worker = world.run("w");
    world.pass(2 * HOUR + MINUTE).await;
    assert_eq!(world.abacus.durations("i").len(), 4);
    assert_eq!(world.abacus.sum("i"), 90 * MINUTE + 2 * HOUR);
    world.stop("i", 2 * HOUR + 30).await;
    world.until_complete("i").await;
    assert_eq!(world.abacus.sum("i"), 90 * MINUTE + 2 * HOUR + 30);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_late_stop_is_taken_back_at_once() {
    let world = World::new();
    world.start("i", -90 * MINUTE).await;
    let worker = world.run("w");
    world.pass(5 * HOUR + MINUTE).await;
    assert_eq!(world.abacus.sum("i"), 90 * MINUTE + 5 * HOUR);
    world.stop("i", -61 * MINUTE).await;
    world.until_complete("i").await;
    assert!(world.began.elapsed().as_secs() < 5 * 3_600 + 63);
    assert_eq!(world.abacus.sum("i"), 29 * MINUTE);
    let durations = world.abacus.durations("i").into_iter();
    assert_eq!(durations.filter(|duration| *duration < 0).count(), 7);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn completed_spans_are_removed_after_the_retention_and_no_others() {
    let world = World::new();
    for number in 0..25 {
        let instance = format!("{number}");
        world.start(&instance, -2 * HOUR).await;
        world.stop(&instance, -HOUR).await;
    }
    world.start("open", -2 * HOUR).await;
    let mut options = options("w");
    options.settings.cleanup.retention = Duration::from_hours(3);
    let worker = run_with(world.parts(), options);
    world.pass(2 * HOUR - MINUTE).await;
    assert_eq!(world.store.all().len(), 26);
    world.pass(2 * MINUTE).await;
    assert_eq!(world.store.all().len(), 1);
    worker.stop().await;
}

/// A worker with the usual periods, which keeps complete spans for so many hours.
fn keeping(name: &str, hours: u64) -> Options {
    let mut options = options(name);
    options.settings.cleanup.retention = Duration::from_hours(hours);
    options.periods = Periods::default();
    options
}

impl World {
    /// How long ago the time was since which receivers take events.
    async fn event_age(&self) -> i64 {
        let since = self.store.events_taken_since().await.unwrap();
        self.clock_now().since(since)
    }
}

#[tokio::test(start_paused = true)]
async fn receivers_know_for_ten_minutes_what_they_take_no_more_before_it_is_removed() {
    let world = World::new();
    for (instance, end) in [("older", -10 * HOUR), ("newer", -4 * HOUR)] {
        world.start(instance, end - HOUR).await;
        world.stop(instance, end).await;
    }
    let worker = run_with(world.parts(), keeping("w", 8));
    world.pass(10 * MINUTE - 10_000).await;
    assert_eq!(world.store.all().len(), 2);
    let age = world.event_age().await;
    assert!((7 * HOUR..7 * HOUR + 10 * MINUTE).contains(&age), "{age}");
    world.pass(MINUTE).await;
    assert_eq!(world.store.all().len(), 1);
    worker.stop().await;
    // Another worker keeps spans for less long, and says so first.
    let worker = run_with(world.parts(), keeping("x", 3));
    world.pass(10 * MINUTE - 10_000).await;
    assert_eq!(world.store.all().len(), 1);
    assert!(world.event_age().await < 2 * HOUR + 10 * MINUTE);
    world.pass(MINUTE).await;
    assert_eq!(world.store.all().len(), 0);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_receivers_were_told_holds_where_others_keep_spans_for_longer() {
    let world = World::new();
    world.start("i", -5 * HOUR).await;
    world.stop("i", -4 * HOUR).await;
    let worker = run_with(world.parts(), keeping("w", 3));
    world.pass(MINUTE).await;
    worker.kill();
    let worker = run_with(world.parts(), keeping("x", 9));
    world.pass(2 * HOUR).await;
    let age = world.event_age().await;
    let told = 4 * HOUR - MINUTE..4 * HOUR + 2 * MINUTE;
    assert!(told.contains(&age), "{age}");
    assert_eq!(world.store.all().len(), 1);
    worker.stop().await;
}

/// Measures with so many bytes of text.
fn text(bytes: usize) -> Measures {
    let quantity = Quantity::new("x".repeat(bytes).into()).unwrap();
    Measures::from_store(vec![Measure::new("m", quantity).unwrap()])
}

#[tokio::test(start_paused = true)]
async fn large_spans_are_driven_one_after_the_other_and_small_ones_side_by_side() {
    for (bytes, at_once) in [(1 << 10, 4), (3 << 19, 2), (9 << 19, 1)] {
        let world = World::new();
        for instance in ["a", "b", "c", "d", "e"] {
            world.start_with(instance, -HOUR, text(bytes)).await;
        }
        *world.abacus.latency.lock().unwrap() = Duration::from_secs(1);
        let worker = world.run("w");
        world
            .until("all are sampled", || world.abacus.post_count() == 5)
            .await;
        worker.stop().await;
        let most = world.abacus.most_in_flight.load(Ordering::Relaxed);
        assert_eq!(most, at_once, "{bytes} bytes");
    }
}

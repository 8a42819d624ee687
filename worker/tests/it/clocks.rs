//! Clocks that are wrong: the worker's, and the one that dates Abacus's answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sampler_domain::Timestamp;
use sampler_worker::ReportProgress;

use crate::world::{DAY, HOUR, MINUTE, NOON, World, options, run_with};

const SECOND: i64 = 1_000;

/// Waits until it is `moment` there, and then two seconds for what falls due.
async fn until_just_after(world: &World, moment: Timestamp) {
    let wait = moment.since(world.abacus.now()) + 2 * SECOND;
    world.pass(wait).await;
}

#[tokio::test(start_paused = true)]
async fn when_most_answers_were_dated_a_day_back_sampling_goes_on_soon_after() {
    let world = World::new();
    world.start("i", -HOUR).await;
    let worker = world.run("w");
    until_just_after(&world, NOON).await;
    world.abacus.date(|now| Some(now.plus(-DAY)));
    until_just_after(&world, NOON.plus(HOUR)).await;
    assert_eq!(world.abacus.sum("i"), HOUR, "all say that it is yesterday");
    assert!(worker.time.disagrees());
    world.abacus.date(Some);
    world.pass(MINUTE).await;
    assert_eq!(world.abacus.sum("i"), 2 * HOUR);
    assert!(!worker.time.disagrees());
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_step_of_the_clock_neither_hurries_nor_delays() {
    for step in [3 * HOUR, -3 * HOUR] {
        let world = World::new();
        world.start("i", -HOUR).await;
        let worker = world.run("w");
        world.pass(59 * MINUTE).await;
        world.clock.step(step);
        assert!(worker.time.disagrees(), "people are told at once");
        world.pass(59 * SECOND).await;
        assert_eq!(world.abacus.sum("i"), HOUR, "{step}: not over yet");
        until_just_after(&world, NOON.plus(HOUR)).await;
        assert_eq!(world.abacus.sum("i"), 2 * HOUR, "{step}: over");
        worker.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn with_a_clock_that_is_63_days_ahead_the_ids_of_events_stay() {
    let world = World::new();
    world.clock.step(63 * DAY);
    world.start("i", -2 * HOUR).await;
    world.stop("i", -HOUR).await;
    let worker = world.run("w");
    world.until_complete("i").await;
    world.pass(HOUR).await;
    assert_eq!(world.store.all().len(), 1);
    worker.stop().await;
}

/// What lies after Abacus's today is set aside there, and would never be billed.
#[tokio::test(start_paused = true)]
async fn a_worker_whose_clock_is_a_day_ahead_does_not_begin_with_the_future() {
    let world = World::new();
    world.clock.step(DAY);
    world.start("i", -HOUR).await;
    world.stop("i", 20 * HOUR).await;
    let worker = world.run("w");
    world.pass(MINUTE).await;
    assert_eq!(world.abacus.sum("i"), HOUR);
    worker.stop().await;
}

/// Months close minutes after they end: who is late by its own clock would be too late.
#[tokio::test(start_paused = true)]
async fn with_a_clock_that_is_minutes_behind_the_end_of_a_month_is_sampled_on_time() {
    let world = World::new();
    // 2026-03-31T23:50 at Abacus, and eight minutes earlier here.
    let days = 21 * DAY + 12 * HOUR - 10 * MINUTE;
    world.abacus.behind.store(-days, Ordering::Relaxed);
    world.clock.step(days - 8 * MINUTE);
    world.start("i", days - 50 * MINUTE).await;
    let worker = world.run("w");
    let month_end = NOON.plus(21 * DAY + 12 * HOUR);
    assert_eq!(month_end.to_string(), "2026-04-01T00:00:00.000Z");
    until_just_after(&world, month_end).await;
    assert_eq!(world.abacus.sum("i"), HOUR);
    let ahead = worker.time.ahead().unwrap();
    let behind = -8 * MINUTE..=-8 * MINUTE + SECOND;
    assert!(
        behind.contains(&ahead),
        "{ahead} ms, to the second of a date"
    );
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_dates_a_worker_goes_by_its_own_clock_and_says_so() {
    let world = World::new();
    world.start("i", -HOUR).await;
    world.abacus.date(|_| None);
    let worker = world.run("w");
    until_just_after(&world, NOON.plus(HOUR)).await;
    assert_eq!(world.abacus.sum("i"), 2 * HOUR);
    assert!(worker.time.uses_own_clock());
    assert_eq!(worker.time.ahead(), None);
    world.abacus.date(Some);
    world.pass(2 * MINUTE).await;
    assert!(!worker.time.uses_own_clock());
    assert_eq!(worker.time.ahead(), Some(0));
    worker.stop().await;
}

/// A clock in 1970, or more than a year ahead, is not set at all. Nothing that
/// counts is decided by it.
#[tokio::test(start_paused = true)]
async fn with_a_clock_that_is_years_ahead_nothing_is_sampled_before_it_is_set_right() {
    let world = World::new();
    world.clock.step(800 * DAY);
    world.start("i", -HOUR).await;
    let reports = Arc::new(ReportCount::default());
    let mut parts = world.parts();
    parts.processing_progress = reports.clone();
    let worker = run_with(parts, options("w"));
    world.pass(HOUR + MINUTE).await;
    assert_eq!(world.abacus.post_count(), 0);
    assert!(worker.time.disagrees());
    assert!(reports.0.load(Ordering::Relaxed) < 3, "readiness fails");
    world.clock.step(0);
    world.pass(MINUTE).await;
    assert_eq!(world.abacus.sum("i"), 2 * HOUR);
    worker.stop().await;
}

/// The end of all time stands for "never", and no usage may wait for it.
#[tokio::test(start_paused = true)]
async fn a_clock_at_the_end_of_all_time_has_a_usage_posted() {
    let world = World::new();
    world.start("i", -HOUR).await;
    world.stop("i", 0).await;
    world.abacus.date(|_| None);
    world.clock.step(Timestamp::MAX.since(NOON));
    let worker = world.run("w");
    world.until_complete("i").await;
    assert_eq!(world.abacus.sum("i"), HOUR);
    worker.stop().await;
}

/// Counts signs of life.
#[derive(Default)]
pub(crate) struct ReportCount(pub(crate) AtomicUsize);

impl ReportProgress for ReportCount {
    fn report(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_for_an_abacus_that_is_away_is_no_standstill_and_ends_with_it() {
    let world = World::new();
    world.start("i", -HOUR).await;
    world.abacus.is_away.store(true, Ordering::Relaxed);
    let (processing, cleanup) = (
        Arc::new(ReportCount::default()),
        Arc::new(ReportCount::default()),
    );
    let mut parts = world.parts();
    (parts.processing_progress, parts.cleanup_progress) = (processing.clone(), cleanup.clone());
    let worker = run_with(parts, options("w"));
    world.pass(10 * MINUTE).await;
    assert_eq!(world.abacus.post_count(), 0);
    for reports in [&processing, &cleanup] {
        assert!(reports.0.load(Ordering::Relaxed) >= 100);
    }
    world.abacus.is_away.store(false, Ordering::Relaxed);
    world.pass(4 * SECOND).await;
    assert_eq!(world.abacus.sum("i"), HOUR);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_worker_asks_for_the_time_now_and_then() {
    let world = World::new();
    let worker = world.run("w");
    world.pass(10 * MINUTE).await;
    let probes = world.abacus.probes.load(Ordering::Relaxed);
    assert!((30..=36).contains(&probes), "{probes} probes");
    worker.stop().await;
}

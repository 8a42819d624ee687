//! What the ledger holds, and when it is compared with a span.

use std::time::Duration;

use sampler_domain::{Entry, Granularity};
use sampler_worker::Options;

use crate::abacus::refusal;
use crate::world::{DAY, HOUR, MINUTE, NOON, World, elapsed, options, run_with};

/// What Abacus refuses is on the span alone.
#[tokio::test(start_paused = true)]
async fn a_usage_has_an_entry_once_it_is_accepted() {
    let world = World::new();
    world.start("i", -HOUR).await;
    world.abacus.answer(|_| Some(refusal("no mapping")));
    let worker = world.run("w");
    world.pass(10_000).await;
    assert_eq!(world.entries(), []);
    world.abacus.answer(|_| None);
    world
        .until("it is through", || world.abacus.sum("i") == HOUR)
        .await;
    let accepted_by = NOON.plus(elapsed(world.began));
    world.pass(1_000).await;
    worker.stop().await;
    let entry = world.entries().remove(0);
    assert!(accepted_by.since(entry.acceptance.at) <= 100);
    assert_eq!(entry.dimension, Granularity::Hour);
    world.assert_ledger();
}

/// The dimension, for which its entries are kept for two hours where it is the hour.
fn sampling_by(dimension: Granularity) -> Options {
    let mut options = options("w");
    options.settings.sampling.dimension = Some(dimension);
    options.settings.ledger.retention.hour = Duration::from_hours(2);
    options
}

/// Samples with these options for so long.
async fn sample(world: &World, options: Options, millis: i64) {
    let worker = run_with(world.parts(), options);
    world.pass(millis).await;
    worker.stop().await;
}

fn lose(world: &World, entries: impl IntoIterator<Item = Entry>) {
    for entry in entries {
        let guid = entry.usage_guid;
        world.store.with(|table| table.remove_entry(&guid));
    }
}

#[tokio::test(start_paused = true)]
async fn a_complete_span_that_the_ledger_contradicts_is_counted() {
    for lost in [0, 1] {
        let world = World::new();
        world.start("i", -3 * HOUR).await;
        sample(&world, options("w"), 2_000).await;
        let second = |entry: &Entry| entry.interval.start == NOON.plus(-2 * HOUR);
        lose(
            &world,
            world.entries().into_iter().filter(second).take(lost),
        );
        world.stop("i", -HOUR / 2).await;
        assert_eq!(differences(&world).await, lost);
    }
}

/// Where all that counts was sent again, or another program has sampled it, nothing can be compared.
#[tokio::test(start_paused = true)]
async fn a_span_without_entries_of_its_own_is_no_difference() {
    let world = World::new();
    world.start("i", -HOUR).await;
    sample(&world, options("w"), 2_000).await;
    lose(&world, world.entries());
    world.stop("i", 0).await;
    assert_eq!(differences(&world).await, 0);
}

/// The entries of hours expire before those of days that are older.
#[tokio::test(start_paused = true)]
async fn entries_that_have_expired_are_no_difference() {
    let world = World::new();
    world.start("i", -2 * DAY).await;
    sample(&world, sampling_by(Granularity::Day), MINUTE).await;
    sample(&world, sampling_by(Granularity::Hour), 16 * HOUR).await;
    let now = world.clock_now();
    let expired = world.store.with(|table| table.remove_expired(now));
    assert!(!expired.is_empty());
    world.stop("i", 16 * HOUR).await;
    assert_eq!(differences(&world).await, 0);
}

/// Completes the span; says how many differences were counted.
async fn differences(world: &World) -> usize {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let counting = metrics::set_default_local_recorder(&recorder);
    let worker = run_with(world.parts(), sampling_by(Granularity::Hour));
    world.until_complete("i").await;
    world.pass(1_000).await;
    worker.stop().await;
    drop(counting);
    let shown = recorder.handle().render();
    let line = |line: &str| {
        let count = line.strip_prefix("sampler_ledger_differences_total ")?;
        count.trim().parse().ok()
    };
    shown.lines().find_map(line).unwrap_or(0)
}

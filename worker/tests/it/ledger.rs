//! What the ledger holds, whatever fails.

use std::time::Duration;

use sampler_domain::{Cut, Entry, Granularity, Interval, Planned, Span, SpanId, StartEvent};

use crate::abacus::refusal;
use crate::world::{DAY, HOUR, MINUTE, NOON, World, options, run_with, target};

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
    world.pass(1_000).await;
    worker.stop().await;
    let entry = world.entries().remove(0);
    assert_eq!(entry.acceptance.at, accepted_at(&world));
    assert_eq!(entry.dimension, Granularity::Hour);
    world.assert_ledger();
}

/// When the last post was made.
fn accepted_at(world: &World) -> sampler_domain::Timestamp {
    let posts = world.abacus.posts.lock().unwrap();
    let since = posts.last().unwrap().0 - world.began;
    NOON.plus(i64::try_from(since.as_millis()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn an_entry_is_kept_for_as_long_as_its_dimension_says() {
    let world = World::new();
    world.start("i", -3 * HOUR).await;
    let worker = world.run("w");
    world.pass(MINUTE).await;
    worker.stop().await;
    let entries = world.entries();
    assert_eq!(entries.len(), 3);
    let expired = |at| world.store.with(|table| table.remove_expired(at));
    let expires_at = entries[0].acceptance.at.plus(400 * DAY);
    assert_eq!(expired(expires_at.plus(-1)), []);
    assert_eq!(expired(expires_at.plus(MINUTE)).len(), 3);
}

/// The usage of the original's plan has its entry under the original's id.
#[tokio::test(start_paused = true)]
async fn the_plan_of_an_original_has_its_entry_under_its_own_id() {
    let world = World::new();
    let event = StartEvent {
        id: None,
        timestamp: NOON.plus(-5 * HOUR),
        target: target("i"),
        measures: sampler_domain::Measures::default(),
    };
    let sampled_to = NOON.plus(-3 * HOUR);
    let mut span = Span::open(SpanId::Text("i".to_owned()), event, sampled_to);
    span.processing.last.end = sampled_to;
    span.processing.planned = Some(Planned {
        interval: Interval {
            start: sampled_to,
            end: NOON.plus(-2 * HOUR),
        },
        usage_guid: "theirs".to_owned(),
        planned_at: sampled_to,
        by: None,
        unanswered: false,
        posts_end_by: None,
    });
    span.processing.version = 7;
    world.store.put(span);
    let worker = world.run("w");
    world
        .until("it is sampled", || {
            world.kept("i").span.sampled_to() == NOON
        })
        .await;
    worker.stop().await;
    assert_eq!(world.entry("theirs").interval.start, sampled_to);
    assert_eq!(world.entries().len(), 3);
    let cuts = world.kept("i").span.processing.cuts;
    let from = NOON.plus(-2 * HOUR);
    let granularity = Granularity::Hour;
    assert_eq!(cuts, [Cut { from, granularity }]);
}

/// The ledger and complete spans are compared.
#[tokio::test(start_paused = true)]
async fn a_complete_span_that_the_ledger_contradicts_is_counted() {
    for lost in [0, 1] {
        let world = World::new();
        world.start("i", -3 * HOUR).await;
        let worker = world.run("w");
        world
            .until("it is sampled", || world.abacus.sum("i") == 3 * HOUR)
            .await;
        world.pass(1_000).await;
        if lost == 1 {
            let second = |entry: &Entry| entry.interval.start == NOON.plus(-2 * HOUR);
            let guid = world.entries().into_iter().find(second).unwrap().usage_guid;
            world.store.with(|table| table.remove_entry(&guid));
        }
        worker.stop().await;
        world.stop("i", -HOUR / 2).await;
        assert_eq!(differences(&world).await, lost);
    }
}

/// Where all that counts was sent again, or another program has sampled it, nothing can be compared.
#[tokio::test(start_paused = true)]
async fn a_span_without_entries_of_its_own_is_no_difference() {
    let world = World::new();
    world.start("i", -HOUR).await;
    let worker = world.run("w");
    world
        .until("it is sampled", || world.abacus.sum("i") == HOUR)
        .await;
    world.pass(1_000).await;
    worker.stop().await;
    for entry in world.entries() {
        world
            .store
            .with(|table| table.remove_entry(&entry.usage_guid));
    }
    world.stop("i", 0).await;
    assert_eq!(differences(&world).await, 0);
}

/// The entries of hours expire before those of days that are older.
#[tokio::test(start_paused = true)]
async fn entries_that_have_expired_are_no_difference() {
    let world = World::new();
    world.start("i", -2 * DAY).await;
    for (dimension, passes) in [(Granularity::Day, MINUTE), (Granularity::Hour, 16 * HOUR)] {
        let mut options = options("w");
        options.settings.sampling.dimension = Some(dimension);
        options.settings.ledger.retention.hour = Duration::from_hours(2);
        let worker = run_with(world.parts(), options);
        world.pass(passes).await;
        worker.stop().await;
    }
    let now = world.clock_now();
    let expired = world.store.with(|table| table.remove_expired(now));
    assert!(!expired.is_empty());
    world.stop("i", 16 * HOUR).await;
    assert_eq!(differences(&world).await, 0);
}

/// Completes the span; says how many differences were counted.
async fn differences(world: &World) -> u64 {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let counting = metrics::set_default_local_recorder(&recorder);
    let mut options = options("w");
    options.settings.ledger.retention.hour = Duration::from_hours(2);
    let worker = run_with(world.parts(), options);
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

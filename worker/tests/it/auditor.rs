//! The auditor names spans that are broken, and no others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sampler_domain::partition::partition_of;
use sampler_domain::{Entry, SpanId};
use sampler_store::StoreError;
use sampler_store_testing::faulty::{Fault, FaultyStore};
use sampler_worker::{Options, Parts, Worker};
use tokio_util::sync::CancellationToken;

use crate::world::{DAY, HOUR, MINUTE, World, options, target};

fn audited(name: &str) -> Options {
    let mut options = options(name);
    options.settings.audit.rate = 50;
    options
}

/// A worker that audits, and what it has found.
struct Auditing {
    stop: CancellationToken,
    violations: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl Auditing {
    fn run(world: &World, name: &str) -> Self {
        Self::run_with(world.parts(), name)
    }

    fn run_with(parts: Parts, name: &str) -> Self {
        let stop = CancellationToken::new();
        let worker = Worker::new(parts, audited(name), stop.clone());
        let violations = worker.violations();
        let task = tokio::spawn(async move { worker.run().await });
        Self {
            stop,
            violations,
            task,
        }
    }

    fn found(&self) -> u64 {
        self.violations.load(Ordering::Relaxed)
    }

    async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

/// A world with spans of each kind, all as they should be.
async fn healthy() -> World {
    let world = World::new();
    for number in 0..10 {
        world.start(&format!("open {number}"), -9 * HOUR).await;
        world.start(&format!("done {number}"), -9 * HOUR).await;
        world.stop(&format!("done {number}"), -2 * HOUR - 7).await;
    }
    world
}

fn entries_of(world: &World, instance: &str) -> Vec<Entry> {
    let id = world.kept(instance).span.id;
    world.store.with(|table| {
        let entries = table.entries_of(&id, None).into_iter();
        entries.cloned().collect()
    })
}

fn replace(world: &World, entry: Entry) {
    world.store.with(|table| table.replace_entry(entry));
}

fn remove(world: &World, entry: &Entry) {
    world
        .store
        .with(|table| table.remove_entry(&entry.usage_guid));
}

/// What is broken by hand is named within a round, and each span once.
#[tokio::test(start_paused = true)]
async fn what_is_broken_by_hand_is_named_within_a_minute() {
    type Break = fn(&World, SpanId);
    let breaks: [(&str, Break); 8] = [
        ("totals", |world, id| {
            let mut totals = world.kept("open 3").span.processing.totals;
            totals.billed += 1;
            world.store.with(|table| table.set_totals(&id, totals));
        }),
        ("usages", |world, id| {
            let mut totals = world.kept("open 3").span.processing.totals;
            totals.usages += 1;
            world.store.with(|table| table.set_totals(&id, totals));
        }),
        ("the first entry", |world, _| {
            remove(world, &entries_of(world, "open 3")[0]);
        }),
        ("an entry", |world, _| {
            remove(world, &entries_of(world, "open 3")[4]);
        }),
        ("an entry of a complete span", |world, _| {
            assert!(world.is_complete("done 3"));
            remove(world, &entries_of(world, "done 3")[4]);
        }),
        ("the last entry", |world, _| {
            remove(world, entries_of(world, "open 3").last().unwrap());
        }),
        ("a duration", |world, _| {
            let mut entry = entries_of(world, "open 3").remove(4);
            entry.interval.end = entry.interval.end.plus(-1);
            replace(world, entry);
        }),
        ("a state", |world, _| {
            let mut entry = entries_of(world, "open 3").remove(4);
            entry.state = sampler_domain::EntryState::Skipped;
            replace(world, entry);
        }),
    ];
    for (what, break_it) in breaks {
        let world = healthy().await;
        let worker = Auditing::run(&world, "w");
        world.pass(MINUTE).await;
        assert_eq!(worker.found(), 0, "before {what}");
        break_it(&world, world.kept("open 3").span.id);
        world.pass(MINUTE).await;
        assert_eq!(worker.found(), 1, "{what}");
        world.pass(30 * MINUTE).await;
        assert_eq!(worker.found(), 1, "it is told once an hour");
        worker.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_cannot_be_read_holds_up_no_other() {
    let world = healthy().await;
    let broken = partition_of(&target("open 3"));
    let others_fail = move |method: &str, partition: String| {
        let fails = method == "spans_of" && partition != broken.to_string();
        fails.then(|| Fault::NotDone(StoreError::Unavailable("the shard is down".into())))
    };
    let parts = Parts {
        work: FaultyStore::new(world.store.clone(), others_fail),
        ..world.parts()
    };
    let worker = Auditing::run_with(parts, "w");
    world.pass(MINUTE).await;
    remove(&world, &entries_of(&world, "open 3")[4]);
    // Each partition that fails takes a pause of some seconds.
    world.pass(30 * MINUTE).await;
    assert_eq!(worker.found(), 1);
    worker.stop().await;
}

/// Spans that are driven all the while, stopped late, killed with their workers; and those whose
/// entries expire.
#[tokio::test(start_paused = true)]
async fn what_is_driven_or_has_expired_is_never_named() {
    let world = World::new();
    *world.abacus.latency.lock().unwrap() = Duration::from_millis(120);
    for number in 0..12 {
        world.start(&format!("{number}"), -40 * HOUR).await;
    }
    for life in 0..20 {
        let worker = Auditing::run(&world, &format!("life {life}"));
        world.pass(7_000 + life * 131).await;
        if life == 10 {
            for number in 0..6 {
                world.stop(&format!("{number}"), -21 * HOUR - number).await;
            }
        }
        assert_eq!(worker.found(), 0, "life {life}");
        worker.task.abort();
    }
    let worker = Auditing::run(&world, "last");
    world.pass(HOUR).await;
    for days in [20, 60, 100] {
        let now = world.clock_now().plus(days * DAY);
        world.store.with(|table| table.remove_expired(now));
        world.pass(5 * MINUTE).await;
        assert_eq!(worker.found(), 0, "after {days} days");
    }
    worker.stop().await;
}

/// Only what the totals know of counts: a program that knows none may have sampled the span before.
#[tokio::test(start_paused = true)]
async fn entries_from_before_the_totals_begin_are_passed_over() {
    let world = healthy().await;
    let worker = Auditing::run(&world, "w");
    world.pass(MINUTE).await;
    let kept = world.kept("open 3").span;
    let last = entries_of(&world, "open 3").pop().unwrap();
    let mut totals = kept.processing.totals.clone();
    totals.since = last.interval.start;
    totals.first_version = Some(last.version);
    totals.billed = last.interval.duration();
    totals.usages = 1;
    world.store.with(|table| table.set_totals(&kept.id, totals));
    world.pass(MINUTE).await;
    assert_eq!(worker.found(), 0);
    worker.stop().await;
}

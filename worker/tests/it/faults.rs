//! Several workers, workers that die, and a store that fails: nothing is billed twice, nothing is forgotten.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use sampler_store::StoreError;
use sampler_store_testing::faulty::{Fault, FaultyStore};
use sampler_worker::Parts;

use crate::abacus::refusal;
use crate::world::{HOUR, MINUTE, World, options, run_with};

/// Fault 11 of the original: every worker read the same first spans.
#[tokio::test(start_paused = true)]
async fn fault_11_workers_share_the_spans_and_post_each_usage_once() {
    let world = World::new();
    *world.abacus.latency.lock().unwrap() = Duration::from_millis(500);
    let workers = ["a", "b", "c", "d"].map(|name| world.run(name));
    // All know of each other before there is anything to do.
    world.pass(6_000).await;
    world.start_all("i", 100, -5 * HOUR).await;
    world.until_billed("i", 100, 5 * HOUR).await;
    assert_eq!(world.abacus.post_count(), 500);
    let most = world.abacus.most_in_flight.load(Ordering::Relaxed);
    assert!(most > 8, "more than two workers post");
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
    world.start_all("i", 50, -HOUR).await;
    world.until_billed("i", 50, HOUR).await;
    assert!(world.began.elapsed() < Duration::from_mins(1));
    alive.stop().await;
}

/// Fault 13 of the original, from the other side: whatever dies between two writes, the plan that
/// is kept is the one that is posted.
#[tokio::test(start_paused = true)]
async fn fault_13_workers_that_are_killed_leave_plans_that_others_execute() {
    let world = World::new();
    *world.abacus.latency.lock().unwrap() = Duration::from_millis(700);
    world.start_all("i", 6, -20 * HOUR).await;
    for life in 0..30 {
        let worker = world.run(&format!("life {life}"));
        world.pass(1_000 + life * 37).await;
        worker.kill();
    }
    let worker = world.run("last");
    for number in 0..6 {
        let instance = format!("i {number}");
        world.stop(&instance, -HOUR).await;
        world.until_complete(&instance).await;
        assert_eq!(world.abacus.sum(&instance), 19 * HOUR);
    }
    world.assert_ledger();
    let posts = world.abacus.post_count();
    assert!(posts > 6 * 21, "some were posted again: {posts}");
    worker.stop().await;
}

/// The parts of a worker for whom calls of a method fail whose arguments hold some text, until it is over; and how
/// many calls have failed.
fn failing(
    world: &World,
    method: &'static str,
    text: &'static str,
) -> (Parts, Arc<AtomicBool>, Arc<AtomicUsize>) {
    let (is_over, count) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    let (over, counted) = (Arc::clone(&is_over), Arc::clone(&count));
    let faults = move |called: &str, arguments: String| {
        let is_meant = called == method && arguments.contains(text);
        let fails = is_meant && !over.load(Ordering::Relaxed);
        counted.fetch_add(usize::from(fails), Ordering::Relaxed);
        fails.then(|| Fault::NotDone(StoreError::Unavailable("nobody answers".into())))
    };
    let store = FaultyStore::new(world.store.clone(), faults);
    let parts = Parts {
        work: store.clone(),
        ledger: store,
        ..world.parts()
    };
    (parts, is_over, count)
}

/// Nothing is tried again as fast as the store answers.
#[tokio::test(start_paused = true)]
async fn a_span_that_the_store_fails_on_pauses_and_delays_no_other() {
    let world = World::new();
    world.start_all("bad", 20, -2 * HOUR).await;
    let (parts, is_over, tries) = failing(&world, "write_entry", "bad ");
    // All permits could be held by those that fail.
    let worker = run_with(parts, options("w"));
    world.pass(MINUTE).await;
    world.start("good", -2 * HOUR).await;
    world.pass(MINUTE).await;
    assert_eq!(world.abacus.sum("good"), 2 * HOUR);
    // What was accepted is known: it is not posted again.
    assert_eq!(world.abacus.bodies("bad").len(), 20);
    // 1 s, 2 s, 4 s, … 30 s, each less up to half: at most eleven tries of each in two minutes.
    let tries = tries.load(Ordering::Relaxed);
    assert!((100..=220).contains(&tries), "{tries} tries");
    is_over.store(true, Ordering::Relaxed);
    let began = world.clock_now();
    world.until_billed("bad", 20, 2 * HOUR).await;
    assert!(world.clock_now().since(began) <= MINUTE);
    worker.stop().await;
}

/// The run keeps in mind what it knows of an interval from one drive to the next.
#[tokio::test(start_paused = true)]
async fn an_acceptance_that_could_not_be_recorded_is_not_posted_again_by_the_same_run() {
    for (method, text) in [("write_entry", ""), ("change", "kind: Record")] {
        let world = World::new();
        world.start("a", -HOUR).await;
        let (parts, is_over, _) = failing(&world, method, text);
        let worker = run_with(parts, options("w"));
        world.pass(10 * MINUTE).await;
        assert_eq!(world.abacus.post_count(), 1);
        assert!(world.kept("a").span.processing.planned.is_some());
        is_over.store(true, Ordering::Relaxed);
        world.pass(MINUTE).await;
        worker.stop().await;
        assert_eq!(world.abacus.post_count(), 1);
        assert_eq!(world.kept("a").span.processing.planned, None);
        world.assert_ledger();
    }
}

/// The span is changed for the failures alone.
#[tokio::test(start_paused = true)]
async fn a_run_tries_again_without_another_name_and_without_a_flag() {
    let world = World::new();
    world.start("a", -HOUR).await;
    world
        .abacus
        .answer(|_| Some(refusal("Abacus answered 400")));
    let version = world.kept("a").span.processing.version;
    let worker = world.run("w");
    world.until_suspended("a").await;
    worker.stop().await;
    assert_eq!(world.abacus.post_count(), 3);
    let processing = world.kept("a").span.processing;
    assert_eq!(processing.version, version + 1 + 3);
    let planned = processing.planned.unwrap();
    assert_eq!((planned.by, planned.unanswered), (None, false));
}

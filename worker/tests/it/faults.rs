//! Workers that die, and a ledger that refuses entries: nothing is billed twice, nothing is forgotten.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use sampler_store::StoreError;
use sampler_store_testing::faulty::{Fault, FaultyStore};
use sampler_worker::Parts;

use crate::world::{HOUR, MINUTE, World, run_with};

/// Fault 13 of the original, from the other side: whatever dies between two writes, the plan that
/// is kept is the one that is posted.
#[tokio::test(start_paused = true)]
async fn fault_13_workers_that_are_killed_leave_plans_that_others_execute() {
    let world = World::new();
    *world.abacus.latency.lock().unwrap() = std::time::Duration::from_millis(700);
    for number in 0..6 {
        world.start(&format!("{number}"), -20 * HOUR).await;
    }
    for life in 0..30 {
        let worker = world.run(&format!("life {life}"));
        world.pass(1_000 + life * 37).await;
        worker.kill();
    }
    let worker = world.run("last");
    for number in 0..6 {
        world.stop(&format!("{number}"), -HOUR).await;
    }
    let all = || (0..6).all(|number| world.is_complete(&format!("{number}")));
    world.until("all are complete", all).await;
    for number in 0..6 {
        assert_eq!(world.abacus.sum(&format!("{number}")), 19 * HOUR);
    }
    world.assert_ledger();
    let posts = world.abacus.posts.lock().unwrap().len();
    assert!(posts > 6 * 21, "some were posted again: {posts}");
    worker.stop().await;
}

/// The ledger refuses an entry for good: nothing is tried again as fast as the store answers.
#[tokio::test(start_paused = true)]
async fn a_span_that_the_store_fails_on_pauses_and_delays_no_other() {
    let world = World::new();
    for number in 0..20 {
        world.start(&format!("bad {number}"), -2 * HOUR).await;
    }
    let is_over = Arc::new(AtomicBool::default());
    let tries = Arc::<AtomicUsize>::default();
    let (over, counted) = (Arc::clone(&is_over), Arc::clone(&tries));
    let refusing = move |method: &str, entry: String| {
        let is_bad = method == "write_entry" && entry.contains("bad ");
        let fails = is_bad && !over.load(Ordering::Relaxed);
        counted.fetch_add(usize::from(fails), Ordering::Relaxed);
        fails.then(|| Fault::NotDone(StoreError::Refused("the disk is full".into())))
    };
    let parts = Parts {
        ledger: FaultyStore::new(world.store.clone(), refusing),
        ..world.parts()
    };
    // All permits could be held by those that fail.
    let worker = run_with(parts, crate::world::options("w"));
    world.pass(MINUTE).await;
    world.start("good", -2 * HOUR).await;
    world.pass(MINUTE).await;
    assert_eq!(world.abacus.sum("good"), 2 * HOUR);
    // What was accepted is known: it is not posted again.
    assert_eq!(world.abacus.posts_of("bad", 0), 20);
    // 1 s, 2 s, 4 s, … 30 s, each less up to half: at most eleven tries of each in two minutes.
    let tries = tries.load(Ordering::Relaxed);
    assert!((100..=220).contains(&tries), "{tries} tries");
    is_over.store(true, Ordering::Relaxed);
    let done = || (0..20).all(|number| world.abacus.sum(&format!("bad {number}")) == 2 * HOUR);
    let began = world.clock_now();
    world.until("all are through", done).await;
    assert!(world.clock_now().since(began) <= MINUTE);
    worker.stop().await;
}

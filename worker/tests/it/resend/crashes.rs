//! Workers that die between the steps of a resend.

use std::cmp::Ordering::{Equal, Greater, Less};
use std::sync::atomic::{AtomicUsize, Ordering};

use sampler_domain::EntryState;
use sampler_store::StoreError;
use sampler_store_testing::faulty::{Fault, FaultyStore};

use super::{another_skipped, assert_right, skipped};
use crate::world::{MINUTE, World, options, run_with};

/// The calls of one resend.
const STEPS: [&str; 6] = [
    "mark_resend",
    "withheld_of",
    "takes_back_uncounted",
    "accept_resent",
    "has_resend",
    "end_resend",
];

/// Fails a step by its number, before or after it was carried out, and all that follow.
fn dies_at(number: usize, is_done: bool) -> impl Fn(&'static str, String) -> Option<Fault> {
    let calls = AtomicUsize::new(0);
    move |method, _| {
        if !STEPS.contains(&method) {
            return None;
        }
        let error = || StoreError::Unknown("the answer was lost".into());
        match calls.fetch_add(1, Ordering::Relaxed).cmp(&number) {
            Less => None,
            Equal if is_done => Some(Fault::AnswerLost(error())),
            // From then on, the worker might as well be dead.
            Equal | Greater => Some(Fault::NotDone(error())),
        }
    }
}

/// A worker that dies at any of its steps leaves something from which the next one resumes. Two usages of
/// one span are sent again: the second one's totals overwrite what the span says of the first.
#[tokio::test(start_paused = true)]
async fn a_worker_that_dies_at_any_step_leaves_nothing_wrong() {
    for step in 0..14 {
        let world = World::new();
        let first = skipped(&world).await;
        let second = another_skipped(&world).await;
        assert!(world.send_again(&first, 7, None).await);
        assert!(world.send_again(&second, 8, None).await);
        let mut parts = world.parts();
        let faults = dies_at(step / 2, step % 2 == 1);
        parts.ledger = FaultyStore::new(world.store.clone(), faults);
        let worker = run_with(parts, options("w"));
        world.pass(MINUTE / 2).await;
        worker.kill();
        let worker = world.run("next");
        world.until_settled().await;
        worker.stop().await;
        for entry in [&first, &second] {
            let after = world.entry(&entry.usage_guid);
            assert_eq!(after.state, EntryState::Accepted, "step {step}");
        }
        assert_eq!(world.kept("a").span.processing.totals.skipped, 0);
        assert_right(&world);
    }
}

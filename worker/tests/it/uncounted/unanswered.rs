//! Answers that are lost or late, before and after a skip.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use sampler_domain::{Entry, EntryState, LastError, Timestamp};
use sampler_store::{EntryKey, Ledger, StoreError};
use sampler_store_testing::faulty::{Fault, Faults, FaultyStore};
use sampler_store_testing::memory::MemoryStore;
use sampler_worker::Parts;
use uuid::Uuid;

use super::{refuse, send_again, skipped, suspend_and_skip, windows};
use crate::abacus::try_again;
use crate::world::{HOUR, MINUTE, World, options, run_with};

/// Where nothing was sent, nothing can count.
#[tokio::test(start_paused = true)]
async fn a_post_that_was_not_sent_is_no_lost_answer() {
    let world = World::new();
    world.abacus.is_unsent.store(true, Ordering::Relaxed);
    world.abacus.answer_first([try_again("connection refused")]);
    world.start("a", -HOUR).await;
    let worker = world.run("w");
    let has_failed = || world.kept("a").span.processing.attempts > 0;
    world.until("it has failed", has_failed).await;
    assert!(!world.kept("a").span.processing.unanswered);
    worker.stop().await;
}

/// A worker learns late that Abacus has the usage, while an operator's resend is being refused.
#[tokio::test(start_paused = true)]
async fn what_is_learnt_beside_a_mark_that_is_refused_is_kept() {
    let world = World::new();
    let skipped = skipped(&world).await;
    send_again(&world, &skipped).await;
    let key = EntryKey::of(&skipped);
    for is_first in [true, false] {
        let accepted = Some(world.acceptance());
        let is_marked = world.send_again(&skipped, 9, accepted).await;
        assert_eq!(is_marked, is_first);
    }
    let refusal = LastError {
        at: world.clock_now(),
        status: Some(400),
        error: "it is malformed".to_owned(),
    };
    let act = Uuid::from_u128(7);
    world
        .store
        .end_resend(&key, act, Some(&refusal))
        .await
        .unwrap();
    let posts = world.abacus.post_count();
    let worker = world.run("w");
    world.until_settled().await;
    worker.stop().await;
    let after = world.entry(&skipped.usage_guid);
    assert_eq!(after.state, EntryState::Accepted);
    assert_eq!(world.abacus.post_count(), posts, "Abacus has it");
    assert_eq!(world.kept("a").span.processing.totals.skipped, 0);
}

/// Another worker is told that the usage is refused, and ends the resend; then the store is away.
struct EndedByAnother {
    store: Arc<MemoryStore>,
    key: EntryKey,
    failures: AtomicUsize,
}

#[async_trait]
impl Faults for EndedByAnother {
    async fn fault(&self, method: &'static str, _: String) -> Option<Fault> {
        let is_first = self.failures.load(Ordering::Relaxed) == 0;
        if method == "accept_resent" && is_first {
            let refusal = LastError {
                at: Timestamp::MIN,
                status: Some(400),
                error: "it is malformed".to_owned(),
            };
            let act = Uuid::from_u128(7);
            let ended = self.store.end_resend(&self.key, act, Some(&refusal)).await;
            ended.unwrap();
        }
        let fails = method == "mark_resend" && self.failures.fetch_add(1, Ordering::Relaxed) < 3;
        fails.then(|| Fault::NotDone(StoreError::Unavailable("it is away".into())))
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_learnt_once_a_mark_was_refused_is_noted_however_long_the_store_is_away() {
    let world = World::new();
    let skipped = skipped(&world).await;
    send_again(&world, &skipped).await;
    world.abacus.answer(|_| None);
    let faults = EndedByAnother {
        store: world.store.clone(),
        key: EntryKey::of(&skipped),
        failures: AtomicUsize::new(0),
    };
    let parts = Parts {
        ledger: FaultyStore::new(world.store.clone(), faults),
        ..world.parts()
    };
    let worker = run_with(parts, options("w"));
    world.pass(2 * MINUTE).await;
    world.until_settled().await;
    worker.stop().await;
    let after = world.entry(&skipped.usage_guid);
    assert_eq!(after.state, EntryState::Accepted, "Abacus counts it");
    assert_eq!(world.kept("a").span.processing.totals.skipped, 0);
}

/// A resend before the span has noted the skip could be overtaken by the note, which says `skipped`.
#[tokio::test(start_paused = true)]
async fn nothing_is_sent_again_before_the_skip_is_noted() {
    let world = World::new();
    refuse(&world, &windows([-HOUR]));
    world.start("a", -HOUR).await;
    suspend_and_skip(&world).await;
    let span = world.kept("a").span;
    let skipped = Entry::of_skipped(&span, world.clock_now()).unwrap();
    // Another worker has written the entry, and is about to note it.
    world
        .store
        .write_entry(skipped.clone(), HOUR)
        .await
        .unwrap();
    send_again(&world, &skipped).await;
    world.abacus.answer(|_| None);
    let posts = world.abacus.post_count();
    let worker = world.run("w");
    world.pass(2 * MINUTE).await;
    let span = world.kept("a").span;
    assert_eq!(span.processing.totals.skipped, 0, "it waits");
    assert_eq!(world.abacus.post_count(), posts);
    world.until_settled().await;
    worker.stop().await;
    let totals = world.kept("a").span.processing.totals;
    assert_eq!((totals.billed, totals.skipped), (HOUR, 0));
}

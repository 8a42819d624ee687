//! Workers that die between the steps of a resend.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use sampler_domain::{Acceptance, Entry, EntryState, LastError, Resend, Timestamp};
use sampler_store::memory::MemoryStore;
use sampler_store::{EntryKey, Resends, StoreError};
use uuid::Uuid;

use super::{another_skipped, assert_right, entry, resend, skipped, until_settled};
use crate::world::{MINUTE, World, options, run_with};

/// A store that fails: each call by its number, before or after it was carried out.
struct Faulty {
    inner: Arc<MemoryStore>,
    calls: AtomicUsize,
    fails_at: usize,
    is_done: bool,
}

impl Faulty {
    async fn call<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        if number < self.fails_at {
            return call.await;
        }
        // From then on, the worker might as well be dead.
        if number == self.fails_at && self.is_done {
            call.await?;
        }
        Err(StoreError::Unknown("the answer was lost".into()))
    }
}

#[async_trait]
impl Resends for Faulty {
    async fn mark_resend(&self, entry: &EntryKey, resend: &Resend) -> Result<bool, StoreError> {
        self.call(self.inner.mark_resend(entry, resend)).await
    }

    async fn due_resends(&self, now: Timestamp, limit: usize) -> Result<Vec<Entry>, StoreError> {
        self.inner.due_resends(now, limit).await
    }

    async fn postpone_resend(
        &self,
        entry: &EntryKey,
        act: Uuid,
        due_at: Timestamp,
    ) -> Result<(), StoreError> {
        self.inner.postpone_resend(entry, act, due_at).await
    }

    async fn accept_resent(
        &self,
        entry: &Entry,
        acceptance: &Acceptance,
    ) -> Result<bool, StoreError> {
        self.call(self.inner.accept_resent(entry, acceptance)).await
    }

    async fn has_resend(&self, entry: &EntryKey, act: Uuid) -> Result<bool, StoreError> {
        self.call(self.inner.has_resend(entry, act)).await
    }

    async fn end_resend(
        &self,
        entry: &EntryKey,
        act: Uuid,
        refusal: Option<&LastError>,
    ) -> Result<(), StoreError> {
        self.call(self.inner.end_resend(entry, act, refusal)).await
    }
}

/// A worker that dies at any of its steps leaves something from which the next one goes on. Two usages of
/// one span are sent again: the second one's totals overwrite what the span says of the first.
#[tokio::test(start_paused = true)]
async fn a_worker_that_dies_at_any_step_leaves_nothing_wrong() {
    for step in 0..14 {
        let world = World::new();
        let first = skipped(&world).await;
        let second = another_skipped(&world).await;
        assert!(resend(&world, &first, 7).await);
        assert!(resend(&world, &second, 8).await);
        let faulty = Faulty {
            inner: world.store.clone(),
            calls: AtomicUsize::new(0),
            fails_at: step / 2,
            is_done: step % 2 == 1,
        };
        let mut parts = world.parts();
        parts.resends = Arc::new(faulty);
        let worker = run_with(parts, options("w"));
        world.pass(MINUTE / 2).await;
        worker.kill();
        let worker = world.run("next");
        until_settled(&world).await;
        worker.stop().await;
        for entry in [&first, &second] {
            let after = self::entry(&world, &entry.usage_guid);
            assert_eq!(after.state, EntryState::Accepted, "step {step}");
        }
        assert_eq!(world.kept("a").span.processing.totals.skipped, 0);
        assert_right(&world);
    }
}

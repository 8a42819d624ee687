//! Spans and the other workers as one process sees them: calls get lost, late or slow.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt};
use sampler_domain::{CauseId, Change, Changed, Span, SpanId, Target, Timestamp};
use sampler_store::{Alive, DuePages, DueQuery, Finished, Resumption, StoreError, Work};

use super::super::mutant::Mutant;
use super::super::server::Changing;
use super::super::world::World;
use super::{DuePage, SimStore, pass_on};

/// Longer than any run, ms.
const AGES: i64 = 1_000_000_000_000;

pass_on! {
    Work {
        suspended_causes(; limit: usize) -> Vec<CauseId>;
        completed_before(; cutoff: Timestamp, limit: usize) -> Vec<Finished>;
        leave(&worker: str) -> ();
    }

    fn due(&self, query: DueQuery) -> DuePages {
        let search = (self.clone(), self.connection.world.store.due(query));
        stream::try_unfold(search, move |(store, mut pages)| async move {
            let work = async move { Ok(DuePage(pages.next().await.transpose()?, pages)) };
            let DuePage(page, pages) = store.connection.call("due", work).await?;
            Ok(page.map(|page| (page, (store, pages))))
        })
        .boxed()
    }

    async fn read(&self, id: &SpanId, target: &Target) -> Result<Option<Span>, StoreError> {
        let (id, target) = (id.clone(), target.clone());
        self.call("read", |world| async move { world.store.read(&id, &target).await })
            .await
    }

    async fn change(
        &self,
        read: &Span,
        change: &Change,
        _now: Timestamp,
    ) -> Result<Changed, StoreError> {
        let mutant = self.connection.world.setup.mutant;
        if mutant.drops(change.kind) {
            return Ok(Changed::Made);
        }
        let changing = Changing::new(read, &mutant.change(read, change));
        self.changes.submit(Arc::new(changing)).await
    }

    async fn probe(&self, cause: CauseId, resumption: Resumption) -> Result<bool, StoreError> {
        self.call("probe", move |world| async move {
            Ok(world.probe(cause, resumption))
        })
        .await
    }

    async fn heartbeat(&self, worker: &str) -> Result<Alive, StoreError> {
        let worker = worker.to_owned();
        let beat = self.call("heartbeat", |world| async move {
            world.store.heartbeat(&worker).await
        });
        let mut alive = beat.await?;
        if self.has(Mutant::GoesByOwnClock) {
            let error = self.connection.clock_error.load(Ordering::Relaxed);
            alive.now = alive.now.plus(error);
        }
        Ok(alive)
    }

    async fn limit_event_age(&self, age: i64) -> Result<Timestamp, StoreError> {
        let told = if self.has(Mutant::RetentionUntold) {
            AGES
        } else {
            age
        };
        self.call("limit_event_age", move |world| async move {
            world.store.limit_event_age(told).await
        })
        .await
    }

    async fn remove(&self, finished: &[Finished]) -> Result<u64, StoreError> {
        let finished = finished.to_vec();
        self.call("remove", |world| async move { Ok(world.remove(&finished)) })
            .await
    }
}

impl World {
    /// Tries a span for a cause; with a planted bug, each.
    fn probe(&self, cause: CauseId, resumption: Resumption) -> bool {
        let before = self.count_probes(cause);
        let is_each = self.setup.mutant == Mutant::ProbePerSpan;
        let (is_begun, probed) = self.resume_with(|table| {
            let is_begun = table.probe(cause, resumption);
            while is_each && table.probe(cause, resumption) {}
            is_begun
        });
        self.check_probes(cause, before, &probed);
        is_begun
    }

    /// Removes spans that are complete.
    fn remove(&self, finished: &[Finished]) -> u64 {
        let mut removed = 0;
        for Finished { id, .. } in finished {
            let found = self.store.with(|table| table.find(id).cloned());
            let Some(span) = found else { continue };
            if self
                .store
                .with(|table| table.remove(std::slice::from_ref(id)))
                == 1
            {
                removed += 1;
                self.note_removed(span);
            }
        }
        removed
    }
}

//! The ports of workers and operators as one process sees them: calls get lost, late or slow. Nobody steers here.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt};
use sampler_domain::{CauseId, Change, Changed, Control, Entry, Span, SpanId, Target, Timestamp};
use sampler_store::{
    ActOutcome, Alive, AuditRecord, Backlog, BacklogQuery, ControllerState, DuePages, DueQuery,
    DueWatches, Finished, KeptControl, Ledger, LedgerSum, Operating, Published, Resumption,
    StoreError, Watch, WatchOutcome, Work,
};
use uuid::Uuid;

use super::super::mutant::Mutant;
use super::super::server::{Changing, EntryInsert};
use super::super::world::{World, pause};
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

pass_on! {
    Ledger {
        entry(&usage_guid: str) -> Option<Entry>;
        sum_of(&span: SpanId, &target: Target) -> LedgerSum;
        due_watches(&query: DueWatches) -> Vec<Watch>;
        claim_watch(&watch: Watch; due_at: Timestamp) -> bool;
    }

    async fn write_entry(
        &self,
        entry: &Entry,
        expires_at: Timestamp,
        watch_at: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        let is_early = self.has(Mutant::ExpiresTooEarly);
        let insert = EntryInsert {
            entry: entry.clone(),
            expires_at: if is_early { entry.acceptance.at } else { expires_at },
            watch_at: watch_at.filter(|_| !self.has(Mutant::DropsWatches)),
        };
        if self.has(Mutant::EntryAfterRecord) {
            let entries = self.entries.clone();
            let tick = self.connection.world.setup.scale.tick;
            tokio::spawn(async move {
                pause(Duration::from_millis(tick.unsigned_abs())).await;
                entries.submit(Arc::new(insert)).await
            });
            return Ok(());
        }
        self.entries.submit(Arc::new(insert)).await
    }

    async fn settle_watches(&self, outcomes: &[(Watch, WatchOutcome)]) -> Result<(), StoreError> {
        let outcomes = outcomes.to_vec();
        self.call("settle_watches", |world| async move {
            for (watch, outcome) in &outcomes {
                world.store.with(|table| table.settle_watch(watch, outcome));
                if let WatchOutcome::Missing(_) = outcome {
                    world.watch_missing(&watch.usage_guid);
                }
            }
            Ok(())
        })
        .await
    }
}

#[async_trait]
impl Operating for SimStore {
    async fn record_action(&self, _: &AuditRecord) -> Result<(), StoreError> {
        self.call("record_action", |_| async { Ok(()) }).await
    }

    async fn record_outcome(&self, _: Uuid, _: ActOutcome) -> Result<(), StoreError> {
        Ok(())
    }

    async fn change_by_operator(
        &self,
        read: &Span,
        change: &Change,
        _: Timestamp,
    ) -> Result<Changed, StoreError> {
        let changing = Changing::new(read, change);
        self.call("change_by_operator", |world| async move {
            let made = changing.apply(&world);
            Ok(made.map_or(Changed::Rejected, |_| Changed::Made))
        })
        .await
    }

    async fn resume_batch(
        &self,
        cause: CauseId,
        until: Timestamp,
        resumption: Resumption,
        limit: usize,
    ) -> Result<u64, StoreError> {
        self.call("resume_batch", move |world| async move {
            let (resumed, _) =
                world.resume_with(|table| table.resume_batch(cause, until, resumption, limit));
            Ok(resumed)
        })
        .await
    }

    async fn resend_missing(&self, usage_guid: &str, now: Timestamp) -> Result<bool, StoreError> {
        let guid = usage_guid.to_owned();
        self.call("resend_missing", move |world| async move {
            world.store.resend_missing(&guid, now).await
        })
        .await
    }

    async fn time(&self) -> Result<Timestamp, StoreError> {
        Ok(self.connection.world.database_now())
    }

    async fn control(&self) -> Result<KeptControl, StoreError> {
        Ok(KeptControl::default())
    }

    async fn set_control(&self, _: &Control, _: i64) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn controller(&self) -> Result<Option<Published<ControllerState>>, StoreError> {
        Ok(None)
    }

    async fn set_controller(&self, _: &ControllerState) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn count_backlog(&self, _: &BacklogQuery) -> Result<Backlog, StoreError> {
        Ok(Backlog::default())
    }

    async fn publish_backlog(&self, _: &Backlog) -> Result<(), StoreError> {
        Ok(())
    }

    async fn published_backlog(&self) -> Result<Option<Published<Backlog>>, StoreError> {
        Ok(None)
    }

    async fn events_taken_since(&self) -> Result<Timestamp, StoreError> {
        self.connection.world.store.events_taken_since().await
    }

    async fn report_rate(&self, _: &str, _: f64) -> Result<(), StoreError> {
        Ok(())
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

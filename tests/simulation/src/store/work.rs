//! Spans and the other workers as one process sees them: calls get lost, late or slow.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt};
use sampler_domain::{Change, Changed, Span, SpanId, Target, Timestamp};
use sampler_store::{DuePages, DueQuery, Finished, StoreError, Work};

use super::super::mutant::Mutant;
use super::super::server::Changing;
use super::{DuePage, SimStore, pass_on};

/// Longer than any run, ms.
const AGES: i64 = 1_000_000_000_000;

pass_on! {
    Work {
        heartbeat(&worker: str) -> Vec<String>;
        leave(&worker: str) -> ();
    }

    fn due(&self, query: DueQuery) -> DuePages {
        let now = query.now;
        let search = (self.clone(), self.connection.world.store.due(query));
        stream::try_unfold(search, move |(store, mut pages)| async move {
            let what = move || format!(" by {now}");
            let work = async move { Ok(DuePage(pages.next().await.transpose()?, pages)) };
            let DuePage(mut page, pages) = store.connection.call("due", what, work).await?;
            store.connection.world.as_read(page.iter_mut().flatten());
            Ok(page.map(|page| (page, (store, pages))))
        })
        .boxed()
    }

    async fn read(&self, id: &SpanId, target: &Target) -> Result<Option<Span>, StoreError> {
        let (read, target) = (id.clone(), target.clone());
        let found = self.call("find", |world| async move {
            let mut found = world.store.read(&read, &target).await?;
            world.as_read(found.iter_mut());
            Ok(found)
        });
        let found = found.await;
        let unnoted = self.unnoted().remove(id);
        if let (Err(_), Some(guid)) = (&found, unnoted) {
            self.note_lost(&guid);
        }
        found
    }

    async fn change(
        &self,
        span: &Span,
        change: &Change,
        _now: Timestamp,
    ) -> Result<Changed, StoreError> {
        let mut change = change.clone();
        if self.has(Mutant::RetriesByOwnClock)
            && let Change::Failed { failure, .. } = &mut change
        {
            let error = self.connection.clock_error.load(Ordering::Relaxed);
            failure.retry_at = failure.retry_at.plus(error);
        }
        if self.has(Mutant::ForgetsLostAnswers)
            && let Change::Failed { failure, .. } = &mut change
        {
            failure.unanswered = false;
        }
        let is_dropped = match change {
            Change::Resent { .. } => self.has(Mutant::TotalsForgetResends),
            Change::SetAside { .. } => self.has(Mutant::SetAsideUnknownToSpan),
            _ => false,
        };
        if is_dropped {
            return Ok(Changed::Made);
        }
        let lost = match &change {
            Change::Failed { failure, .. } => {
                span.processing.planned.iter().find(|_| failure.unanswered)
            }
            _ => None,
        };
        let lost = lost.map(|planned| planned.usage_guid.clone());
        let changing = Changing::new(&self.connection.world, span, &change);
        let changed = self.changes.submit(Arc::new(changing)).await;
        if let Some(guid) = lost {
            match &changed {
                // Nobody learns any more that no answer came.
                Err(_) => self.note_lost(&guid),
                // It is noted once the span was read again.
                Ok(Changed::Rejected) => _ = self.unnoted().insert(span.id.clone(), guid),
                Ok(Changed::Made) => {}
            }
        }
        changed
    }

    async fn limit_event_age(&self, age: i64) -> Result<Timestamp, StoreError> {
        let told = if self.has(Mutant::RetentionUntold) {
            AGES
        } else {
            age
        };
        let call = self.call("limit_event_age", move |world| async move {
            world.store.limit_event_age(told).await
        });
        call.await
    }

    async fn completed_before(
        &self,
        cutoff: Timestamp,
        limit: usize,
    ) -> Result<Vec<Finished>, StoreError> {
        let world = Arc::clone(&self.connection.world);
        let what = move || format!(" {cutoff}");
        let work = async move { world.store.completed_before(cutoff, limit).await };
        self.connection.call("completed_before", what, work).await
    }

    async fn remove(&self, finished: &[Finished]) -> Result<u64, StoreError> {
        let (world, finished) = (Arc::clone(&self.connection.world), finished.to_vec());
        let named: Vec<SpanId> = finished.iter().map(|span| span.id.clone()).collect();
        let what = move || format!(" {named:?}");
        let work = async move {
            let mut spans = Vec::new();
            let find = |id: &SpanId| world.store.with(|table| table.find(id).cloned());
            for span in &finished {
                spans.extend(find(&span.id));
            }
            let removed = world.store.remove(&finished).await?;
            for span in &spans {
                if find(&span.id).is_none() {
                    world.note_removed(span.clone());
                }
            }
            Ok(removed)
        };
        self.connection.call("remove", what, work).await
    }
}

//! The worker's interface: each call is in the file that its line names.

use async_trait::async_trait;
use sampler_domain::{CauseId, Change, Changed, Span, SpanId, Target, Timestamp};
use sampler_store::{Alive, DuePages, DueQuery, Finished, Resumption, StoreError, Work};

use crate::{MongoStore, causes, changes, cleanup, due, workers};

#[async_trait]
impl Work for MongoStore {
    fn due(&self, query: DueQuery) -> DuePages {
        due::due(self, &query)
    }

    async fn read(&self, id: &SpanId, target: &Target) -> Result<Option<Span>, StoreError> {
        due::read(self, id, target).await
    }

    async fn change(
        &self,
        read: &Span,
        change: &Change,
        now: Timestamp,
    ) -> Result<Changed, StoreError> {
        changes::change(self, read, change, now).await
    }

    async fn suspended_causes(&self, limit: usize) -> Result<Vec<CauseId>, StoreError> {
        causes::suspended_causes(self, limit).await
    }

    async fn probe(&self, cause: CauseId, resumption: Resumption) -> Result<bool, StoreError> {
        causes::probe(self, cause, resumption).await
    }

    async fn completed_before(
        &self,
        cutoff: Timestamp,
        limit: usize,
    ) -> Result<Vec<Finished>, StoreError> {
        cleanup::completed_before(self, cutoff, limit).await
    }

    async fn remove(&self, finished: &[Finished]) -> Result<u64, StoreError> {
        cleanup::remove(self, finished).await
    }

    async fn limit_event_age(&self, age: i64) -> Result<Timestamp, StoreError> {
        workers::limit_event_age(self, age).await
    }

    async fn heartbeat(&self, worker: &str) -> Result<Alive, StoreError> {
        workers::heartbeat(self, worker).await
    }

    async fn leave(&self, worker: &str) -> Result<(), StoreError> {
        workers::leave(self, worker).await
    }
}

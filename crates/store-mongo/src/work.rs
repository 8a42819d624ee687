//! The worker's interface: each call is in the file that its line names.

use async_trait::async_trait;
use sampler_domain::{Change, Changed, Span, SpanId, Target, Timestamp};
use sampler_store::{DuePages, DueQuery, Finished, StoreError, Work};

use crate::{MongoStore, changes, cleanup, due, event_age, spans, workers};

#[async_trait]
impl Work for MongoStore {
    fn due(&self, query: DueQuery) -> DuePages {
        due::due(self, &query)
    }

    async fn read(&self, id: &SpanId, target: &Target) -> Result<Option<Span>, StoreError> {
        spans::read(self, id, target).await
    }

    async fn change(
        &self,
        span: &Span,
        change: &Change,
        now: Timestamp,
    ) -> Result<Changed, StoreError> {
        changes::change(self, span, change, None, now).await
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
        event_age::limit_event_age(self, age).await
    }

    async fn heartbeat(&self, worker: &str) -> Result<Vec<String>, StoreError> {
        workers::heartbeat(self, worker).await
    }

    async fn leave(&self, worker: &str) -> Result<(), StoreError> {
        workers::leave(self, worker).await
    }
}

//! Keeping events: each kind, alone or in batches, and each range of the collection has its group of writes.

use std::sync::Arc;

use async_trait::async_trait;
use sampler_domain::partition::{partition_of, range_of};
use sampler_domain::{EventId, Span, Target};
use sampler_store::{
    Arrival, Events, IdKind, NewSpan, NewStop, ReadConcern, SpansBy, StartOutcome, StopOutcome,
    StoreError,
};

use crate::resolve::{find_spans, is_taken_elsewhere, readable};
use crate::starts::StartWrite;
use crate::stops::StopWrite;
use crate::{MongoStore, slack};

#[async_trait]
impl Events for MongoStore {
    async fn start(&self, new: NewSpan) -> Result<StartOutcome, StoreError> {
        let range = self.range_of(&new.span.target);
        let starts = match new.arrival {
            Arrival::Alone => &self.starts,
            Arrival::InBatch => &self.batch_starts,
        };
        starts.submit(range, Arc::new(StartWrite::new(new)?)).await
    }

    async fn stop(&self, new: NewStop) -> Result<StopOutcome, StoreError> {
        let range = self.range_of(&new.event.target);
        let stops = match new.arrival {
            Arrival::Alone => &self.stops,
            Arrival::InBatch => &self.batch_stops,
        };
        stops.submit(range, Arc::new(StopWrite::new(new))).await
    }

    async fn find_spans(
        &self,
        target: &Target,
        by: &SpansBy,
        concern: ReadConcern,
    ) -> Result<Vec<Span>, StoreError> {
        let (link, target, by) = (self.link.clone(), target.clone(), by.clone());
        let read = async move { find_spans(&link, &target, &by, concern).await };
        let found = self.link.run(read).await?;
        found.iter().map(readable).collect()
    }

    async fn is_id_taken_elsewhere(
        &self,
        kind: IdKind,
        target: &Target,
        id: &EventId,
    ) -> Result<bool, StoreError> {
        let (link, target, id) = (self.link.clone(), target.clone(), id.clone());
        let read = async move { is_taken_elsewhere(&link, kind, &target, &id).await };
        Ok(self.link.run(read).await?)
    }

    fn ranges(&self) -> usize {
        self.starts.count()
    }

    fn range_of(&self, target: &Target) -> usize {
        match self.starts.count() {
            1 => 0,
            ranges => range_of(partition_of(target), ranges),
        }
    }

    async fn announce_slack(&self, past: i64) -> Result<(), StoreError> {
        slack::announce_slack(self, past).await
    }
}

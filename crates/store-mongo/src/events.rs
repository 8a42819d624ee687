//! Keeping events: each kind, alone or in batches, has its group of writes.

use std::sync::Arc;

use async_trait::async_trait;
use sampler_domain::{Span, Target};
use sampler_store::{
    Arrival, Events, NewSpan, NewStop, SpansBy, StartOutcome, StopOutcome, StoreError,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::MongoStore;
use crate::call::CallError;
use crate::resolve::find_spans;
use crate::starts::StartWrite;
use crate::stops::StopWrite;

/// The most lookups of either kind at a time. Both have half of the pool; the rest is left for commands.
const LOOKUPS_AT_ONCE: usize = 16;
const CONNECTIONS_EACH: usize = 4;

/// The turns of lookups of one kind.
pub(crate) fn turns(pool_size: u32) -> Arc<Semaphore> {
    let pool_size = usize::try_from(pool_size).unwrap_or(usize::MAX);
    let at_once = (pool_size / CONNECTIONS_EACH).clamp(1, LOOKUPS_AT_ONCE);
    Arc::new(Semaphore::new(at_once))
}

impl MongoStore {
    /// Waits until a span may be looked up that decides about an event. Stops do not wait for starts.
    async fn lookup_turn(&self, by: &SpansBy) -> Result<OwnedSemaphorePermit, CallError> {
        let turns = match by {
            SpansBy::StartedBy(..) => &self.start_lookups,
            SpansBy::StoppedBy(_) | SpansBy::NotEndedBy(_) => &self.lookups,
        };
        let turn = Arc::clone(turns).acquire_owned();
        let turn = timeout(self.link.call_limit(), turn).await;
        turn.ok().and_then(Result::ok).ok_or(CallError::TooLate)
    }
}

#[async_trait]
impl Events for MongoStore {
    async fn start(&self, new: NewSpan) -> Result<StartOutcome, StoreError> {
        let starts = match new.arrival {
            Arrival::Alone => &self.starts,
            Arrival::InBatch => &self.batch_starts,
        };
        starts.submit(Arc::new(StartWrite::new(new)?)).await
    }

    async fn stop(&self, new: NewStop) -> Result<StopOutcome, StoreError> {
        let stops = match new.arrival {
            Arrival::Alone => &self.stops,
            Arrival::InBatch => &self.batch_stops,
        };
        stops.submit(Arc::new(StopWrite::new(new))).await
    }

    async fn find_spans(&self, target: &Target, by: &SpansBy) -> Result<Vec<Span>, StoreError> {
        let turn = self.lookup_turn(by).await?;
        let (link, target, by) = (self.link.clone(), target.clone(), by.clone());
        // The turn is over when the spans are parsed. Without a caller, it is when the call has ended.
        let read = async move { Ok((find_spans(&link, &target, &by).await?, turn)) };
        let (found, _turn) = self.link.run::<_, CallError, _>(read).await?;
        Ok(found)
    }
}

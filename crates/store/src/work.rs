//! The worker's interface: finding due spans and changing them (sections 6.4 to 6.6 of the paper),
//! and removing complete ones (section 6.3).

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use sampler_domain::{CauseId, Change, Changed, Key, Span, SpanId, Target, Timestamp};

use crate::StoreError;

/// The query for due spans (section 6.4).
#[derive(Clone, Debug)]
pub struct DueQuery {
    /// Only spans of these partitions.
    pub partitions: Arc<[u32]>,
    /// Only spans that are due by this time.
    pub now: Timestamp,
    /// The most spans on a page.
    pub page: usize,
}

/// Due spans, page by page. A page is empty if none of its spans can be read. The stream ends after an
/// error.
pub type DuePages = BoxStream<'static, Result<Vec<Span>, StoreError>>;

/// A complete span, as the ledger and the clean-up need it: its id and its shard key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    pub id: SpanId,
    /// The key that is stored with it.
    pub key: Key,
}

/// The state of a span that is resumed with its cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumption {
    /// The time by which the spans are due.
    pub now: Timestamp,
    /// How many refusals count already ([`sampler_domain::Span::resumed`]).
    pub refusals: u32,
}

/// The workers that are alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alive {
    pub workers: Vec<String>,
    /// The store's clock when it answered.
    pub now: Timestamp,
}

/// Finds due spans, changes them, and maintains the spans that are kept.
#[async_trait]
pub trait Work: Send + Sync + 'static {
    /// Due spans (section 6.4) by `due_at`, with majority read concern.
    ///
    /// A page is read when it is requested (or with the previous one, if that became too large), and continues
    /// where the previous one ended. A span that
    /// becomes due meanwhile may be on a later page, or on none.
    fn due(&self, query: DueQuery) -> DuePages;

    /// Reads one span with majority read concern. Its target has the shard key.
    async fn read(&self, id: &SpanId, target: &Target) -> Result<Option<Span>, StoreError>;

    /// Makes a change that was decided for `read`, if the span still has that version: then it is as
    /// [`Change::after`] says. `now` is kept as the time of its last change.
    async fn change(
        &self,
        read: &Span,
        change: &Change,
        now: Timestamp,
    ) -> Result<Changed, StoreError>;

    /// The causes for which spans are suspended; at most `limit`.
    async fn suspended_causes(&self, limit: usize) -> Result<Vec<CauseId>, StoreError>;

    /// Resumes one span as a probe: the one that has been suspended for the cause for longest. Returns whether
    /// there was one.
    async fn probe(&self, cause: CauseId, resumption: Resumption) -> Result<bool, StoreError>;

    /// Up to `limit` complete spans that end before `cutoff` (section 6.3).
    async fn completed_before(
        &self,
        cutoff: Timestamp,
        limit: usize,
    ) -> Result<Vec<Finished>, StoreError>;

    /// Removes those of the spans that are complete. Returns how many.
    async fn remove(&self, finished: &[Finished]) -> Result<u64, StoreError>;

    /// Says that receivers take no event any more that is older than `age` ms, by the store's own
    /// clock; returns what that says. The time since which they take events
    /// ([`crate::Operating::events_taken_since`]) never goes back, whatever the workers are set to: a span
    /// that was removed does not come back.
    async fn limit_event_age(&self, age: i64) -> Result<Timestamp, StoreError>;

    /// Says that `worker` is alive. Returns all that are, by the store's own clock.
    async fn heartbeat(&self, worker: &str) -> Result<Alive, StoreError>;

    /// Says that `worker` is gone.
    async fn leave(&self, worker: &str) -> Result<(), StoreError>;
}

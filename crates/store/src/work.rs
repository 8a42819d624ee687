//! The worker's interface: finding due spans and changing them (sections 6.4 to 6.6 of the paper),
//! and removing complete ones (section 6.3).

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use sampler_domain::{Change, Changed, Key, Span, SpanId, Target, Timestamp};

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

    /// Makes a change that was decided for `span`, if the span is unchanged since it was read
    /// ([`Change::is_allowed`]). Then the span is [`Span::after`] the change. `now` is stored as
    /// the time of a change that raises the version.
    async fn change(
        &self,
        span: &Span,
        change: &Change,
        now: Timestamp,
    ) -> Result<Changed, StoreError>;

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
    async fn heartbeat(&self, worker: &str) -> Result<Vec<String>, StoreError>;

    /// Says that `worker` is gone.
    async fn leave(&self, worker: &str) -> Result<(), StoreError>;
}

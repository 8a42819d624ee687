//! The worker's interface: finding due spans and changing them (sections 6.4 to 6.6 of the paper),
//! adopting those of the original Sampler, and removing complete ones (section 6.3).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use sampler_domain::{Change, Changed, ClosingMonth, Key, Policy, Span, SpanId, Target, Timestamp};

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
    /// The month whose intervals come first.
    pub closing: Option<ClosingMonth>,
}

/// The rank of a due span in a search. Spans of an earlier class come first; within a class, spans that
/// are due earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SearchClass {
    /// It became due for the closing month, or has yielded its permit while that month closes.
    DueInClosingMonth,
    /// It waits after a failure, and its next interval belongs to the closing month.
    FailedInClosingMonth,
    Other,
}

impl DueQuery {
    pub fn search_class(&self, span: &Span, due_at: Timestamp) -> SearchClass {
        let Some(closing) = self.closing else {
            return SearchClass::Other;
        };
        let has_failed = span.processing.attempts > 0;
        let last = closing.last_due_at();
        if due_at >= closing.start && due_at <= last {
            SearchClass::DueInClosingMonth
        } else if due_at > last && has_failed && closing.holds(continues_at(span)) {
            SearchClass::FailedInClosingMonth
        } else {
            SearchClass::Other
        }
    }
}

/// The lower end of a span's planned interval. Without one, the end of its last.
fn continues_at(span: &Span) -> Timestamp {
    let planned = span.processing.planned.as_ref();
    planned.map_or(span.sampled_to(), |planned| {
        planned.interval.start.min(planned.interval.end)
    })
}

/// Due spans, page by page. A page is empty if none of its spans can be read. The stream ends after an
/// error.
pub type DuePages = BoxStream<'static, Result<Vec<Span>, StoreError>>;

/// The key of a span and its entries.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SpanKey {
    pub id: SpanId,
    pub target: Target,
}

/// Keys of spans, page by page. A page is empty if none of its spans can be read. The stream ends
/// after an error.
pub type SpanKeys = BoxStream<'static, Result<Vec<SpanKey>, StoreError>>;

/// How long the slack that a receiver has announced counts after the announcement. A receiver that is
/// away for a roll-back, an outage or a long weekend still accepts old events when it returns, so its
/// slack must outlast such an absence.
pub const SLACK_LIFETIME: Duration = Duration::from_hours(7 * 24);

/// How many spans of the original Sampler were adopted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adopted {
    /// Spans that the original receiver started.
    pub starts: u64,
    /// Spans that the original receiver stopped after they had been adopted.
    pub stops: u64,
}

/// A complete span, as the ledger and the clean-up need it: its id and its shard key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    pub id: SpanId,
    /// The key that is stored with it; `None` if the original Sampler completed it before it was adopted.
    pub key: Option<Key>,
}

/// Finds due spans, changes them, and maintains the spans that are kept.
#[async_trait]
pub trait Work: Send + Sync + 'static {
    /// Due spans (section 6.4), by [`SearchClass`] and `due_at`, with majority read concern.
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

    /// All spans of a partition, from this key on, in the order of the keys; about `page` of them at a
    /// time. A span that exists during the whole scan is returned once.
    fn spans_of(&self, partition: u32, from: Option<Key>, page: usize) -> SpanKeys;

    /// Takes in up to `limit` spans that the original Sampler started, and notices the stops that
    /// it wrote.
    async fn adopt(
        &self,
        policy: &Policy,
        now: Timestamp,
        limit: usize,
    ) -> Result<Adopted, StoreError>;

    /// Up to `limit` complete spans that end before `cutoff` (section 6.3).
    async fn completed_before(
        &self,
        cutoff: Timestamp,
        limit: usize,
    ) -> Result<Vec<Finished>, StoreError>;

    /// Removes those of the spans that are complete. Returns how many.
    async fn remove(&self, finished: &[Finished]) -> Result<u64, StoreError>;

    /// The largest slack that receivers have announced within [`SLACK_LIFETIME`], by the store's
    /// own clock; `None` if none was announced. Older announcements are removed.
    async fn largest_slack(&self) -> Result<Option<i64>, StoreError>;

    /// Says that `worker` is alive. Returns all that are, by the store's own clock.
    async fn heartbeat(&self, worker: &str) -> Result<Vec<String>, StoreError>;

    /// Says that `worker` is gone.
    async fn leave(&self, worker: &str) -> Result<(), StoreError>;
}

//! The worker's interface: finding due spans and changing them (sections 6.4 to 6.6 of the paper).

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use sampler_domain::{Change, Changed, ClosingMonth, Span, SpanId, Target, Timestamp};

use crate::StoreError;

/// The query for due spans (section 6.4).
#[derive(Clone, Debug)]
pub struct DueQuery {
    /// Only spans of these partitions.
    pub partitions: Arc<[u32]>,
    /// Only spans that are due by this moment.
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
    /// Any other span.
    Other,
}

impl DueQuery {
    /// The class of a span that is due at `due_at`.
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

/// Finds due spans, and changes them.
#[async_trait]
pub trait Work: Send + Sync + 'static {
    /// Due spans (section 6.4), by [`SearchClass`] and `due_at`, with majority read concern.
    ///
    /// A page is read when it is requested, and continues where the previous one ended. A span that
    /// becomes due meanwhile may be on a later page, or on none.
    fn due(&self, query: DueQuery) -> DuePages;

    /// Reads one span with majority read concern. Its target has the shard key.
    async fn find(&self, id: &SpanId, target: &Target) -> Result<Option<Span>, StoreError>;

    /// Makes a change that was decided for `span`, if the span is unchanged since it was read
    /// ([`Change::is_allowed`]). Then the span is [`Span::after`] the change. `now` is stored as
    /// the moment of a change that raises the version.
    async fn change(
        &self,
        span: &Span,
        change: &Change,
        now: Timestamp,
    ) -> Result<Changed, StoreError>;
}

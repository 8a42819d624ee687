//! What the worker asks of the store to sample spans (sections 6.4 to 6.6 of the paper).

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use sampler_domain::{Change, Changed, ClosingMonth, Span, SpanId, Target, Timestamp};

use crate::StoreError;

/// Which spans to poll for (section 6.4).
#[derive(Clone, Debug)]
pub struct DueQuery {
    /// Only spans of these partitions.
    pub partitions: Arc<[u32]>,
    /// Only spans that are due by this moment.
    pub now: Timestamp,
    /// So many on a page at the most.
    pub page: usize,
    /// The month whose intervals come first.
    pub closing: Option<ClosingMonth>,
}

impl DueQuery {
    /// How urgent a span is that is due at `due_at`; the lowest comes first.
    ///
    /// 0: it fell due for the month that is closing, or gave its permit back in it. 1: it was put off
    /// after a failure, and still has intervals of that month. 2: all others.
    pub fn urgency(&self, span: &Span, due_at: Timestamp) -> u8 {
        let Some(closing) = self.closing else {
            return 2;
        };
        let has_failed = span.processing.attempts > 0;
        let last = closing.last_due_at();
        if due_at >= closing.start && due_at <= last {
            0
        } else if due_at > last && has_failed && closing.holds(span.sampled_to()) {
            1
        } else {
            2
        }
    }
}

/// Spans that need a worker, page by page; a page is empty where none on it can be read. It ends
/// behind an error.
pub type DuePages = BoxStream<'static, Result<Vec<Span>, StoreError>>;

/// Finds spans that need a worker, and changes what workers know of them.
#[async_trait]
pub trait Work: Send + Sync + 'static {
    /// Spans that need a worker (section 6.4), the most urgent first: intervals of the month that
    /// is about to be closed, then what has been waiting longest. Only what a majority has.
    ///
    /// A page is read when it is asked for. Each goes on where the one before ended, whatever has
    /// become of the spans on that: what falls due meanwhile may be on a later page, or on none.
    fn due(&self, query: DueQuery) -> DuePages;

    /// One span, as a majority has it. Its target says where it is kept.
    async fn find(&self, id: &SpanId, target: &Target) -> Result<Option<Span>, StoreError>;

    /// Makes a change that was decided for `span`, if it still is as it was read
    /// ([`Span::still_allows_change`]); the span is [`Span::after`] the change then. `now` is noted as
    /// the moment of the change.
    async fn change(
        &self,
        span: &Span,
        change: &Change,
        now: Timestamp,
    ) -> Result<Changed, StoreError>;
}

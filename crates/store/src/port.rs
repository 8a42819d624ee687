//! The port: what the receiver and the worker ask of the store.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use sampler_domain::{
    ClosingMonth, EventId, Field, Planned, Policy, Span, SpanId, StopEvent, Timestamp,
};
use uuid::Uuid;

/// How long it counts how far into the past a receiver took events. It may be gone only for a while:
/// a roll-back, an outage or a long weekend must not be enough for what it would take when it comes
/// back to be forgotten.
pub const SLACK_LIFETIME: Duration = Duration::from_hours(7 * 24);

/// Why the store gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store cannot be reached; nothing was changed.
    #[error("the store cannot be reached")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
    /// More is asked of the store than it can do; nothing was changed.
    #[error("too many writes wait for the store")]
    Overloaded,
    /// No answer came, or none that is final: what was asked may or may not have been done.
    #[error("the store gave no final answer")]
    Unknown(#[source] Box<dyn Error + Send + Sync>),
    /// The store refused; asking again will not help.
    #[error("the store refused")]
    Refused(#[source] Box<dyn Error + Send + Sync>),
}

/// A span to be opened (section 6.1).
#[derive(Clone, Debug)]
pub struct NewSpan {
    /// The span as the start event makes it.
    pub span: Span,
    /// When it first needs a worker.
    pub due_at: Timestamp,
    /// The receiver's clock, for `last_change_at`.
    pub now: Timestamp,
    /// Lets the span begin before the end of the target's previous one, as an original does.
    pub may_overlap: bool,
}

/// What became of a start.
#[derive(Clone, Debug, PartialEq)]
pub enum Started {
    /// The span is open, and survives the loss of a machine.
    Opened,
    /// The same event, by its `id`, was kept before.
    Repeated,
    /// The `id` was seen before, in an event that differs in these fields. Nothing was kept.
    IdTaken(Vec<Field>),
    /// The target has an open span. Nothing was kept.
    AlreadyOpen,
    /// The target's previous span ends later than this one starts. Nothing was kept.
    Overlaps {
        /// Where that span ends.
        until: Timestamp,
    },
}

/// A span to be ended (section 6.2).
#[derive(Clone, Debug)]
pub struct NewStop {
    /// What the provider reports.
    pub event: StopEvent,
    /// What the `correlation_id` of the ended span becomes, making room for the next span.
    pub correlation_id: Uuid,
}

/// What became of a stop.
#[derive(Clone, Debug, PartialEq)]
pub enum Stopped {
    /// The open span has its end, and that survives the loss of a machine.
    Ended,
    /// The same event, by its `id`, was kept before.
    Repeated,
    /// The `id` was seen before, in an event that differs in these fields. Nothing was kept.
    IdTaken(Vec<Field>),
    /// The target has no open span.
    NotOpen,
    /// The target's open span starts later than this. Nothing was kept.
    BeforeStart {
        /// Where the open span starts.
        start: Timestamp,
    },
}

/// Which spans to look for (section 6.4).
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
    /// 0: it fell due for the month that is closing, or gave its slot back in it. 1: it was put off after a failure, and still
    /// has intervals of that month. 2: all others.
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

/// What follows an execution, decided in the same change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Next {
    /// The next interval is due already: this is it.
    Planned(Planned),
    /// Nothing is due until then.
    Wait,
    /// The span is sampled to its end.
    Complete,
}

/// Why the usage of a planned interval could not be delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// When it failed.
    pub at: Timestamp,
    /// When it is to be tried again.
    pub retry_at: Timestamp,
    /// What happened, in words for the operator.
    pub error: String,
}

/// What a conditional change came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Changed {
    /// It was made; the span as it is now.
    Done(Box<Span>),
    /// The span is no longer as it was read: another worker, or a stop, was faster.
    Lost,
}

/// How many spans of an original Sampler were taken in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adopted {
    /// Spans that an original receiver started.
    pub starts: u64,
    /// Spans that an original receiver stopped after they had been taken in.
    pub stops: u64,
}

/// Some of all spans.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// Spans.
    pub spans: Vec<Span>,
    /// How many documents are no spans that could be read.
    pub unreadable: u64,
    /// The last id that was looked at, if there may be more behind it.
    pub next: Option<SpanId>,
}

/// All spans, to be looked at: whoever has nothing but this can change none.
#[async_trait]
pub trait SpanPages: Send + Sync + 'static {
    /// Up to `limit` spans behind the id `after`, in an order of the store's own; each span that
    /// is there all the while is on one page. Only what a majority has.
    async fn page(&self, after: Option<&SpanId>, limit: usize) -> Result<Page, StoreError>;
}

/// The store of spans.
///
/// Changes to `processing` require the version *and* the end that the span was read with: a stop
/// leaves the version alone, but whoever decides what comes next must know of it.
#[async_trait]
pub trait SpanStore: Send + Sync + 'static {
    /// Opens a span (section 6.1), unless the answer says otherwise.
    async fn start(&self, new: NewSpan) -> Result<Started, StoreError>;

    /// Ends the target's open span (section 6.2), unless the answer says otherwise.
    async fn stop(&self, new: NewStop) -> Result<Stopped, StoreError>;

    /// The span that was started by the event with this id.
    async fn started_by(&self, id: &EventId) -> Result<Option<Span>, StoreError>;

    /// The span that was stopped by the event with this id.
    async fn stopped_by(&self, id: &EventId) -> Result<Option<Span>, StoreError>;

    /// Spans that need a worker (section 6.4), the most urgent first: intervals of the month that
    /// is about to be closed, then what has been waiting longest. Only what a majority has.
    ///
    /// A page is read when it is asked for. Each goes on where the one before ended, whatever has
    /// become of the spans on that: what falls due meanwhile may be on a later page, or on none.
    fn due(&self, query: DueQuery) -> DuePages;

    /// One span, as a majority has it.
    async fn find(&self, id: &SpanId) -> Result<Option<Span>, StoreError>;

    /// Plans an interval for a span that has none planned (section 6.5).
    async fn plan(
        &self,
        span: &Span,
        planned: Planned,
        now: Timestamp,
        due_at: Timestamp,
    ) -> Result<Changed, StoreError>;

    /// Notes that the planned interval was executed, and what comes next (section 6.6).
    async fn executed(
        &self,
        span: &Span,
        next: Next,
        now: Timestamp,
        due_at: Timestamp,
    ) -> Result<Changed, StoreError>;

    /// Notes that a span is sampled to its end (section 6.5, last paragraph).
    async fn complete(&self, span: &Span, now: Timestamp) -> Result<Changed, StoreError>;

    /// Sets when a span with nothing due needs a worker next.
    async fn postpone(&self, span: &Span, due_at: Timestamp) -> Result<Changed, StoreError>;

    /// Notes that the planned interval could not be delivered.
    async fn failed(&self, span: &Span, failure: Failure) -> Result<Changed, StoreError>;

    /// Takes in up to `limit` spans that an original Sampler started, and notices the stops that
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
    ) -> Result<Vec<SpanId>, StoreError>;

    /// Removes those of the spans that are complete; says how many.
    async fn remove(&self, ids: &[SpanId]) -> Result<u64, StoreError>;

    /// Says that `worker` is alive; answers with all that are, by the store's own clock.
    async fn heartbeat(&self, worker: &str) -> Result<Vec<String>, StoreError>;

    /// Says that `worker` is gone.
    async fn leave(&self, worker: &str) -> Result<(), StoreError>;

    /// Says that a receiver takes events that are dated up to `past` ms into the past. Once this has
    /// been answered, [`largest_slack`](Self::largest_slack) knows it for [`SLACK_LIFETIME`].
    async fn announce_slack(&self, past: i64) -> Result<(), StoreError>;

    /// The most of what receivers have announced within [`SLACK_LIFETIME`], by the store's own clock;
    /// none where nothing was announced. What is older is removed.
    async fn largest_slack(&self) -> Result<Option<i64>, StoreError>;

    /// Whether the store can be reached and would take a write.
    async fn ping(&self) -> Result<(), StoreError>;
}

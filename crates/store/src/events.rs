//! The receiver's interface: keeping starts and stops (sections 6.1 and 6.2 of the paper).

use async_trait::async_trait;
use sampler_domain::{
    ClientId, EventId, Measures, Refusal, Span, SpanId, StartDecision, StartEvent, StopDecision,
    StopEvent, Target, Timestamp,
};
use uuid::Uuid;

use crate::StoreError;

/// The way in which an event came to the receiver. Events of batches have commands of their own
/// ([decision]), so that a single event does not wait for a batch.
///
/// [decision]: ../../../docs/decisions.md#commands-are-shared-without-a-timer
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrival {
    /// In a request of its own.
    #[default]
    Alone,
    InBatch,
}

/// A span to be opened (section 6.1).
#[derive(Clone, Debug)]
pub struct NewSpan {
    pub span: Span,
    /// The receiver's clock, for `last_change_at`.
    pub now: Timestamp,
    pub arrival: Arrival,
}

#[derive(Clone, Debug, PartialEq)]
pub enum StartOutcome {
    /// The span is open, and survives the loss of a machine.
    Opened,
    /// The same event, by its `id`, was kept before.
    Repeated {
        /// The span that it opened then.
        span: SpanId,
    },
    /// Nothing was kept.
    Refused(Refusal),
}

impl StartOutcome {
    /// The outcome of a start by what was found in the store; none where the span is to be opened.
    pub fn found(decision: Result<StartDecision<'_>, Refusal>) -> Option<Self> {
        match decision {
            Ok(StartDecision::Open) => None,
            Ok(StartDecision::Repeated(span)) => Some(Self::Repeated {
                span: span.id.clone(),
            }),
            Err(refusal) => Some(Self::Refused(refusal)),
        }
    }
}

/// A span to be ended (section 6.2).
#[derive(Clone, Debug)]
pub struct NewStop {
    pub event: StopEvent,
    /// The client that reports it, where tokens are needed.
    pub client: Option<ClientId>,
    /// The new `correlation_id` of the ended span, which makes room for the next span.
    pub correlation_id: Uuid,
    pub arrival: Arrival,
}

#[derive(Clone, Debug, PartialEq)]
pub enum StopOutcome {
    /// The open span has its end, and that survives the loss of a machine.
    Ended,
    /// The same event, by its `id`, was kept before.
    Repeated,
    /// Nothing was kept.
    Refused(Refusal),
}

impl StopOutcome {
    /// The outcome of a stop by what was found in the store; none where the open span is to be ended.
    pub fn found(decision: Result<StopDecision<'_>, Refusal>) -> Option<Self> {
        match decision {
            Ok(StopDecision::End(_)) => None,
            Ok(StopDecision::Repeated(_)) => Some(Self::Repeated),
            Err(refusal) => Some(Self::Refused(refusal)),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdKind {
    Start,
    Stop,
}

/// The condition by which spans of a target are looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpansBy {
    /// Its measures are compared with these: if they are the same, it has them.
    StartedBy(EventId, Measures),
    StoppedBy(EventId),
    /// The open span, and the span that ends next after this time.
    NotEndedBy(Timestamp),
}

impl SpansBy {
    /// The span that was started by an event with the id of this one.
    pub fn start(event: &StartEvent) -> Option<Self> {
        let id = event.id.clone()?;
        Some(Self::StartedBy(id, event.measures.clone()))
    }
}

/// Keeps events, each as one atomic change of one span. The `id` of an event counts within its
/// target: the same `id` on another target is another event.
#[async_trait]
pub trait Events: Send + Sync + 'static {
    /// Opens a span (section 6.1), unless the answer says otherwise.
    async fn start(&self, new: NewSpan) -> Result<StartOutcome, StoreError>;

    /// Ends the target's open span (section 6.2), unless the answer says otherwise.
    async fn stop(&self, new: NewStop) -> Result<StopOutcome, StoreError>;

    /// The spans of a target that decide about an event, as many as the condition says: an open span, or one
    /// with the id, is found if it was kept before the call. It need not have its measures, except as
    /// [`SpansBy::StartedBy`] says.
    async fn find_spans(&self, target: &Target, by: &SpansBy) -> Result<Vec<Span>, StoreError>;
}

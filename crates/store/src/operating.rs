//! The interface of operators, and of what steers the programs: their actions, the audit trail, the
//! control and the backlog.

use async_trait::async_trait;
use sampler_domain::{CauseId, Change, Changed, Control, Span, Timestamp};
use uuid::Uuid;

use crate::{
    ActOutcome, AuditRecord, Backlog, BacklogQuery, ControllerState, KeptControl, Published,
    Resumption, StoreError,
};

/// Carries out operators' actions, and publishes what all instances read. Each action is in the audit
/// trail before it is carried out.
#[async_trait]
pub trait Operating: Send + Sync + 'static {
    /// Keeps a record, before its action is carried out. A record that is kept already stays as it is.
    async fn record_action(&self, record: &AuditRecord) -> Result<(), StoreError>;

    async fn record_outcome(&self, id: Uuid, outcome: ActOutcome) -> Result<(), StoreError>;

    /// Makes a change of a span that an operator asked for, if the span still has the version that was read.
    async fn change_by_operator(
        &self,
        read: &Span,
        change: &Change,
        now: Timestamp,
    ) -> Result<Changed, StoreError>;

    /// Resumes up to `limit` spans that were suspended for the cause by `until`. Returns how many.
    async fn resume_batch(
        &self,
        cause: CauseId,
        until: Timestamp,
        resumption: Resumption,
        limit: usize,
    ) -> Result<u64, StoreError>;

    /// Has a worker send a usage again that is missing upstream. Returns whether it is missing, and is not
    /// sent already.
    async fn resend_missing(&self, usage_guid: &str, now: Timestamp) -> Result<bool, StoreError>;

    /// The store's clock.
    async fn time(&self) -> Result<Timestamp, StoreError>;

    /// The settings of operators; the default, at version 0, if there are none.
    ///
    /// # Errors
    /// [`StoreError::Refused`] where another program has written settings that cannot be read.
    async fn control(&self) -> Result<KeptControl, StoreError>;

    /// Replaces the control, if its version is still this one. Returns whether it was replaced.
    async fn set_control(&self, control: &Control, version: i64) -> Result<bool, StoreError>;

    /// The last state of the controller; `None` if it never ran, or the document cannot be read.
    async fn controller(&self) -> Result<Option<Published<ControllerState>>, StoreError>;

    /// Replaces what the controller has decided, if the kept version is one less. Returns whether it
    /// was replaced.
    async fn set_controller(&self, state: &ControllerState) -> Result<bool, StoreError>;

    /// Counts the backlog. The cost grows with the number of due spans, but far less than reading
    /// them all would cost. Idle and complete spans cost nothing.
    async fn count_backlog(&self, query: &BacklogQuery) -> Result<Backlog, StoreError>;

    async fn publish_backlog(&self, backlog: &Backlog) -> Result<(), StoreError>;

    /// The last count; `None` if there is none, or its document cannot be read.
    async fn published_backlog(&self) -> Result<Option<Published<Backlog>>, StoreError>;

    /// The time since which receivers take events ([`crate::Work::limit_event_age`]): spans that ended
    /// before may be gone, and the ids of their events with them. The beginning of time where nothing was
    /// ever removed.
    async fn events_taken_since(&self) -> Result<Timestamp, StoreError>;

    /// Says how many intervals a worker does in a second. It counts as long as the worker is alive
    /// ([`crate::Work::heartbeat`]); the rate of an unknown worker is not kept.
    async fn report_rate(&self, worker: &str, rate: f64) -> Result<(), StoreError>;
}

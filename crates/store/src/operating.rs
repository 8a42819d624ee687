//! The interface of operators, and of what steers the programs: their actions, the audit trail, the
//! control and the backlog.

use async_trait::async_trait;
use sampler_domain::{CauseId, Change, Changed, Control, Resend, Span, Timestamp};
use uuid::Uuid;

use crate::{
    ActOutcome, AuditRecord, Backlog, BacklogQuery, ControllerState, EntryKey, KeptControl,
    Published, StoreError,
};

/// How many actions a span names, the last ones. An action whose answer was lost is looked for at
/// once, and each action needs a span that was suspended again, so it is among them.
pub const ACTS_NAMED: usize = 8;

/// Carries out operators' actions, and publishes what all instances read. Each action is in the audit
/// trail before it is carried out.
#[async_trait]
pub trait Operating: Send + Sync + 'static {
    /// Keeps a record, before its action is carried out. A record that is kept already stays as it is.
    async fn record_action(&self, record: &AuditRecord) -> Result<(), StoreError>;

    async fn record_outcome(&self, id: Uuid, outcome: ActOutcome) -> Result<(), StoreError>;

    /// Makes a change of a span that an operator asked for, such as [`Change::Resume`], if the span
    /// still is as it was read ([`Change::is_allowed`]). The span keeps the id of the action, so a change that
    /// was made is reported as made, whatever has changed the span since.
    async fn change_by_operator(
        &self,
        act: Uuid,
        span: &Span,
        change: &Change,
        now: Timestamp,
    ) -> Result<Changed, StoreError>;

    /// Marks the cause, so that workers resume all spans that are suspended under it when a worker finds the
    /// mark. That worker replaces the mark, [`Timestamp::MAX`], by its own time
    /// ([`crate::Causes::set_resuming`]): a time of a receiver's clock that is behind would leave some
    /// suspended. Returns whether there is such a cause.
    async fn resume_by_operator(&self, cause: CauseId) -> Result<bool, StoreError>;

    /// [`crate::Ledger::mark_resend`], for the receiver: has a worker send a usage again. Returns whether
    /// this call marked its entry.
    async fn resend_by_operator(
        &self,
        entry: &EntryKey,
        resend: &Resend,
    ) -> Result<bool, StoreError>;

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

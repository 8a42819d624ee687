//! The interfaces of a store, one for each purpose:
//!
//! | Interface | Purpose | Used by |
//! | --- | --- | --- |
//! | [`Events`] | keep starts and stops | the receiver |
//! | [`Reading`] | read spans, usages, sums and the audit trail | the receiver |
//! | [`Work`] | find spans that are due, change, probe and remove them | the worker |
//! | [`Ledger`] | keep an entry for each usage, and watch whether it counts | the worker |
//! | [`Operating`] | the actions of operators, the control, the backlog | both programs |
//!
//! Each change is one atomic change of one span; nothing needs a transaction. Writes that are in
//! flight at the same time can share a command: [`group`].
//!
//! There are two implementations, the MongoDB store and one in memory (`tests/store-testing`). Both
//! pass the same contract suite.

mod audit;
mod backlog;
mod control;
mod events;
pub mod group;
mod ledger;
mod limiter;
mod operating;
mod reading;
mod sums;
mod work;

use std::error::Error;

pub use audit::{ActOutcome, AuditPage, AuditPosition, AuditQuery, AuditRecord};
pub use backlog::{Backlog, BacklogQuery, ClosingBacklog, Published};
pub use control::{ControllerState, KeptControl};
pub use events::{Arrival, Events, IdKind, NewSpan, NewStop, SpansBy, StartOutcome, StopOutcome};
pub use ledger::{
    DueWatches, Entries, EntryOrder, EntryPosition, Ledger, LedgerSum, Missing, Watch,
    WatchOutcome, WatchPage, WatchQuery,
};
pub use limiter::Limiter;
pub use operating::Operating;
pub use reading::{
    CauseQuery, Reading, SpanPage, SpanPosition, SpanQuery, SuspendedCause, TargetFilter,
};
pub use sums::{CutUsage, SumPage, SumPosition, SumQuery, SumRow};
pub use work::{Alive, DuePages, DueQuery, Finished, Resumption, Work};

/// The target of `tracing` spans that are exported as spans of a trace. Their level is `trace`, so
/// that the log leaves them out: `trace_span!(target: TRACE, "…")`.
pub const TRACE: &str = "sampler_trace";

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store cannot be reached. Nothing was changed.
    #[error("the store cannot be reached")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
    /// Too many writes wait for the store. Nothing was changed.
    #[error("too many writes wait for the store")]
    Overloaded,
    /// The store makes an index that a search needs. Nothing was changed.
    #[error("the store makes an index for this")]
    Preparing,
    /// The store gave no answer, or none that is final. The write may or may not have been executed.
    #[error("the store gave no final answer")]
    Unknown(#[source] Box<dyn Error + Send + Sync>),
    /// The store refused. It would refuse again.
    #[error("the store refused")]
    Refused(#[source] Box<dyn Error + Send + Sync>),
}

impl StoreError {
    pub fn refused(reason: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Refused(reason.into())
    }
}

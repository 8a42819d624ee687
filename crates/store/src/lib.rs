//! The interfaces of a store, one for each purpose:
//!
//! | Interface | Purpose | Used by |
//! | --- | --- | --- |
//! | [`Events`] | keep starts and stops | the receiver |
//! | [`Work`] | find spans that are due, and change them | the worker |
//! | [`Ledger`] | keep an entry for each usage | the worker |
//! | [`Resends`] | send usages again that were skipped or set aside | the worker |
//! | [`Confirmations`] | follow up usages that Abacus has accepted | the worker |
//! | [`Causes`] | keep the causes of suspensions, resume their spans | the worker |
//! | [`Upkeep`] | adopt spans of an original, remove complete ones | the worker |
//! | [`Membership`] | know which workers are alive | the worker |
//! | [`Instances`] | keep the reports of the instances that run | both programs |
//! | [`Backlogs`] | count the backlog, and publish it to all instances | both programs |
//! | [`Controls`] | keep the control and the state of the controller | both programs |
//! | [`Replication`] | measure the majority commit lag | both programs |
//! | [`Queries`] | show spans, their usages and the audit trail | the receiver |
//! | [`Audit`] | keep the audit trail | the receiver |
//! | [`Acts`] | carry out acts of operators | the receiver |
//! | [`AllSpans`] | read all spans | the worker in shadow mode |
//! | [`SpanScan`] | go through all spans of a partition | the worker's auditor |
//!
//! Each change is one atomic change of one span; nothing needs a transaction. Writes that are in
//! flight at the same moment can share a command: [`group`].
//!
//! There are two implementations, the MongoDB store and, with the feature `testing`, one in memory
//! for tests and the simulation. Both pass the same contract suite.

mod acts;
mod all_spans;
mod audit;
mod backlog;
mod cause_pages;
mod confirmations;
#[cfg(feature = "testing")]
pub mod contract;
mod control;
mod error;
mod events;
pub mod group;
mod instances;
mod ledger;
mod membership;
#[cfg(feature = "testing")]
pub mod memory;
mod queries;
mod replication;
mod resends;
mod span_scan;
mod sums;
mod suspension;
mod upkeep;
mod work;

pub use acts::Acts;
pub use all_spans::{AllSpans, Page};
pub use audit::{ActOutcome, Audit, AuditPage, AuditPosition, AuditQuery, AuditRecord};
pub use backlog::{Backlog, BacklogQuery, Backlogs, ClosingBacklog, Published, Remaining};
pub use cause_pages::{
    BlockProgress, CauseBlock, CauseKey, CauseMark, CausePage, CausePosition, CauseQuery,
};
pub use confirmations::{Confirmation, Confirmations, Unconfirmed, UnconfirmedQuery};
pub use control::{ControllerState, Controls, KeptControl};
pub use error::StoreError;
pub use events::{Arrival, Events, IdKind, NewSpan, NewStop, StartOutcome, StopOutcome};
pub use instances::{
    INSTANCE_LIFETIME, INSTANCE_SHOWN, INSTANCES_MAX, Instance, InstanceProgram, Instances,
    SeenInstance, sort_instances,
};
pub use ledger::{Entries, Ledger, lifetime_from};
pub use membership::Membership;
pub use queries::{
    ListedSpan, Lookup, Queries, SpanPage, SpanPosition, SpanQuery, SuspendedCause, TargetFilter,
};
pub use replication::Replication;
pub use resends::{EntryKey, Resends};
pub use span_scan::{SpanKey, SpanKeys, SpanScan};
pub use sums::{SumPage, SumPosition, SumQuery, SumRow};
pub use suspension::{Causes, KeptCause, Probe, Resumption};
pub use upkeep::{Adopted, Finished, SLACK_LIFETIME, Upkeep};
pub use work::{DuePages, DueQuery, SearchClass, Work};

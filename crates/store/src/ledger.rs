//! The ledger: an entry for each usage that the upstream has accepted, and the watch over those that it may
//! set aside later.

use std::sync::Arc;

use async_trait::async_trait;
use sampler_domain::{Entry, Interval, SpanId, Target, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{StoreError, TargetFilter};

/// Some entries of a span, in the order in which they were accepted, or the other way round.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entries {
    pub entries: Vec<Entry>,
    /// The last entry that was read, if there may be more behind it.
    pub next: Option<EntryPosition>,
}

/// The position of an entry in a list: when it was accepted, then its id. Neither ever changes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EntryPosition {
    pub accepted_at: Timestamp,
    pub usage_guid: String,
}

impl EntryPosition {
    pub fn of(entry: &Entry) -> Self {
        Self {
            accepted_at: entry.acceptance.at,
            usage_guid: entry.usage_guid.clone(),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EntryOrder {
    #[default]
    Oldest,
    Newest,
}

/// The entries of a span that are kept: the account that is independent of what the span says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerSum {
    /// Where the interval of the entry starts that was accepted first of those that are kept and were not sent
    /// again; none where there is none. Only entries of the time from then on are counted: those before expire
    /// earlier.
    pub since: Option<Timestamp>,
    pub usages: u64,
    /// Their signed durations together, ms.
    pub duration: i64,
}

/// A usage that was accepted, and may not count: its upstream is asked until it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// The `dedup_id` of the usage.
    pub usage_guid: String,
    pub span: SpanId,
    pub target: Target,
    pub interval: Interval,
    /// The `Location` that Abacus gave it.
    pub location: Option<String>,
    /// When it was accepted the last time.
    pub accepted_at: Timestamp,
    /// When the upstream is asked next, or the usage is sent again.
    pub due_at: Timestamp,
    /// It was set aside, or was not there in time.
    pub missing: Option<Missing>,
    /// An operator has it sent again.
    pub is_resent: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    pub since: Timestamp,
    pub error: String,
}

/// What came of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchOutcome {
    /// The usage counts: the watch ends.
    Counts,
    /// The upstream does not have it yet, or gave no answer.
    AskAgain { at: Timestamp },
    /// It does not count. It is not asked for any more.
    Missing(Missing),
    /// It was sent again and accepted: the watch begins anew.
    Accepted {
        at: Timestamp,
        location: Option<String>,
        due_at: Timestamp,
    },
}

/// The query for watches that are due.
#[derive(Clone, Debug)]
pub struct DueWatches {
    pub partitions: Arc<[u32]>,
    pub now: Timestamp,
    pub limit: usize,
}

/// The query for the list of watches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchQuery {
    pub target: TargetFilter,
    /// Only usages of these resources; none where all are meant.
    pub resources: Option<Vec<sampler_domain::Id>>,
    /// Only those that are missing.
    pub missing: bool,
    /// Only watches behind this one.
    pub after: Option<EntryPosition>,
    pub limit: usize,
}

/// Watches, those that were accepted first at the beginning.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WatchPage {
    pub watches: Vec<Watch>,
    pub next: Option<EntryPosition>,
}

impl Watch {
    pub fn position(&self) -> EntryPosition {
        EntryPosition {
            accepted_at: self.accepted_at,
            usage_guid: self.usage_guid.clone(),
        }
    }
}

impl WatchQuery {
    /// Whether a watch belongs in the list, wherever the list begins.
    pub fn matches(&self, watch: &Watch) -> bool {
        let resources = self.resources.as_ref();
        self.target.matches(&watch.target)
            && resources.is_none_or(|ids| ids.contains(&watch.target.resource_id))
            && (!self.missing || watch.missing.is_some())
    }
}

/// Keeps an entry for each usage that the upstream accepted, and watches over them.
#[async_trait]
pub trait Ledger: Send + Sync + 'static {
    /// Keeps an entry until `expires_at`. The entry that was written first under the id of the usage stays, so
    /// writing it again is always safe. With `watch_at`, the usage is watched from then on
    /// (`spans_unconfirmed`); a watch that is there begins anew.
    async fn write_entry(
        &self,
        entry: &Entry,
        expires_at: Timestamp,
        watch_at: Option<Timestamp>,
    ) -> Result<(), StoreError>;

    /// The entry of a usage; none where it is not kept.
    async fn entry(&self, usage_guid: &str) -> Result<Option<Entry>, StoreError>;

    /// What the kept entries of a span add up to. Only what a majority has.
    async fn sum_of(&self, span: &SpanId, target: &Target) -> Result<LedgerSum, StoreError>;

    /// Watches that are due, the longest waiting first.
    async fn due_watches(&self, query: &DueWatches) -> Result<Vec<Watch>, StoreError>;

    /// Sets when a watch is due next, if it still is as it was read. Returns whether it was set: so one alone
    /// of several workers that have read the watch sends its usage.
    async fn claim_watch(&self, watch: &Watch, due_at: Timestamp) -> Result<bool, StoreError>;

    /// Records what came of watches that still are as they were read.
    async fn settle_watches(&self, outcomes: &[(Watch, WatchOutcome)]) -> Result<(), StoreError>;
}

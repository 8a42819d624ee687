//! The reading API's interface: spans, usages and their sums.

use async_trait::async_trait;
use sampler_domain::{Cause, CauseId, Id, Span, SpanId, SpanState, Target, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{
    AuditPage, AuditQuery, CutUsage, Entries, EntryOrder, EntryPosition, LedgerSum, StoreError,
    SumPage, SumQuery, Watch, WatchPage, WatchQuery,
};

/// Conditions on the fields of a target: each that is given must be the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetFilter([Option<Id>; 6]);

impl TargetFilter {
    /// Sets the condition on a field of [`Target::FIELDS`], by its name. Returns whether there is a field
    /// of this name.
    pub fn set(&mut self, name: &str, id: Id) -> bool {
        let index = Target::FIELDS.iter().position(|field| *field == name);
        if let Some(index) = index {
            self.0[index] = Some(id);
        }
        index.is_some()
    }

    /// The condition on a field.
    pub fn get(&self, name: &str) -> Option<&Id> {
        let index = Target::FIELDS.iter().position(|field| *field == name)?;
        self.0[index].as_ref()
    }

    /// All conditions, by the names of the fields.
    pub fn conditions(&self) -> impl Iterator<Item = (&'static str, &Id)> {
        let all = Target::FIELDS.into_iter().zip(&self.0);
        all.filter_map(|(name, id)| Some((name, id.as_ref()?)))
    }

    /// The field by which documents of these targets are to be found, and the condition on it.
    pub fn narrowed_by(&self) -> Option<(&'static str, &Id)> {
        SpanQuery::NARROWING
            .into_iter()
            .find_map(|name| Some((name, self.get(name)?)))
    }

    /// The one target that meets all conditions, where each field has a condition.
    pub fn target(&self) -> Option<Target> {
        let fields: Vec<&str> = self
            .0
            .iter()
            .map(|id| id.as_ref().map(Id::as_str))
            .collect::<Option<_>>()?;
        Some(Target::from_store(fields.try_into().ok()?))
    }

    pub fn matches(&self, target: &Target) -> bool {
        let fields = target.fields().into_iter().zip(&self.0);
        fields
            .into_iter()
            .all(|((_, id), wanted)| wanted.as_ref().is_none_or(|wanted| wanted == id))
    }
}

/// The position of a span in a list: its start, then its id. Neither ever changes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SpanPosition {
    pub start: Timestamp,
    pub id: SpanId,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpanQuery {
    /// Only spans of these targets. The organization, the resource or the instance must be among
    /// the conditions: the indexes begin with one of these.
    pub target: TargetFilter,
    /// Only spans of these resources; none where all are meant.
    pub resources: Option<Vec<Id>>,
    pub state: Option<SpanState>,
    /// Only spans that are suspended for this cause.
    pub cause: Option<CauseId>,
    /// Only spans of which something is excluded. These are found also without a condition on the target.
    pub excluded: bool,
    /// Only spans that run at this time or later.
    pub from: Option<Timestamp>,
    /// Only spans that start before this time.
    pub to: Option<Timestamp>,
    /// Only spans behind this one.
    pub after: Option<SpanPosition>,
    pub limit: usize,
}

impl SpanQuery {
    /// The names of the fields by which spans are found, the one that finds the fewest first.
    pub const NARROWING: [&'static str; 3] =
        ["resource_instance_id", "organization_id", "resource_id"];

    /// Whether a span is in the state that is asked for, suspended for the cause, and not wholly billed.
    pub fn has_state(&self, span: &Span) -> bool {
        self.state.is_none_or(|state| state == span.state())
            && (self.cause.is_none() || self.cause == span.suspension().map(|it| it.cause))
            && (!self.excluded || !span.processing.excluded.is_empty())
    }
}

impl SpanPosition {
    pub fn of(span: &Span) -> Self {
        Self {
            start: span.start,
            id: span.id.clone(),
        }
    }
}

/// A cause, and how many spans are suspended for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuspendedCause {
    pub id: CauseId,
    pub cause: Cause,
    /// Since when the span is suspended that waits longest.
    pub since: Timestamp,
    /// How many spans. No more than [`SuspendedCause::COUNT_MAX`] are counted for one answer: where there
    /// are more, each cause of a list is counted up to an equal part of that.
    pub spans: u64,
}

impl SuspendedCause {
    /// Spans that are counted for one answer.
    pub const COUNT_MAX: usize = 100_000;
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CauseQuery {
    /// Only of these resources.
    pub resources: Option<Vec<Id>>,
    pub limit: usize,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpanPage {
    /// The spans, the newest start first.
    pub spans: Vec<Span>,
    /// The position up to which the list was read, if there may be more behind it.
    pub next: Option<SpanPosition>,
}

/// Reads spans, usages and the audit trail, as a majority has them. It changes nothing, and reads a
/// bounded amount for each answer.
#[async_trait]
pub trait Reading: Send + Sync + 'static {
    /// Spans of a list, the newest start first. A page may hold fewer spans than its limit, or none,
    /// and still have a next one: as much as one answer may cost was read, and few matched. Each
    /// span that matches throughout is on exactly one page.
    async fn spans(&self, query: &SpanQuery) -> Result<SpanPage, StoreError>;

    /// The spans that were kept last, the last one first.
    async fn newest_spans(&self, limit: usize) -> Result<Vec<Span>, StoreError>;

    /// The span with this id; `None` where its resource is not one of `resources`.
    async fn span(&self, id: &str, resources: Option<&[Id]>) -> Result<Option<Span>, StoreError>;

    /// Causes for which spans are suspended, those with the most spans first.
    async fn causes(&self, query: &CauseQuery) -> Result<Vec<SuspendedCause>, StoreError>;

    /// One cause; none where no span is suspended for it.
    async fn cause(&self, id: CauseId) -> Result<Option<SuspendedCause>, StoreError>;

    /// Entries of the ledger for a span, behind `after`. A usage that is planned is on the span.
    async fn usages(
        &self,
        span: &SpanId,
        target: &Target,
        order: EntryOrder,
        after: Option<&EntryPosition>,
        limit: usize,
    ) -> Result<Entries, StoreError>;

    /// What the kept entries of a span add up to.
    async fn ledger_of(&self, span: &SpanId, target: &Target) -> Result<LedgerSum, StoreError>;

    /// Usages that are accepted, and are watched until they count.
    async fn unconfirmed(&self, query: &WatchQuery) -> Result<WatchPage, StoreError>;

    /// The watch of a usage; none where it is not watched.
    async fn watch(&self, usage_guid: &str) -> Result<Option<Watch>, StoreError>;

    /// The sums of usages of the ledger. A page may hold fewer rows than its limit, or none, and
    /// still have a next one. [`StoreError::Overloaded`] where even one window has too many usages
    /// to be added up in time. [`CutUsage`] where the windows would cut a usage.
    async fn sums(&self, query: &SumQuery) -> Result<Result<SumPage, CutUsage>, StoreError>;

    /// Records of the audit trail, the newest first.
    async fn audit(&self, query: &AuditQuery) -> Result<AuditPage, StoreError>;
}

//! The reading API's interface: spans, usages and their sums.

use std::cmp::Reverse;

use async_trait::async_trait;
use sampler_domain::{CauseId, Entry, Id, Span, SpanId, SpanState, Target, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{AuditPage, AuditQuery, Entries, KeptCause, StoreError, SumPage, SumQuery};

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
    /// Only spans that are suspended under this cause.
    pub cause: Option<CauseId>,
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

    /// Whether a span is in the state that is asked for, and suspended under the cause.
    pub fn has_state(&self, span: &Span) -> bool {
        let suspended = span.processing.suspended.as_ref();
        self.state.is_none_or(|state| state == span.state())
            && (self.cause.is_none() || self.cause == suspended.map(|it| it.cause))
    }

    /// Whether a span belongs in the list, wherever the list begins.
    pub fn matches(&self, span: &Span) -> bool {
        let resources = self.resources.as_ref();
        self.target.matches(&span.target)
            && resources.is_none_or(|ids| ids.contains(&span.target.resource_id))
            && self.has_state(span)
            && span.overlaps(self.from, self.to)
    }
}

/// A span, and what only the store knows of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedSpan {
    pub span: Span,
    /// When it needs a worker next; `None` if the document does not say so.
    pub due_at: Option<Timestamp>,
}

impl ListedSpan {
    pub fn position(&self) -> SpanPosition {
        SpanPosition {
            start: self.span.start,
            id: self.span.id.clone(),
        }
    }
}

/// A cause, how many spans are suspended under it, and how many usages were set aside for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuspendedCause {
    pub kept: KeptCause,
    /// How many spans. No more than [`SuspendedCause::COUNT_MAX`] are counted for one answer: where there
    /// are more, each cause of a list is counted up to an equal part of that.
    pub spans: u64,
    /// How many usages, counted in the same way.
    pub set_aside: u64,
    /// How many more causes its resource has that are not listed. Only the last listed cause of a
    /// resource says so.
    pub more: u64,
}

impl SuspendedCause {
    /// Spans that are counted for one answer.
    pub const COUNT_MAX: usize = 100_000;

    /// The causes to list, the largest first. A cause without spans and usages is not listed, unless it
    /// says how many more there are.
    pub fn list(mut causes: Vec<Self>) -> Vec<Self> {
        causes.retain(|it| it.spans > 0 || it.set_aside > 0 || it.more > 0);
        causes.sort_by_key(|it| {
            let (since, id) = (it.kept.since, it.kept.id);
            (Reverse(it.spans), Reverse(it.set_aside), since, id)
        });
        causes
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CauseQuery {
    /// Only of these resources.
    pub resources: Option<Vec<Id>>,
    /// How many causes of one resource are listed at the most.
    pub of_each: usize,
    pub limit: usize,
}

impl CauseQuery {
    /// The most causes that are ever listed.
    pub const LIMIT_MAX: usize = 1_000;

    /// How many causes of each resource are listed, where the resources have `counts` causes: the
    /// most with which the list has room for all resources. So none hides another.
    pub fn share(&self, counts: &[usize]) -> usize {
        (2..=self.of_each)
            .rev()
            .find(|share| {
                let listed: usize = counts.iter().map(|count| (*count).min(*share)).sum();
                listed <= self.limit
            })
            .unwrap_or(1)
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpanPage {
    /// The spans, the newest start first.
    pub spans: Vec<ListedSpan>,
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
    async fn newest_spans(&self, limit: usize) -> Result<Vec<ListedSpan>, StoreError>;

    /// The span with this id; `None` where its resource is not one of `resources`.
    async fn span(
        &self,
        id: &str,
        resources: Option<&[Id]>,
    ) -> Result<Option<ListedSpan>, StoreError>;

    /// Causes under which spans are suspended or usages were set aside, those with the most spans
    /// first. Of a resource with more causes than its [share](CauseQuery::share) the oldest are listed,
    /// and the last of them says how many there are besides.
    async fn causes(&self, query: &CauseQuery) -> Result<Vec<SuspendedCause>, StoreError>;

    /// One cause, also where no span is suspended under it.
    async fn cause(&self, id: CauseId) -> Result<Option<SuspendedCause>, StoreError>;

    /// Up to `limit` entries of the ledger for a span, which were planned at a later version than
    /// `after`. A usage that is planned and not answered is on the span.
    async fn usages(
        &self,
        span: &SpanId,
        target: &Target,
        after: Option<i64>,
        limit: usize,
    ) -> Result<Entries, StoreError>;

    /// The same from the end: entries that were planned at an earlier version than `before`, the last
    /// one first.
    async fn usages_from_end(
        &self,
        span: &SpanId,
        target: &Target,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Entries, StoreError>;

    async fn usage(&self, id: &str) -> Result<Option<Entry>, StoreError>;

    /// Whether a span has planned this usage, and the upstream has refused it: it is listed, and not in the
    /// ledger.
    async fn is_refused(&self, usage: &str) -> Result<bool, StoreError>;

    /// The sums of usages of the ledger. A page may hold fewer rows than its limit, or none, and
    /// still have a next one. [`StoreError::Overloaded`] where even one window has too many usages
    /// to be added up in time.
    async fn sums(&self, query: &SumQuery) -> Result<SumPage, StoreError>;

    /// Records of the audit trail, the newest first.
    async fn audit(&self, query: &AuditQuery) -> Result<AuditPage, StoreError>;
}

//! The rules of the store, as plain functions on a plain value. The store in memory puts a lock around
//! it.

mod backlog;
mod causes;
mod ledger;
mod watches;

use std::collections::BTreeMap;

use sampler_domain::partition::partition_of;
use sampler_domain::{
    Change, Changed, EventId, NotEnded, Span, SpanId, Target, Timestamp, decide_start, decide_stop,
};
use sampler_store::{
    DueQuery, NewSpan, NewStop, SpanPage, SpanPosition, SpanQuery, SpansBy, StartOutcome,
    StopOutcome, Watch,
};
use uuid::Uuid;

pub use ledger::StoredEntry;

/// A span with what only the store knows of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSpan {
    pub span: Span,
    /// The `correlation_id` that its stop brought; nil while it is open. No two spans of a target
    /// have the same one, so a stop that is carried out again, however late, ends no other span.
    pub correlation_id: Uuid,
}

/// The sort key of a due span: when it became due, and its id.
type DueKey = (Timestamp, SpanId);

/// All that is kept of spans. Most functions are one method of an interface, and as atomic as
/// that. Others are parts of one, or are for tests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    spans: BTreeMap<SpanId, StoredSpan>,
    /// By the ids of the usages.
    entries: BTreeMap<String, StoredEntry>,
    /// By the ids of the usages.
    watches: BTreeMap<String, Watch>,
}

impl Table {
    /// All spans that are kept, in the order of the ids.
    pub fn all(&self) -> impl Iterator<Item = &StoredSpan> {
        self.spans.values()
    }

    /// Puts a span in as it is, as the takeover of an original's collection does.
    pub fn put(&mut self, span: Span) {
        let correlation_id = correlation_id_of(&span);
        let kept = StoredSpan {
            span,
            correlation_id,
        };
        self.spans.insert(kept.span.id.clone(), kept);
    }

    /// Opens a span.
    pub fn start(&mut self, new: NewSpan) -> StartOutcome {
        if let Some(seen) = self.resolve_start(&new) {
            return seen;
        }
        self.put(new.span);
        StartOutcome::Opened
    }

    /// Inserts a span, unless a unique index refuses it: the id of the document, the id of the
    /// event within its target, or that the target has an open span. Says whether it was inserted.
    pub fn insert(&mut self, new: NewSpan) -> bool {
        let others = NotEnded {
            until: None,
            ..self.not_ended(&new.span)
        };
        if self.resolve_start_beside(&new, others).is_some() {
            return false;
        }
        self.put(new.span);
        true
    }

    /// The outcome of a start by what is kept for its target; nothing where the span is to be opened.
    pub fn resolve_start(&self, new: &NewSpan) -> Option<StartOutcome> {
        self.resolve_start_beside(new, self.not_ended(&new.span))
    }

    fn resolve_start_beside(&self, new: &NewSpan, others: NotEnded) -> Option<StartOutcome> {
        let span = &new.span;
        if self.spans.contains_key(&span.id) {
            return Some(StartOutcome::Opened);
        }
        let by_id = span.start_id.as_ref();
        let by_id = by_id.and_then(|id| self.find_by_start_id(&span.target, id));
        let decision = decide_start(&span.start_event(), by_id, others);
        StartOutcome::found(decision)
    }

    /// The refusal of a start by the end of a previous span, for which a search looks before the insert.
    pub fn find_overlap(&self, new: &NewSpan) -> Option<StartOutcome> {
        let others = NotEnded {
            is_open: false,
            ..self.not_ended(&new.span)
        };
        let room = others.require_room();
        room.err().map(StartOutcome::Refused)
    }

    fn not_ended(&self, new: &Span) -> NotEnded {
        let spans = self.all().map(|kept| &kept.span);
        let of_target = spans.filter(|span| span.target == new.target);
        NotEnded::by(new.start, of_target.map(|span| span.end))
    }

    /// Ends the target's open span.
    pub fn stop(&mut self, new: &NewStop) -> StopOutcome {
        if let Some(seen) = self.resolve_stop(new) {
            return seen;
        }
        let target = &new.event.target;
        let mut spans = self.spans.values_mut();
        let open = spans.find(|kept| is_open(&kept.span, target));
        let kept = open.expect("a stop that can be made has an open span");
        kept.span = kept.span.clone().ended(&new.event, new.client.clone());
        kept.correlation_id = new.correlation_id;
        StopOutcome::Ended
    }

    /// The outcome of a stop by what is kept for its target; nothing where the open span is to be ended.
    pub fn resolve_stop(&self, new: &NewStop) -> Option<StopOutcome> {
        let event = &new.event;
        let is_own =
            |kept: &StoredSpan| has_correlation_id(kept, &event.target, new.correlation_id);
        if self.all().any(is_own) {
            return Some(StopOutcome::Ended);
        }
        let by_id = event.id.as_ref();
        let by_id = by_id.and_then(|id| self.find_by_stop_id(&event.target, id));
        StopOutcome::found(decide_stop(event, by_id, self.open(&event.target)))
    }

    /// The span of the target that was started by the event with this id.
    pub fn find_by_start_id(&self, target: &Target, id: &EventId) -> Option<&Span> {
        self.first(|span| span.start_id.as_ref() == Some(id) && span.target == *target)
    }

    /// The span of the target that was stopped by the event with this id.
    pub fn find_by_stop_id(&self, target: &Target, id: &EventId) -> Option<&Span> {
        self.first(|span| span.end_id.as_ref() == Some(id) && span.target == *target)
    }

    /// The spans of a target that decide about an event.
    pub fn find_spans(&self, target: &Target, by: &SpansBy) -> Vec<&Span> {
        match by {
            SpansBy::StartedBy(id, _) => self.find_by_start_id(target, id).into_iter().collect(),
            SpansBy::StoppedBy(id) => self.find_by_stop_id(target, id).into_iter().collect(),
            SpansBy::NotEndedBy(moment) => self.find_not_ended(target, *moment),
        }
    }

    /// The spans of the target that have not ended by a moment: the open one, and the one that ends
    /// next after it.
    pub fn find_not_ended(&self, target: &Target, moment: Timestamp) -> Vec<&Span> {
        let spans = self.all().map(|kept| &kept.span);
        let is_there =
            |span: &&Span| span.target == *target && span.end.is_none_or(|end| end > moment);
        let mut spans: Vec<&Span> = spans.filter(is_there).collect();
        spans.sort_by_key(|span| span.end);
        let next = spans.iter().position(|span| span.end.is_some());
        spans.truncate(next.map_or(spans.len(), |next| next + 1));
        spans
    }

    /// Due spans with their sort keys, in the order of a search.
    pub fn due(&self, query: &DueQuery) -> Vec<(DueKey, &Span)> {
        let is_due = |span: &&Span| {
            let processing = &span.processing;
            // The hash behind a partition takes longer than to see the rest.
            !processing.complete
                && processing.due_at <= query.now
                && query.partitions.contains(&partition_of(&span.target))
        };
        let due = self.all().map(|kept| &kept.span).filter(is_due);
        let mut due: Vec<(DueKey, &Span)> = due
            .map(|span| ((span.processing.due_at, span.id.clone()), span))
            .collect();
        due.sort_by(|one, other| one.0.cmp(&other.0));
        due
    }

    /// One span.
    pub fn find(&self, id: &SpanId) -> Option<&Span> {
        self.spans.get(id).map(|kept| &kept.span)
    }

    /// A page of the spans that a query asks for, the newest start first.
    pub fn spans(&self, query: &SpanQuery) -> SpanPage {
        let is_behind = |span: &&Span| {
            let after = query.after.as_ref();
            after.is_none_or(|after| SpanPosition::of(span) < *after)
        };
        let found = self.all().map(|kept| &kept.span);
        let found = found.filter(|span| matches(query, span));
        let mut spans: Vec<Span> = found.filter(is_behind).cloned().collect();
        spans.sort_by_key(|span| std::cmp::Reverse(SpanPosition::of(span)));
        let has_more = spans.len() > query.limit;
        spans.truncate(query.limit);
        SpanPage {
            next: spans.last().filter(|_| has_more).map(SpanPosition::of),
            spans,
        }
    }

    /// The span whose id is written so.
    pub fn span(&self, id: &str) -> Option<&Span> {
        self.first(|span| span.id.to_string() == id)
    }

    /// Makes a change if the span still has the version that was read. Only `processing` is written.
    pub fn change(&mut self, read: &Span, change: &Change) -> Changed {
        let kept = self.spans.get_mut(&read.id);
        let kept = kept.filter(|kept| kept.span.processing.version == read.processing.version);
        let Some(kept) = kept else {
            return Changed::Rejected;
        };
        kept.span.processing = change.after.processing.clone();
        Changed::Made
    }

    /// Up to `limit` complete spans that end before `cutoff`.
    pub fn completed_before(&self, cutoff: Timestamp, limit: usize) -> Vec<SpanId> {
        let over = self
            .all()
            .filter(|kept| kept.span.processing.complete && kept.span.processing.last.end < cutoff);
        over.take(limit).map(|kept| kept.span.id.clone()).collect()
    }

    /// Removes those of the spans that are complete. Returns how many.
    pub fn remove(&mut self, ids: &[SpanId]) -> u64 {
        let before = self.spans.len();
        self.spans
            .retain(|id, kept| !(kept.span.processing.complete && ids.contains(id)));
        (before - self.spans.len()) as u64
    }

    fn first(&self, matches: impl Fn(&Span) -> bool) -> Option<&Span> {
        self.all().map(|kept| &kept.span).find(|span| matches(span))
    }

    fn open(&self, target: &Target) -> Option<&Span> {
        self.first(|span| is_open(span, target))
    }
}

/// The `correlation_id` of a span that was put in: nil while it is open, one of its own once it has
/// ended.
fn correlation_id_of(span: &Span) -> Uuid {
    match span.end {
        Some(_) => Uuid::new_v5(&Uuid::NAMESPACE_OID, span.id.to_string().as_bytes()),
        None => Uuid::nil(),
    }
}

/// Whether a span belongs in a list, wherever the list begins.
fn matches(query: &SpanQuery, span: &Span) -> bool {
    let resources = query.resources.as_ref();
    query.target.matches(&span.target)
        && resources.is_none_or(|ids| ids.contains(&span.target.resource_id))
        && query.has_state(span)
        && span.overlaps(query.from, query.to)
}

fn is_open(span: &Span, target: &Target) -> bool {
    span.end.is_none() && span.target == *target
}

/// Whether a stop with this correlation id has ended the span.
fn has_correlation_id(kept: &StoredSpan, target: &Target, correlation_id: Uuid) -> bool {
    kept.correlation_id == correlation_id && kept.span.target == *target
}

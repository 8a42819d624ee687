//! The rules of the store, as plain functions on a plain value: what becomes of the spans that are
//! kept. The store in memory puts a lock around it; the model of the protocol makes it a part of
//! each of its states.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use sampler_domain::partition::partition_of;
use sampler_domain::{
    EventId, Planned, Policy, Span, SpanId, StartEvent, Target, Timestamp, next_step,
};

use crate::{Adopted, Changed, DueQuery, Failure, NewSpan, NewStop, Next, Started, Stopped};

/// A span with what only the store knows of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kept {
    /// The span.
    pub span: Span,
    /// When it needs a worker next; none where an original Sampler started it.
    pub due_at: Option<Timestamp>,
    /// Why its planned interval could not be delivered.
    pub last_error: Option<String>,
}

/// Where a span stands among those that are due: how urgent it is, when it fell due, and its id.
pub type DuePlace = (u8, Timestamp, SpanId);

/// All spans that are kept. Each function is one method of [`SpanStore`](crate::SpanStore), and
/// as atomic as that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Table {
    spans: BTreeMap<SpanId, Kept>,
}

impl Table {
    /// All that is kept, in the order of the ids.
    pub fn all(&self) -> impl Iterator<Item = &Kept> {
        self.spans.values()
    }

    /// Puts a span in as an original Sampler leaves it: without a moment at which it is due.
    pub fn insert_original(&mut self, span: Span) {
        let kept = Kept {
            span,
            due_at: None,
            last_error: None,
        };
        self.spans.insert(kept.span.id.clone(), kept);
    }

    /// Opens a span.
    ///
    /// # Panics
    /// Where the id of the document is that of another span.
    pub fn start(&mut self, new: NewSpan) -> Started {
        let event = StartEvent {
            id: new.span.start_id.clone(),
            timestamp: new.span.start,
            target: new.span.target.clone(),
            measures: new.span.measures.clone(),
        };
        if event.id.is_some()
            && let Some(earlier) = self.first(|span| span.start_id == event.id)
        {
            let differences = event.differences(earlier);
            return if differences.is_empty() {
                Started::Repeated
            } else {
                Started::IdTaken(differences)
            };
        }
        if self.open(&event.target).is_some() {
            return Started::AlreadyOpen;
        }
        if !new.may_overlap
            && let Some(until) = self.overlap(&event.target, event.timestamp)
        {
            return Started::Overlaps { until };
        }
        let kept = Kept {
            span: new.span,
            due_at: Some(new.due_at),
            last_error: None,
        };
        let replaced = self.spans.insert(kept.span.id.clone(), kept);
        assert!(replaced.is_none(), "ids of documents are never drawn twice");
        Started::Opened
    }

    /// Ends the target's open span.
    pub fn stop(&mut self, new: NewStop) -> Stopped {
        let NewStop { event, .. } = new;
        if event.id.is_some()
            && let Some(earlier) = self.first(|span| span.end_id == event.id)
        {
            let differences = event.differences(earlier);
            return if differences.is_empty() {
                Stopped::Repeated
            } else {
                Stopped::IdTaken(differences)
            };
        }
        let is_open = |kept: &&mut Kept| is_open(&kept.span, &event.target);
        let Some(kept) = self.spans.values_mut().find(is_open) else {
            return Stopped::NotOpen;
        };
        if event.timestamp < kept.span.start {
            return Stopped::BeforeStart {
                start: kept.span.start,
            };
        }
        kept.span.end = Some(event.timestamp);
        kept.span.end_id = event.id;
        kept.due_at = Some(
            kept.due_at
                .map_or(event.timestamp, |due| due.min(event.timestamp)),
        );
        Stopped::Ended
    }

    /// The span that was started by the event with this id.
    pub fn started_by(&self, id: &EventId) -> Option<&Span> {
        self.first(|span| span.start_id.as_ref() == Some(id))
    }

    /// The span that was stopped by the event with this id.
    pub fn stopped_by(&self, id: &EventId) -> Option<&Span> {
        self.first(|span| span.end_id.as_ref() == Some(id))
    }

    /// Spans that need a worker, each with its place in their order: the most urgent first.
    pub fn due(&self, query: &DueQuery) -> Vec<(DuePlace, &Span)> {
        let mut due = Vec::new();
        for Kept { span, due_at, .. } in self.spans.values() {
            let Some(due_at) = due_at.filter(|due_at| *due_at <= query.now) else {
                continue;
            };
            let mine = query.partitions.contains(&partition_of(&span.target));
            if mine && !span.processing.complete {
                let place = (query.urgency(span, due_at), due_at, span.id.clone());
                due.push((place, span));
            }
        }
        due.sort_by(|one, other| one.0.cmp(&other.0));
        due
    }

    /// One span.
    pub fn find(&self, id: &SpanId) -> Option<&Span> {
        self.spans.get(id).map(|kept| &kept.span)
    }

    /// Up to `limit` spans behind this one, in the order of their ids.
    pub fn page(&self, after: Option<&SpanId>, limit: usize) -> Vec<Span> {
        let behind = (after.map_or(Unbounded, Excluded), Unbounded);
        let spans = self.spans.range::<SpanId, _>(behind).take(limit);
        spans.map(|(_, kept)| kept.span.clone()).collect()
    }

    /// Plans an interval for a span.
    pub fn plan(&mut self, span: &Span, planned: Planned, due_at: Timestamp) -> Changed {
        self.change(span, |kept| {
            kept.span.processing.planned = Some(planned);
            kept.span.processing.version += 1;
            kept.due_at = Some(due_at);
        })
    }

    /// Notes that the planned interval was executed, and what comes next.
    pub fn executed(&mut self, span: &Span, next: Next, due_at: Timestamp) -> Changed {
        self.change(span, |kept| {
            kept.span = kept.span.executed();
            match next {
                Next::Planned(planned) => kept.span.processing.planned = Some(planned),
                Next::Wait => {}
                Next::Complete => kept.span.processing.complete = true,
            }
            kept.due_at = Some(due_at);
            kept.last_error = None;
        })
    }

    /// Notes that a span is sampled to its end.
    pub fn complete(&mut self, span: &Span) -> Changed {
        self.change(span, |kept| {
            kept.span.processing.complete = true;
            kept.span.processing.version += 1;
        })
    }

    /// Sets when a span with nothing due needs a worker next.
    pub fn postpone(&mut self, span: &Span, due_at: Timestamp) -> Changed {
        self.change(span, |kept| kept.due_at = Some(due_at))
    }

    /// Notes that the planned interval could not be delivered.
    pub fn failed(&mut self, span: &Span, failure: Failure) -> Changed {
        self.change(span, |kept| {
            kept.span.processing.attempts += 1;
            kept.due_at = Some(failure.retry_at);
            kept.last_error = Some(failure.error);
        })
    }

    /// Takes in spans that an original Sampler started.
    pub fn adopt(&mut self, policy: &Policy, now: Timestamp, limit: usize) -> Adopted {
        let strangers = self
            .spans
            .values_mut()
            .filter(|kept| kept.due_at.is_none() && !kept.span.processing.complete);
        let mut adopted = Adopted::default();
        for kept in strangers.take(limit) {
            kept.due_at = Some(next_step(&kept.span, now, policy).due_at(now));
            adopted.starts += 1;
        }
        adopted
    }

    /// Up to `limit` complete spans that end before `cutoff`.
    pub fn completed_before(&self, cutoff: Timestamp, limit: usize) -> Vec<SpanId> {
        let over = self
            .spans
            .values()
            .filter(|kept| kept.span.processing.complete && kept.span.processing.last.end < cutoff);
        over.take(limit).map(|kept| kept.span.id.clone()).collect()
    }

    /// Removes those of the spans that are complete; says how many.
    pub fn remove(&mut self, ids: &[SpanId]) -> u64 {
        let before = self.spans.len();
        self.spans
            .retain(|id, kept| !(kept.span.processing.complete && ids.contains(id)));
        (before - self.spans.len()) as u64
    }

    /// Makes a change of `processing` if the span still is as it was read.
    fn change(&mut self, span: &Span, change: impl FnOnce(&mut Kept)) -> Changed {
        let Some(kept) = self.spans.get_mut(&span.id) else {
            return Changed::Lost;
        };
        let unchanged = kept.span.processing.version == span.processing.version
            && kept.span.end == span.end
            && !kept.span.processing.complete;
        if !unchanged {
            return Changed::Lost;
        }
        change(kept);
        Changed::Done(Box::new(kept.span.clone()))
    }

    fn first(&self, matches: impl Fn(&Span) -> bool) -> Option<&Span> {
        self.spans
            .values()
            .map(|kept| &kept.span)
            .find(|span| matches(span))
    }

    fn open(&self, target: &Target) -> Option<&Span> {
        self.first(|span| is_open(span, target))
    }

    fn overlap(&self, target: &Target, start: Timestamp) -> Option<Timestamp> {
        let later = |span: &Span| span.target == *target && span.end > Some(start);
        self.first(later).and_then(|span| span.end)
    }
}

fn is_open(span: &Span, target: &Target) -> bool {
    span.end.is_none() && span.target == *target
}

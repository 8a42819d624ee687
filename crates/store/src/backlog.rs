//! The backlog, and how fast it is sampled.

use sampler_domain::{ClosingMonth, SUSPENDED_DUE_AT, Span, Timestamp};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug)]
pub struct BacklogQuery {
    /// The time by which spans are due.
    pub now: Timestamp,
    pub closing: Option<ClosingMonth>,
}

/// The backlog: spans that wait for the workers. It is kept as it is declared here.
///
/// A span waits if it is due, or if its usage failed and is tried again later. Suspended spans are
/// counted apart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Backlog {
    /// Spans that wait.
    pub due: u64,
    /// Whether more than `due` wait: counting all would have taken too long.
    pub at_least: bool,
    /// When the one that waits longest fell due.
    pub oldest: Option<Timestamp>,
    pub suspended: u64,
    /// Intervals that all workers do in a second, while they have something to do.
    pub rate: f64,
    pub closing: Option<ClosingBacklog>,
    /// How long counting took, ms. The pause until the next count grows with it.
    pub cost: i64,
}

/// The backlog of the month that closes next, without suspended spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClosingBacklog {
    /// The first millisecond of the month.
    pub start: Timestamp,
    pub end: Timestamp,
    /// Spans with something left; the first of them, where very many are due.
    pub spans: u64,
}

/// Something that one instance writes for all.
#[derive(Clone, Debug, PartialEq)]
pub struct Published<T> {
    pub value: T,
    /// How long ago it was written, ms, by the store's own clock.
    pub age: i64,
}

impl Backlog {
    /// Nothing, as far as it is known what is to be counted.
    pub fn nothing(query: &BacklogQuery) -> Self {
        let closing = query.closing.map(|month| ClosingBacklog {
            start: month.start,
            end: month.end,
            spans: 0,
        });
        Self {
            closing,
            ..Self::default()
        }
    }

    /// Counts a span that is not complete.
    pub fn add(&mut self, span: &Span, query: &BacklogQuery) {
        let due_at = span.processing.due_at;
        // A suspended span has failed, too, and waits for no worker.
        let is_failed = span.processing.failure.is_some() && due_at < SUSPENDED_DUE_AT;
        if due_at <= query.now || is_failed {
            self.due += 1;
            let since = if is_failed {
                fell_due(span).unwrap_or(due_at)
            } else {
                due_at
            };
            self.oldest = Some(self.oldest.map_or(since, |oldest| oldest.min(since)));
        }
        if let (Some(left), Some(month)) = (&mut self.closing, query.closing) {
            let is_in_time = due_at <= month.last_due_at.max(query.now) || is_failed;
            if is_in_time && is_left(span, month, query.now) {
                left.spans += 1;
            }
        }
    }
}

/// Whether a span has time of the closing month left to sample, whichever way sampling goes.
fn is_left(span: &Span, month: ClosingMonth, now: Timestamp) -> bool {
    let sampled_to = span.sampled_to();
    let reached = span.end.map_or(now, |end| end.min(now));
    sampled_to != reached && sampled_to.min(reached) < month.end
}

/// When a span whose usage failed fell due: at the end of the planned interval; or, if that goes
/// backwards, when it was planned.
fn fell_due(span: &Span) -> Option<Timestamp> {
    let planned = span.processing.planned.as_ref()?;
    let is_forward = planned.interval.end > planned.interval.start;
    Some(if is_forward {
        planned.interval.end
    } else {
        planned.planned_at
    })
}

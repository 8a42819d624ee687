//! The rules of the backlog.

use sampler_domain::{ClosingMonth, SUSPENDED_DUE_AT, Span, Timestamp};
use sampler_store::{Backlog, BacklogQuery, ClosingBacklog};

use super::Table;

impl Table {
    /// The backlog, with a rate of zero.
    pub fn backlog(&self, query: &BacklogQuery) -> Backlog {
        let closing = query.closing.map(|month| ClosingBacklog {
            start: month.start,
            end: month.end,
            spans: 0,
        });
        let mut backlog = Backlog {
            closing,
            ..Backlog::default()
        };
        let spans = self.all().map(|kept| &kept.span);
        for span in spans.filter(|span| !span.processing.complete) {
            backlog.suspended += u64::from(span.suspension().is_some());
            add(&mut backlog, span, query);
        }
        backlog
    }
}

/// Counts a span that is not complete.
fn add(backlog: &mut Backlog, span: &Span, query: &BacklogQuery) {
    let due_at = span.processing.due_at;
    // A suspended span has failed, too, and waits for no worker.
    let is_failed = span.processing.failure.is_some() && due_at < SUSPENDED_DUE_AT;
    if due_at <= query.now || is_failed {
        let since = fell_due(span).filter(|_| is_failed).unwrap_or(due_at);
        backlog.due += 1;
        backlog.oldest = Some(backlog.oldest.map_or(since, |oldest| oldest.min(since)));
    }
    if let (Some(left), Some(month)) = (&mut backlog.closing, query.closing) {
        let is_in_time = due_at <= month.last_due_at.max(query.now) || is_failed;
        left.spans += u64::from(is_in_time && is_left(span, month, query.now));
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

//! How long a span keeps its permit to be driven.
//!
//! A span with a long backlog has many intervals to post. If it kept its permit until none is left, a
//! few such spans would keep all others waiting for hours. When a month closes, those others would
//! never be billed. So a span yields its permit after a turn, and the change that records its
//! last execution puts it behind all spans that have waited longer. That order is in the store: it
//! holds for all workers and searches, and over restarts.

use std::sync::atomic::Ordering;

use sampler_domain::{Change, ClosingMonth, Next, Span, Step, Timestamp, next_step};
use sampler_settings::millis;
use sampler_steering::MonthClose;

use crate::Worker;

/// How many intervals a span executes before it yields its permit to one that waits. Finding it again
/// costs a read, which is little beside 32 posts and changes. Others wait about a second for a turn.
pub(crate) const TURN_LENGTH: u32 = 32;

/// The progress of a span since it got its permit.
pub(crate) struct Turn {
    executed: u32,
    /// The month that was closing when it got the permit.
    closing: Option<ClosingMonth>,
}

#[derive(PartialEq)]
pub(crate) enum TurnState {
    Continues,
    Yielded,
}

/// A span yields its permit.
pub(crate) struct Yield {
    /// Its new `due_at`, after all spans that have waited longer.
    pub(crate) due_at: Timestamp,
    /// Whether its next interval belongs to the closing month.
    pub(crate) is_urgent: bool,
}

impl Worker {
    /// The month that the upstream closes soon.
    pub(crate) fn closing(&self, now: Timestamp) -> Option<ClosingMonth> {
        self.month().closing(now)
    }

    pub fn month(&self) -> MonthClose {
        MonthClose {
            month_slack: millis(self.settings.month.month_slack),
            stop_grace: self.policy.stop_grace,
        }
    }

    /// A span's turn begins.
    pub(crate) fn turn(&self) -> Turn {
        Turn {
            executed: 0,
            closing: self.closing(self.now()),
        }
    }

    /// Whether the next interval of a span is due and belongs to the closing month.
    pub(crate) fn is_urgent(&self, span: &Span, now: Timestamp) -> bool {
        let Some(closing) = self.closing(now) else {
            return false;
        };
        match next_step(span, now, &self.policy) {
            Step::Execute(planned) => closing.holds(planned.interval.midpoint()),
            Step::Plan(interval) => closing.holds(interval.midpoint()),
            Step::Complete | Step::Wait(_) => false,
        }
    }

    /// Counts the interval that a change records, if another one follows at once. If the turn is over then,
    /// the change gets a `due_at` after all spans that have waited longer.
    pub(crate) fn yield_if_turn_over(
        &self,
        span: &Span,
        change: &mut Change,
        turn: &mut Turn,
        now: Timestamp,
    ) -> Option<Yield> {
        let (Change::Executed {
            next: Next::Planned(_),
            due_at,
        }
        | Change::Skipped {
            next: Next::Planned(_),
            due_at,
        }) = change
        else {
            return None;
        };
        turn.executed += 1;
        let yielded = self.yields(turn, &span.executed(), now)?;
        *due_at = yielded.due_at;
        Some(yielded)
    }

    /// Whether a span, which is now `after`, must yield its permit: its turn is over and a found span waits,
    /// or a month has begun to close since the turn began.
    fn yields(&self, turn: &Turn, after: &Span, now: Timestamp) -> Option<Yield> {
        let is_over = turn.executed >= TURN_LENGTH && self.spans_wait.load(Ordering::Relaxed);
        let closing = self.closing(now);
        if !is_over && (closing.is_none() || closing == turn.closing) {
            return None;
        }
        let is_urgent = self.is_urgent(after, now);
        Some(Yield {
            due_at: closing.map_or(now, |closing| closing.yielded_due_at(now, is_urgent)),
            is_urgent,
        })
    }
}

//! How long a span keeps its permit to be driven.
//!
//! A span with a long backlog has many intervals to post. If it kept its permit until none is left, a
//! few such spans would keep all others waiting for hours. So a span yields its permit after a turn, and
//! the change that records its last execution puts it behind all spans that have waited longer. That
//! order is in the store: it holds for all workers and searches, and over restarts.

use std::sync::atomic::Ordering;

use sampler_domain::{Change, ClosingMonth, Next, Timestamp};
use sampler_settings::millis;
use sampler_steering::MonthClose;

use crate::Worker;

/// How many intervals a span executes before it yields its permit to one that waits. Finding it again
/// costs a read, which is little beside 32 posts and changes. Others wait about a second for a turn.
pub(crate) const TURN_LENGTH: u32 = 32;

/// How many intervals a span has executed since it got its permit.
#[derive(Default)]
pub(crate) struct Turn(u32);

#[derive(PartialEq)]
pub(crate) enum TurnState {
    Continues,
    Yielded,
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

    /// Counts the interval that a change records, if another one follows at once. If the turn is over then
    /// and a found span waits, the change gets a `due_at` after all spans that have waited longer.
    pub(crate) fn yield_if_turn_over(
        &self,
        change: &mut Change,
        turn: &mut Turn,
        now: Timestamp,
    ) -> TurnState {
        let (Change::Executed {
            next: Next::Planned(_),
            due_at,
        }
        | Change::Skipped {
            next: Next::Planned(_),
            due_at,
        }) = change
        else {
            return TurnState::Continues;
        };
        turn.0 += 1;
        if turn.0 < TURN_LENGTH || !self.spans_wait.load(Ordering::Relaxed) {
            return TurnState::Continues;
        }
        *due_at = now;
        TurnState::Yielded
    }
}

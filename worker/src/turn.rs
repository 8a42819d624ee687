//! How long a span keeps its permit to be driven.
//!
//! A span with a long backlog has many intervals to post. If it kept its permit until none is left, a
//! few such spans would keep all others waiting for hours. When a month closes, those others would
//! never be billed. So a span yields its permit after a turn, and the change that notes its
//! last execution puts it behind all spans that have waited longer. That order is in the store: it
//! holds for all workers and searches, and over restarts.

use std::sync::{Mutex, MutexGuard};

use sampler_domain::{ClosingMonth, Span, Step, Timestamp, next_step};
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

/// How many queued spans wait without a reserved permit: urgent ones, whose next interval belongs to
/// the closing month, and others.
#[derive(Debug, Default)]
pub(crate) struct WaitingCounts(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    urgent: usize,
    others: usize,
    /// Whether an urgent span has yielded its permit since the last search began. Only another search
    /// finds it.
    has_yielded_urgent: bool,
}

/// A span yields its permit.
#[derive(Clone, Copy)]
pub(crate) struct Yield {
    /// Its new `due_at`, after all spans that have waited longer.
    pub(crate) due_at: Timestamp,
    /// Whether its next interval belongs to the closing month.
    pub(crate) is_urgent: bool,
}

impl WaitingCounts {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().expect("nobody panics with it")
    }

    /// One more span waits.
    pub(crate) fn add(&self, is_urgent: bool) {
        *self.lock().of(is_urgent) += 1;
    }

    /// Notes that a span has yielded its permit.
    pub(crate) fn note_yield(&self, yielded: Yield) {
        self.lock().has_yielded_urgent |= yielded.is_urgent;
    }

    /// Whether an urgent span has yielded its permit since the last search began. Only another search
    /// finds it.
    pub(crate) fn has_yielded_urgent(&self) -> bool {
        self.lock().has_yielded_urgent
    }

    /// No span waits.
    pub(crate) fn clear(&self) {
        *self.lock() = Counts::default();
    }

    /// At most `left` spans wait without a permit that is reserved for them.
    pub(crate) fn lower_to(&self, is_urgent: bool, left: usize) {
        let mut counts = self.lock();
        let count = counts.of(is_urgent);
        *count = left.min(*count);
    }

    /// Reserves a permit for an urgent span, if one waits. A reservation is for one permit, so that
    /// one span that waits does not end the turns of all.
    fn reserve_urgent(&self) -> bool {
        self.lock().take(true)
    }

    /// Reserves a permit for a span, if one waits.
    fn reserve(&self) -> bool {
        let mut counts = self.lock();
        counts.take(true) || counts.take(false)
    }
}

impl Counts {
    fn of(&mut self, is_urgent: bool) -> &mut usize {
        if is_urgent {
            &mut self.urgent
        } else {
            &mut self.others
        }
    }

    fn take(&mut self, is_urgent: bool) -> bool {
        let count = self.of(is_urgent);
        let is_one = *count > 0;
        *count = count.saturating_sub(1);
        is_one
    }
}

impl Worker {
    /// The month that the upstream closes soon.
    pub(crate) fn closing(&self, now: Timestamp) -> Option<ClosingMonth> {
        self.month().closing(now)
    }

    pub fn month(&self) -> MonthClose {
        MonthClose {
            slack: millis(self.settings.month.month_slack),
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

    /// Notes that a span, which is now `after`, has executed an interval. Returns a [`Yield`] if the
    /// span must yield its permit.
    ///
    /// When a month begins to close, all spans yield. While it closes, an urgent span yields only to
    /// urgent spans, and any other span yields to an urgent one after each interval.
    pub(crate) fn yields_after(
        &self,
        turn: &mut Turn,
        after: &Span,
        now: Timestamp,
    ) -> Option<Yield> {
        turn.executed += 1;
        let is_over = turn.executed >= TURN_LENGTH;
        let closing = self.closing(now);
        let is_urgent = self.is_urgent(after, now);
        let yields = if closing.is_some() && closing != turn.closing {
            true
        } else if is_urgent {
            is_over && self.waiting.reserve_urgent()
        } else {
            self.waiting.reserve_urgent() || (is_over && self.waiting.reserve())
        };
        yields.then(|| Yield {
            due_at: closing.map_or(now, |closing| closing.yielded_due_at(now, is_urgent)),
            is_urgent,
        })
    }
}

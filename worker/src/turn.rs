//! How long a span keeps its slot.
//!
//! A span with a long backlog has one interval after the other to post. If it kept its slot until
//! none is left, a few such spans would keep all others waiting for hours, also when a month
//! closes and what waits is not billed any more. So it gives its slot back, and the change that
//! notes its last execution puts it behind all that has waited longer. That order is in the store:
//! it holds for all workers, for each search, and over restarts.

use std::sync::{Mutex, MutexGuard};

use sampler_domain::{ClosingMonth, Span, Step, Timestamp, next_step};
use sampler_settings::millis;

use crate::Worker;

/// How many intervals a span executes before it gives its slot back to one that waits. Finding it
/// again costs a read, which is little beside so many posts and notes; and others wait no longer
/// than a second or so for one turn.
pub(crate) const TURN: u32 = 32;

/// What a span has done since it got its slot.
pub(crate) struct Turn {
    executed: u32,
    /// The month that was closing when it got the slot.
    closing: Option<ClosingMonth>,
}

/// The found spans that wait for a slot and have been promised none: how many of them go on within
/// the month that closes, and how many others there are.
#[derive(Debug, Default)]
pub(crate) struct Waiting(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    urgent: usize,
    others: usize,
    /// Whether a span that goes on within the month that closes has given its slot back since the
    /// last search was begun: only another search can find it.
    put_back: bool,
}

/// Where a span stands that gives its slot back.
#[derive(Clone, Copy)]
pub(crate) struct PutBack {
    /// What its `due_at` becomes.
    pub(crate) due_at: Timestamp,
    /// Whether it goes on within the month that closes.
    pub(crate) is_urgent: bool,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().expect("nobody panics with it")
    }

    /// One more waits.
    pub(crate) fn add(&self, is_urgent: bool) {
        *self.lock().of(is_urgent) += 1;
    }

    /// A span has given its slot back, and is not held by this worker any more.
    pub(crate) fn put_back(&self, put_back: PutBack) {
        self.lock().put_back |= put_back.is_urgent;
    }

    /// Whether only another search finds all that go on within the month that closes.
    pub(crate) fn is_put_back(&self) -> bool {
        self.lock().put_back
    }

    /// Nothing that was found waits any more.
    pub(crate) fn clear(&self) {
        *self.lock() = Counts::default();
    }

    /// So many are left, whatever was promised.
    pub(crate) fn limit(&self, is_urgent: bool, left: usize) {
        let mut counts = self.lock();
        let count = counts.of(is_urgent);
        *count = left.min(*count);
    }

    /// Promises a slot to one that goes on within the month that closes, if such a one waits. A
    /// promise is for one slot, so that one span that waits does not end the turns of all.
    fn promise_urgent(&self) -> bool {
        self.lock().take(true)
    }

    /// Promises a slot to one that waits.
    fn promise(&self) -> bool {
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
    /// The month that Abacus is about to close.
    pub(crate) fn closing(&self, now: Timestamp) -> Option<ClosingMonth> {
        let month_slack = millis(self.options.abacus.month_slack);
        ClosingMonth::at(now, month_slack, self.options.policy.grace)
    }

    /// A span's turn begins.
    pub(crate) fn turn(&self) -> Turn {
        Turn {
            executed: 0,
            closing: self.closing(self.now()),
        }
    }

    /// Whether the next interval of a span is due, and belongs to the month that closes.
    pub(crate) fn is_urgent(&self, span: &Span, now: Timestamp) -> bool {
        let Some(closing) = self.closing(now) else {
            return false;
        };
        match next_step(span, now, &self.options.policy) {
            Step::Execute(planned) => closing.holds(planned.interval.midpoint()),
            Step::Plan(interval) => closing.holds(interval.midpoint()),
            Step::Complete | Step::Wait(_) => false,
        }
    }

    /// Notes that a span of which this is left has executed an interval. If the span is to give its
    /// slot back now, answers where it stands among those that are due from now on.
    ///
    /// When a month begins to close all give their slots back. While one closes, a span that goes
    /// on within it gives way to none that does not, and any other gives way to one that does,
    /// after each interval.
    pub(crate) fn executed(&self, turn: &mut Turn, left: &Span, now: Timestamp) -> Option<PutBack> {
        turn.executed += 1;
        let is_over = turn.executed >= TURN;
        let closing = self.closing(now);
        let is_urgent = self.is_urgent(left, now);
        let gives_way = if closing.is_some() && closing != turn.closing {
            true
        } else if is_urgent {
            is_over && self.waiting.promise_urgent()
        } else {
            self.waiting.promise_urgent() || (is_over && self.waiting.promise())
        };
        gives_way.then(|| PutBack {
            due_at: closing.map_or(now, |closing| closing.put_back_at(now, is_urgent)),
            is_urgent,
        })
    }
}

//! The intervals that a span has sampled and that never counted upstream: skipped by an operator, or
//! set aside by the upstream (`docs/decisions.md#what-does-not-count`).
//!
//! A late stop takes back what was sampled too much. What never counted must not be taken back
//! upstream: the window would count less than nothing. So the span knows these intervals, and the
//! piece that takes one back is withheld: it is planned and recorded like any other, but not posted. If the
//! usage is sent again later, the piece that was withheld is sent after it.

use crate::{EntryState, Interval, Span, Timestamp};

/// How many intervals a span knows. Beyond that it merges the oldest adjacent ones into one
/// interval. A fault upstream is one interval, however long it lasts.
pub const UNCOUNTED_MAX: usize = 500;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UncountedReason {
    Skipped {
        /// A post of it had no answer, so it may count all the same.
        unanswered: bool,
    },
    /// The upstream accepted its usage, and set it aside later.
    SetAside,
}

/// A sampled interval that does not count upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Uncounted {
    /// The interval of the usage, which leads forwards; or those of several that follow each other.
    pub interval: Interval,
    pub reason: UncountedReason,
}

impl UncountedReason {
    /// The state of the usage in the ledger.
    pub const fn state(self) -> EntryState {
        match self {
            Self::Skipped { .. } => EntryState::Skipped,
            Self::SetAside => EntryState::SetAside,
        }
    }

    /// The reason of a usage that is in this state; none for one that counts, or is not answered yet.
    pub const fn of(state: EntryState, unanswered: bool) -> Option<Self> {
        match state {
            EntryState::Skipped => Some(Self::Skipped { unanswered }),
            EntryState::SetAside => Some(Self::SetAside),
            EntryState::Planned
            | EntryState::Refused
            | EntryState::Accepted
            | EntryState::Counted => None,
        }
    }

    /// Whether a post of the usage had no answer.
    pub const fn is_unanswered(self) -> bool {
        matches!(self, Self::Skipped { unanswered: true })
    }
}

impl Uncounted {
    /// Whether `time` is in it, or is its end.
    fn reaches(&self, time: Timestamp) -> bool {
        self.interval.start < time && time <= self.interval.end
    }

    /// Whether `interval` leads forwards, and the whole of it is in this one.
    fn covers(&self, interval: Interval) -> bool {
        let is_within = self.interval.start <= interval.start && interval.end <= self.interval.end;
        interval.start < interval.end && is_within
    }

    /// Its parts before and after an interval that it covers.
    fn without(self, interval: Interval) -> impl Iterator<Item = Self> {
        let before = Interval {
            start: self.interval.start,
            end: interval.start,
        };
        let behind = Interval {
            start: interval.end,
            end: self.interval.end,
        };
        let parts = [before, behind]
            .into_iter()
            .filter(|part| part.start < part.end);
        parts.map(move |interval| Self { interval, ..self })
    }
}

impl Span {
    /// The interval that does not count and that reaches `time`, if there is one.
    pub(crate) fn uncounted_at(&self, time: Timestamp) -> Option<&Uncounted> {
        let uncounted = self.processing.uncounted.iter();
        uncounted.rev().find(|it| it.reaches(time))
    }

    /// The last time before `time` at which an uncounted interval ends.
    pub(crate) fn uncounted_before(&self, time: Timestamp) -> Option<Timestamp> {
        let ends = self.processing.uncounted.iter().map(|it| it.interval.end);
        ends.filter(|end| *end < time).max()
    }

    /// Why an interval that leads backwards takes back nothing that counts, if it does not.
    pub(crate) fn withholds(&self, interval: Interval) -> Option<UncountedReason> {
        let uncounted = self.uncounted_at(interval.start)?;
        interval
            .takes_back(uncounted.interval)
            .then_some(uncounted.reason)
    }

    pub(crate) fn add_uncounted(&mut self, uncounted: Uncounted) {
        let interval = uncounted.interval;
        if interval.end <= interval.start || self.knows_uncounted(interval) {
            return;
        }
        let known = &mut self.processing.uncounted;
        while known.len() >= UNCOUNTED_MAX {
            make_room(known);
        }
        known.push(uncounted);
    }

    pub(crate) fn remove_uncounted(&mut self, interval: Interval) {
        let known = &mut self.processing.uncounted;
        let Some(place) = known.iter().position(|it| it.covers(interval)) else {
            return;
        };
        let covering = known[place];
        known.splice(place..=place, covering.without(interval));
        while known.len() > UNCOUNTED_MAX {
            make_room(known);
        }
    }

    /// Whether the span knows that this interval does not count.
    pub fn knows_uncounted(&self, interval: Interval) -> bool {
        let mut known = self.processing.uncounted.iter();
        known.any(|it| it.covers(interval))
    }

    /// Whether the span is to know that a usage of this interval was set aside, so that a late stop does not
    /// take it back.
    pub fn is_to_learn(&self, interval: Interval) -> bool {
        interval.duration() > 0 && !self.processing.complete && !self.knows_uncounted(interval)
    }

    /// Whether the planned interval is withheld, and takes back a part of `interval`.
    pub fn plans_to_withhold(&self, interval: Interval) -> bool {
        let planned = self.processing.planned.as_ref();
        planned.is_some_and(|it| it.withheld.is_some() && it.interval.takes_back(interval))
    }
}

/// Merges the two oldest adjacent intervals that do not count for the same reason. Where there are no
/// such two, the oldest interval is forgotten: a stop that is late by that much takes it back as if it
/// counted.
fn make_room(known: &mut Vec<Uncounted>) {
    let mut by_time: Vec<usize> = (0..known.len()).collect();
    by_time.sort_by_key(|place| known[*place].interval.start);
    let alike = by_time.windows(2).find(|pair| {
        let (first, second) = (known[pair[0]], known[pair[1]]);
        first.interval.end == second.interval.start && first.reason == second.reason
    });
    match alike {
        Some(pair) => {
            known[pair[0]].interval.end = known[pair[1]].interval.end;
            known.remove(pair[1]);
        }
        None => _ = known.remove(by_time[0]),
    }
}

//! The events of one target, one after the other: starts, stops, late stops and updates, and now and
//! then an invalid one.

use crate::event::{Kind, Target};
use sampler_testkit::rng::Rng;

/// An hour in ms.
const HOUR: i64 = 3_600_000;
/// A minute in ms.
const MINUTE: i64 = 60_000;
/// No event is dated later than this long ago: a stop in the future would be waited for.
const LATEST: i64 = MINUTE;
/// A target this close to the present has nothing more to come.
const RECENT: i64 = HOUR / 2;

/// The next event of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NextEvent {
    pub(crate) kind: Kind,
    pub(crate) timestamp: i64,
    pub(crate) intent: Intent,
}

/// Why an event is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    Start,
    Stop,
    /// The stop of an update; a start at the same moment follows.
    UpdateStop,
    UpdateStart,
    /// Wrong: the target is open.
    StartWhileOpen,
    /// Wrong: the target's previous span ends later.
    StartInside,
    /// Wrong: the target is not open.
    StopWhileClosed,
    /// Wrong: the span begins later.
    StopBeforeStart,
    /// Wrong: the `id` of another event.
    IdOfAnother,
    /// Wrong: a field is missing.
    Malformed,
    /// The run ends.
    LastStop,
}

impl Intent {
    /// Whether the event is meant to be taken.
    pub(crate) fn is_right(self) -> bool {
        use Intent::{LastStop, Start, Stop, UpdateStart, UpdateStop};
        matches!(self, Start | Stop | UpdateStop | UpdateStart | LastStop)
    }
}

/// The outcome of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Accepted,
    Refused,
    /// The client had no definite answer.
    Unknown,
}

/// The state of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    /// Since this moment.
    Open(i64),
    /// Closed for an update, whose start may still come.
    Updating,
    /// An event was given up, so the client does not know.
    Uncertain,
}

/// One target with what its client knows of it.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    pub(crate) target: Target,
    state: State,
    /// The latest moment that an accepted event was dated: nothing right comes before it.
    cursor: i64,
    /// Where the previous span begins.
    previous: i64,
    /// Nothing happens before this moment of the real clock.
    resting_until: i64,
}

impl Timeline {
    /// A target whose first event will be dated hours or days ago.
    pub(crate) fn new(target: Target, rng: &mut Rng, now: i64) -> Self {
        let age = match rng.between(0, 9) {
            0..=6 => rng.between(2 * HOUR, 12 * HOUR),
            7..=8 => rng.between(12 * HOUR, 30 * HOUR),
            _ => rng.between(30 * HOUR, 100 * HOUR),
        };
        let cursor = now - age;
        Self {
            target,
            state: State::Closed,
            cursor,
            previous: cursor,
            resting_until: 0,
        }
    }

    /// Whether nothing more is to come, apart from the last stop.
    pub(crate) fn is_over(&self, now: i64) -> bool {
        let is_recent = now - self.cursor < RECENT;
        self.state == State::Uncertain || (is_recent && self.state == State::Closed)
    }

    /// Whether it is left alone for a while, so that sampling continues beyond what is to come.
    pub(crate) fn is_resting(&self, now: i64) -> bool {
        now < self.resting_until
    }

    /// Whether its usage may be going on.
    pub(crate) fn may_be_open(&self) -> bool {
        matches!(self.state, State::Open(_) | State::Uncertain)
    }

    /// The database says that its usage continues.
    pub(crate) fn is_open_after_all(&mut self) {
        self.state = State::Uncertain;
    }

    /// What comes next.
    pub(crate) fn next(&self, rng: &mut Rng, now: i64) -> NextEvent {
        let latest = now - LATEST;
        match self.state {
            State::Closed => self.next_when_closed(rng, latest),
            State::Open(start) => Self::next_when_open(start, rng, latest),
            State::Updating => step(Kind::Start, self.cursor, Intent::UpdateStart),
            State::Uncertain => self.last(rng, now),
        }
    }

    fn next_when_closed(&self, rng: &mut Rng, latest: i64) -> NextEvent {
        let gap = match rng.between(0, 2) {
            0 => 0,
            1 => rng.between(1, MINUTE),
            _ => rng.between(MINUTE, 2 * HOUR),
        };
        let timestamp = (self.cursor + gap).min(latest);
        match rng.between(0, 99) {
            0..=4 => {
                // Later than what is to come, so that it would end that if it counted too late.
                let timestamp = (self.cursor + rng.between(0, 3 * HOUR)).min(latest);
                step(Kind::Stop, timestamp, Intent::StopWhileClosed)
            }
            5..=9 if self.previous < self.cursor => {
                let timestamp = rng.between(self.previous, self.cursor - 1);
                step(Kind::Start, timestamp, Intent::StartInside)
            }
            10..=13 => step(Kind::Start, timestamp, Intent::IdOfAnother),
            14..=16 => step(Kind::Start, timestamp, Intent::Malformed),
            _ => step(Kind::Start, timestamp, Intent::Start),
        }
    }

    fn next_when_open(start: i64, rng: &mut Rng, latest: i64) -> NextEvent {
        let length = match rng.between(0, 9) {
            0 => 0,
            1 => rng.between(1, 1000),
            2..=3 => rng.between(1000, HOUR),
            _ => rng.between(HOUR / 2, 6 * HOUR),
        };
        let timestamp = (start + length).min(latest.max(start));
        match rng.between(0, 99) {
            0..=4 => {
                let timestamp = start - rng.between(1, 3 * HOUR);
                step(Kind::Stop, timestamp, Intent::StopBeforeStart)
            }
            5..=9 => step(Kind::Start, timestamp, Intent::StartWhileOpen),
            10..=12 => step(Kind::Stop, timestamp, Intent::IdOfAnother),
            13..=15 => step(Kind::Stop, timestamp, Intent::Malformed),
            16..=35 => step(Kind::Stop, timestamp, Intent::UpdateStop),
            _ => step(Kind::Stop, timestamp, Intent::Stop),
        }
    }

    /// The stop at the end of the run.
    pub(crate) fn last(&self, rng: &mut Rng, now: i64) -> NextEvent {
        let latest = now - LATEST;
        let timestamp = match self.state {
            State::Open(start) => rng.between(start, latest.max(start)),
            // Later than whatever was given up.
            _ => latest.max(self.cursor),
        };
        step(Kind::Stop, timestamp, Intent::LastStop)
    }

    /// Records the outcome of an event.
    pub(crate) fn note(&mut self, step: &NextEvent, outcome: Outcome, rng: &mut Rng, now: i64) {
        match (outcome, step.intent.is_right()) {
            (Outcome::Accepted, true) => self.advance(step, rng, now),
            // What is wrong has no effect, or the checker will say so.
            (Outcome::Refused, false) => {}
            // The last stop of a target in an unknown state: it was closed.
            (Outcome::Refused, true) if step.intent == Intent::LastStop => {
                self.state = State::Closed;
            }
            // The outcome is unknown, or the answer is wrong: the checker reports that, too.
            (Outcome::Unknown, _) | (Outcome::Accepted, false) | (Outcome::Refused, true) => {
                self.cursor = self.cursor.max(step.timestamp);
                self.state = State::Uncertain;
            }
        }
    }

    fn advance(&mut self, step: &NextEvent, rng: &mut Rng, now: i64) {
        self.previous = self.cursor;
        self.cursor = step.timestamp;
        self.state = match (step.kind, step.intent) {
            (Kind::Start, _) => State::Open(step.timestamp),
            (Kind::Stop, Intent::UpdateStop) => State::Updating,
            (Kind::Stop, _) => State::Closed,
        };
        if step.kind == Kind::Start && rng.percent(30) {
            self.resting_until = now + rng.between(2_000, 10_000);
        }
    }
}

fn step(kind: Kind, timestamp: i64, intent: Intent) -> NextEvent {
    NextEvent {
        kind,
        timestamp,
        intent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::target;

    const NOW: i64 = 1_700_000_000_000;

    fn rng_and_timeline() -> (Rng, Timeline) {
        let mut rng = Rng::new(1, 1);
        let timeline = Timeline::new(target(0, 0), &mut rng, NOW);
        (rng, timeline)
    }

    #[test]
    fn what_is_right_goes_on_in_time_and_never_into_the_future() {
        let (mut rng, mut timeline) = rng_and_timeline();
        let mut moves = 0;
        while !timeline.is_over(NOW) && moves < 10_000 {
            let next = timeline.next(&mut rng, NOW);
            assert!(next.timestamp <= NOW - LATEST, "{next:?}");
            let right = next.intent.is_right();
            assert!(
                !right || next.timestamp >= timeline.cursor,
                "{next:?} after {timeline:?}"
            );
            let outcome = if right {
                Outcome::Accepted
            } else {
                Outcome::Refused
            };
            timeline.note(&next, outcome, &mut rng, NOW);
            moves += 1;
        }
        assert!(timeline.is_over(NOW));
    }

    #[test]
    fn an_update_starts_where_it_stopped() {
        let (mut rng, mut timeline) = rng_and_timeline();
        let start = step(Kind::Start, NOW - HOUR, Intent::Start);
        timeline.note(&start, Outcome::Accepted, &mut rng, NOW);
        assert!(timeline.may_be_open());
        let stop = step(Kind::Stop, NOW - HOUR / 2, Intent::UpdateStop);
        timeline.note(&stop, Outcome::Accepted, &mut rng, NOW);
        let next = timeline.next(&mut rng, NOW);
        assert_eq!(next, step(Kind::Start, NOW - HOUR / 2, Intent::UpdateStart));
    }
}

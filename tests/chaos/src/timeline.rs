//! The events of one target, one after the other: starts, stops, late stops and updates, and now and
//! then one that must be refused; and how they are sent.

use sampler_testkit::rng::Rng;

use sampler_testkit::build::with;
pub(crate) use sampler_testkit::build::{Kind, Target};
use serde_json::{Value, json};

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
    /// To be taken.
    Right,
    /// To be taken: the stop of an update, whose start is at the same moment.
    Update,
    /// To be refused: the target is open, or its previous span ends later, or it is not open, or its
    /// span begins later.
    OutOfOrder,
}

impl Intent {
    pub(crate) fn is_right(self) -> bool {
        matches!(self, Self::Right | Self::Update)
    }
}

/// One target with what its client knows of it.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    pub(crate) target: Target,
    /// When the span that is open began.
    open: Option<i64>,
    /// The latest moment that an accepted event was dated: nothing right comes before it.
    cursor: i64,
    /// Where the previous span begins.
    previous: i64,
    /// Nothing happens before this moment.
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
            open: None,
            cursor,
            previous: cursor,
            resting_until: 0,
        }
    }

    /// Whether nothing more is to come, apart from the last stop.
    pub(crate) fn is_over(&self, now: i64) -> bool {
        now - self.cursor < RECENT && self.open.is_none()
    }

    /// Whether it is left alone for a while, so that sampling continues beyond what is to come.
    pub(crate) fn is_resting(&self, now: i64) -> bool {
        now < self.resting_until
    }

    /// What comes next.
    pub(crate) fn next(&self, rng: &mut Rng, now: i64) -> NextEvent {
        match self.open {
            None => self.next_when_closed(rng, now - LATEST),
            Some(start) => Self::next_when_open(start, rng, now - LATEST),
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
                step(Kind::Stop, timestamp, Intent::OutOfOrder)
            }
            5..=9 if self.previous < self.cursor => {
                let timestamp = rng.between(self.previous, self.cursor - 1);
                step(Kind::Start, timestamp, Intent::OutOfOrder)
            }
            _ => step(Kind::Start, timestamp, Intent::Right),
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
                step(Kind::Stop, timestamp, Intent::OutOfOrder)
            }
            5..=9 => step(Kind::Start, timestamp, Intent::OutOfOrder),
            10..=22 => step(Kind::Stop, timestamp, Intent::Update),
            _ => step(Kind::Stop, timestamp, Intent::Right),
        }
    }

    /// The stop at the end of the run, where its usage continues.
    pub(crate) fn last(&self, rng: &mut Rng, now: i64) -> Option<NextEvent> {
        let start = self.open?;
        let timestamp = rng.between(start, (now - LATEST).max(start));
        Some(step(Kind::Stop, timestamp, Intent::Right))
    }

    /// An event was accepted.
    pub(crate) fn advance(&mut self, step: &NextEvent, rng: &mut Rng, now: i64) {
        let is_open = step.kind == Kind::Start || step.intent == Intent::Update;
        self.previous = self.cursor;
        self.cursor = step.timestamp;
        self.open = is_open.then_some(step.timestamp);
        if is_open && rng.percent(30) {
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

/// The resource of all targets.
pub(crate) const RESOURCE: &str = "postgres";

/// The target of that number among those of a client.
pub(crate) fn target(client: usize, number: usize) -> Target {
    let plan = ["small", "large"][number % 2];
    Target([
        format!("organization-{}", client % 7),
        format!("space-{}", client % 13),
        format!("consumer-{client}"),
        RESOURCE.to_owned(),
        plan.to_owned(),
        format!("c{client}-t{number}"),
    ])
}

/// The body of an event. Measures of a start differ from one to the next.
pub(crate) fn body(kind: Kind, id: &str, timestamp: i64, target: &Target, memory: i64) -> Value {
    let body = with(target.body(timestamp), "id", id);
    if kind == Kind::Stop {
        return body;
    }
    let measures = json!([
        { "measure": "memory", "quantity": memory },
        { "measure": "share", "quantity": 0.25 },
    ]);
    with(body, "measured_usage", measures)
}

/// A body as one of a batch, and as a line of a file.
pub(crate) fn item(kind: &str, body: &Value) -> Value {
    with(body.clone(), "type", kind)
}

/// The name of a kind.
pub(crate) fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Start => "start",
        Kind::Stop => "stop",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000_000;

    #[test]
    fn what_is_right_goes_on_in_time_and_never_into_the_future() {
        let mut rng = Rng::new(1, 1);
        let mut timeline = Timeline::new(target(0, 0), &mut rng, NOW);
        while !timeline.is_over(NOW) {
            let next = timeline.next(&mut rng, NOW);
            assert!(next.timestamp <= NOW - LATEST, "{next:?}");
            if next.intent.is_right() {
                assert!(next.timestamp >= timeline.cursor, "{next:?} {timeline:?}");
                timeline.advance(&next, &mut rng, NOW);
            }
        }
    }
}

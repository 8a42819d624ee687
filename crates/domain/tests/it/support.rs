//! Spans and policies for the properties, and a worker that does what the driver says.

use proptest::prelude::*;
use sampler_domain::{
    Acceptance, Action, Contract, Driver, Granularities, Granularity, Id, Interval, Measures,
    Policy, Remembered, RunId, Span, SpanId, StartEvent, Target, Terms, Timestamp,
};
use uuid::Uuid;

pub(crate) fn moment(millis: i64) -> Timestamp {
    Timestamp::new(millis).unwrap()
}

pub(crate) fn id(text: &str) -> Id {
    Id::new(text).unwrap()
}

pub(crate) fn target() -> Target {
    Target::from_store([
        "organization",
        "space",
        "consumer",
        "resource",
        "plan",
        "instance",
    ])
}

pub(crate) fn span(start: Timestamp) -> Span {
    let event = StartEvent {
        id: Some(id("start")),
        timestamp: start,
        target: target(),
        measures: Measures::default(),
    };
    Span::open(SpanId::new(start, 7), event, start)
}

pub(crate) fn policy(granularity: Granularity, grace: i64) -> Policy {
    Policy {
        granularities: Granularities::all(granularity),
        stop_grace: grace,
    }
}

pub(crate) fn granularity() -> impl Strategy<Value = Granularity> {
    prop::sample::select(Granularity::ALL.to_vec())
}

/// The length of a window, roughly, so that a case takes a bounded number of steps.
pub(crate) fn scale(granularity: Granularity) -> i64 {
    match granularity {
        Granularity::Minute => 60_000,
        Granularity::Hour => 3_600_000,
        Granularity::Day => 86_400_000,
        Granularity::Month => 30 * 86_400_000,
    }
}

/// A span that is sampled by one worker, whose usages are all accepted, with what counts upstream for it.
pub(crate) struct Sampled {
    pub(crate) span: Span,
    pub(crate) counted: Vec<Interval>,
}

impl Sampled {
    pub(crate) fn new(span: Span) -> Self {
        Self {
            span,
            counted: Vec::new(),
        }
    }

    /// Does all that is due at `now`.
    pub(crate) fn sample(&mut self, now: Timestamp, policy: &Policy) {
        let terms = Terms {
            run: RunId(Uuid::nil()),
            policy: policy.clone(),
            contract: Contract::Forever,
            suspend_after: 3,
        };
        let span = self.span.clone();
        let mut driver = Driver::new(span, Remembered::default(), Timestamp::MIN);
        loop {
            match driver.action(now, &terms) {
                Action::Change(change) => driver.on_change_made(*change),
                Action::Post { delivery, .. } => {
                    self.counted.push(delivery.interval);
                    driver.on_accepted(Acceptance {
                        at: now,
                        status: None,
                        location: None,
                    });
                }
                Action::WriteEntry(_) => driver.on_entry_written(),
                Action::Done => break,
                other => panic!("{other:?}"),
            }
        }
        self.span = driver.span().clone();
    }

    pub(crate) fn sum(&self) -> i64 {
        self.counted.iter().map(|it| it.duration()).sum()
    }
}

//! Spans and policies for the properties, and a worker that does what `next_step` says.

use proptest::prelude::*;
use sampler_domain::{
    Change, Granularities, Granularity, Id, Interval, Measures, Planned, Policy, Span, SpanId,
    StartEvent, Step, Target, Timestamp, UncountedReason, next_step,
};

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
    Span::open(SpanId::new(start, 7), event)
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

/// A span with what was counted upstream for it.
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

    /// Takes one step at `now`; says whether there was anything to do.
    pub(crate) fn step(&mut self, now: Timestamp, policy: &Policy) -> bool {
        match next_step(&self.span, now, policy) {
            Step::Plan(interval) => {
                let planned = Planned::new(&self.span, interval, now).cut_by(&self.span, policy);
                let due_at = now;
                self.span = self.span.after(&Change::Plan { planned, due_at });
                true
            }
            Step::Execute(planned) => {
                self.span = match planned.withheld {
                    Some(UncountedReason::Skipped { .. }) => self.span.skipped(),
                    Some(UncountedReason::SetAside) => self.span.executed(),
                    None => {
                        self.counted.push(planned.interval);
                        self.span.executed()
                    }
                };
                true
            }
            Step::Complete => {
                self.span.processing.complete = true;
                false
            }
            Step::Wait(until) => {
                assert!(until > now, "waits for {until}, which is not after {now}");
                false
            }
        }
    }

    pub(crate) fn sum(&self) -> i64 {
        self.counted
            .iter()
            .map(|interval| interval.duration())
            .sum()
    }
}

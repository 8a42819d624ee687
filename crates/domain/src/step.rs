//! The state machine: what is to be done next with a span (sections 5.2 and 6.5 of the paper).
//!
//! ```text
//!            ┌────────────── Wait(until) ◄─────────────┐
//!            ▼                                         │ not due yet
//!   ┌──────────────────┐  Plan   ┌─────────┐  Execute  │
//!   │ nothing planned  │ ──────► │ planned │ ──────────┴─► nothing planned, sampled further
//!   └──────────────────┘         └─────────┘
//!            │ sampled to its end
//!            ▼
//!        Complete
//! ```

use crate::{Interval, Planned, Policy, Span, Timestamp};

/// What is to be done next with a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Decide on this interval; it is due.
    Plan(Interval),
    /// Send the usage of this interval, as it was planned, whatever the policy is by now.
    Execute(Planned),
    /// The usages that count add up to end minus start: nothing is left to do.
    Complete,
    /// Nothing until this moment.
    Wait(Timestamp),
}

impl Step {
    /// When a span with this step ahead needs a worker: an interval from the moment that it ends
    /// at, so that what waits longest has the lowest value.
    pub fn due_at(&self, now: Timestamp) -> Timestamp {
        match self {
            Self::Plan(interval) => interval.end.min(now),
            Self::Execute(planned) => planned.interval.end.min(now),
            Self::Complete => now,
            Self::Wait(until) => *until,
        }
    }
}

/// What is to be done next with `span` at `now`.
///
/// Whatever the order in which stops, plans and executions come, each `Execute` takes sampling to
/// a moment, and with an end known each `Plan` takes it closer to that end without passing it:
/// it always ends in `Complete`, with usages whose signed durations add up to end minus start.
pub fn next_step(span: &Span, now: Timestamp, policy: &Policy) -> Step {
    if span.processing.complete {
        return Step::Complete;
    }
    let sampled_to = span.sampled_to();
    match (&span.processing.planned, span.end) {
        (Some(planned), _) => execute(planned, now),
        (None, Some(end)) if end == sampled_to => Step::Complete,
        (None, Some(end)) if end < sampled_to => plan_back_to(end, span, policy),
        (None, Some(end)) => plan_on_to(end, span, now, policy),
        (None, None) => plan_open(span, now, policy),
    }
}

/// Executes what is planned, but nothing of the future: Abacus puts aside what lies after today.
/// An original Sampler plans such intervals for stops dated ahead; so does a fast clock.
fn execute(planned: &Planned, now: Timestamp) -> Step {
    let end = planned.interval.end;
    if end > planned.interval.start && end > now {
        return Step::Wait(end);
    }
    Step::Execute(planned.clone())
}

/// The span was sampled beyond its end: takes back down to the next boundary, or to the end if
/// that is nearer; due at once.
fn plan_back_to(end: Timestamp, span: &Span, policy: &Policy) -> Step {
    let sampled_to = span.sampled_to();
    let boundary = policy
        .granularities
        .of(&span.target)
        .boundary_before(sampled_to);
    Step::Plan(Interval {
        start: sampled_to,
        end: boundary.map_or(end, |b| b.max(end)),
    })
}

/// Samples up to the next boundary, or to the end if that is nearer; due when that has passed.
fn plan_on_to(end: Timestamp, span: &Span, now: Timestamp, policy: &Policy) -> Step {
    let sampled_to = span.sampled_to();
    let boundary = policy
        .granularities
        .of(&span.target)
        .boundary_after(sampled_to);
    let until = boundary.map_or(end, |b| b.min(end));
    if until <= now {
        Step::Plan(Interval {
            start: sampled_to,
            end: until,
        })
    } else {
        Step::Wait(until)
    }
}

/// Samples up to the next boundary; due when that has passed and the grace for late stops too.
fn plan_open(span: &Span, now: Timestamp, policy: &Policy) -> Step {
    let sampled_to = span.sampled_to();
    let due_at = policy.open_due_at(&span.target, sampled_to);
    match policy
        .granularities
        .of(&span.target)
        .boundary_after(sampled_to)
    {
        Some(boundary) if due_at <= now => Step::Plan(Interval {
            start: sampled_to,
            end: boundary,
        }),
        _ => Step::Wait(due_at),
    }
}

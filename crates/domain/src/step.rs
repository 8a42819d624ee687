//! The state machine: the next step of a span (sections 5.2 and 6.5 of the paper).
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Plan(Interval),
    /// Carry out this interval as it was planned, even if the policy has changed since: post its usage, or
    /// only record it (skipped, withheld).
    Execute(Planned),
    /// Complete the span: the durations of its usages add up to end minus start.
    Complete,
    Wait(Timestamp),
}

impl Step {
    /// The `due_at` of a span whose next step this is. For an interval it is the interval's end, or
    /// now if that is earlier, so that the span that has waited longest comes first; the grace for late stops
    /// is in [`Self::Wait`].
    pub fn due_at(&self, now: Timestamp) -> Timestamp {
        match self {
            Self::Plan(interval) => interval.end.min(now),
            Self::Execute(planned) => planned.interval.end.min(now),
            Self::Complete => now,
            Self::Wait(until) => *until,
        }
    }
}

/// The next step of `span` at `now`.
///
/// The order of stops, plans and executions does not matter. Once the end is known, each plan brings
/// sampling closer to it and never past it. So the span becomes complete, and the durations of its
/// usages add up to end minus start.
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

/// Executes the planned interval once it has ended, because Abacus sets aside usages of a later day.
/// The original Sampler plans intervals of the future for stops of the future; so does a worker
/// whose clock is ahead.
fn execute(planned: &Planned, now: Timestamp) -> Step {
    let end = planned.interval.end;
    if end > planned.interval.start && end > now {
        return Step::Wait(end);
    }
    Step::Execute(planned.clone())
}

/// For a span that is sampled beyond its end: plans backwards, down to the previous boundary or to the
/// end, whichever is nearer. It is due at once. The time is cut as it was cut forwards, whatever the policy
/// says now.
///
/// A piece takes back either what counts upstream, or what does not
/// ([`Uncounted`](crate::Uncounted)), and of the latter only one usage, unless the list was shortened.
fn plan_back_to(end: Timestamp, span: &Span, policy: &Policy) -> Step {
    let sampled_to = span.sampled_to();
    let (granularity, from) = match span.cut_before(sampled_to) {
        Some(cut) => (cut.granularity, Some(cut.from)),
        None => (policy.granularities.of(&span.target), None),
    };
    let boundary = granularity.boundary_before(sampled_to).max(from);
    let edge = match span.uncounted_at(sampled_to) {
        Some(uncounted) => Some(uncounted.interval.start),
        None => span.uncounted_before(sampled_to),
    };
    Step::Plan(Interval {
        start: sampled_to,
        end: boundary.max(edge).map_or(end, |edge| edge.max(end)),
    })
}

/// For a span that is not sampled to its end yet: plans up to the next boundary or to the end,
/// whichever is nearer. It is due when that time has passed.
fn plan_on_to(end: Timestamp, span: &Span, now: Timestamp, policy: &Policy) -> Step {
    let sampled_to = span.sampled_to();
    let granularity = policy.granularities.of(&span.target);
    let boundary = granularity.boundary_after(sampled_to);
    let until = boundary.map_or(end, |boundary| boundary.min(end));
    if until <= now {
        Step::Plan(Interval {
            start: sampled_to,
            end: until,
        })
    } else {
        Step::Wait(until)
    }
}

/// For a span without an end: plans up to the next boundary. It is due when the grace for late stops
/// has passed, too.
fn plan_open(span: &Span, now: Timestamp, policy: &Policy) -> Step {
    let sampled_to = span.sampled_to();
    let due_at = policy.open_due_at(&span.target, sampled_to);
    let granularity = policy.granularities.of(&span.target);
    match granularity.boundary_after(sampled_to) {
        Some(boundary) if due_at <= now => Step::Plan(Interval {
            start: sampled_to,
            end: boundary,
        }),
        _ => Step::Wait(due_at),
    }
}

//! The state machine: the next step of a span (sections 5.2 and 6.5 of the paper).
//!
//! ```text
//!            ┌────────────── Wait(until) ◄─────────────┐
//!            ▼                                         │ not due yet
//!   ┌──────────────────┐  Plan   ┌─────────┐  Execute  │
//!   │ nothing planned  │ ──────► │ planned │ ──────────┴─► nothing planned, sampled further
//!   └──────────────────┘         └─────────┘
//!      │ sampled to its end  │ sampled beyond its end, over what is excluded
//!      ▼                     ▼
//!   Complete                Trim ─► nothing planned, sampled less far
//! ```

use crate::{Excluded, Interval, Policy, Span, Timestamp};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Plan(Interval),
    /// Carry out the planned interval as it was planned, even if the policy has changed since.
    Execute,
    /// Go back to this time, over what is excluded: nothing is posted.
    Trim(Timestamp),
    /// Complete the span.
    Complete,
    Wait(Timestamp),
}

impl Step {
    /// The `due_at` of a span whose next step this is. For an interval it is the interval's end, or
    /// now if that is earlier, so that the span that has waited longest comes first; the grace for late stops
    /// is in [`Self::Wait`].
    pub fn due_at(&self, now: Timestamp, span: &Span) -> Timestamp {
        match self {
            Self::Plan(interval) => interval.end.min(now),
            Self::Execute => {
                let planned = span.processing.planned.as_ref();
                planned.map_or(now, |planned| planned.interval.end.min(now))
            }
            Self::Complete | Self::Trim(_) => now,
            Self::Wait(until) => *until,
        }
    }
}

/// The next step of `span` at `now`, apart from what is sent again and from what is suspended.
///
/// The order of stops, plans and executions does not matter. Once the end is known, each plan brings
/// sampling closer to it and never past it. So the span becomes complete, and what was sampled adds up to end
/// minus start.
pub fn next_step(span: &Span, now: Timestamp, policy: &Policy) -> Step {
    if span.processing.complete {
        return Step::Complete;
    }
    let sampled_to = span.sampled_to();
    match (&span.processing.planned, span.end) {
        // A usage of the future would be set aside upstream.
        (Some(planned), _) => {
            let Interval { start, end } = planned.interval;
            if start < end && end > now {
                Step::Wait(end)
            } else {
                Step::Execute
            }
        }
        (None, Some(end)) if end == sampled_to => Step::Complete,
        (None, Some(end)) if end < sampled_to => back_to(end, span, policy),
        (None, Some(end)) => plan_on_to(end, span, now, policy),
        (None, None) => plan_open(span, now, policy),
    }
}

/// For a span that is sampled beyond its end. What is excluded is trimmed. What counts is taken back in the
/// pieces in which it was cut forwards, whatever the policy says now, down to the end; it is due at once.
fn back_to(end: Timestamp, span: &Span, policy: &Policy) -> Step {
    let sampled_to = span.sampled_to();
    let mut excluded = span.processing.excluded.iter();
    if let Some(range) = excluded.find(|it| Excluded::is_trimmed_from(it, sampled_to)) {
        return Step::Trim(range.interval.start.max(end));
    }
    let boundary = span.cut_before(sampled_to).or_else(|| {
        let granularity = policy.granularities.of(&span.target);
        granularity.boundary_before(sampled_to)
    });
    Step::Plan(Interval {
        start: sampled_to,
        end: boundary.map_or(end, |boundary| boundary.max(end)),
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

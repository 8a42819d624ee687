//! Compares what the original decided, as a span's document shows it, with what we would decide.
//!
//! The document has two intervals of a span: the last executed one and the planned one. For each, the
//! real state machine decides from the start of the interval. The known faults of the original have
//! names here, which distinguishes them from unexpected differences.

use std::fmt;

use sampler_domain::{
    Granularities, Granularity, Interval, Policy, Processing, Span, Step, Timestamp, next_step,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    Same,
    /// The span is due: we would plan or execute something now.
    Due,
    KnownFault(KnownFault),
    Difference(Difference),
}

/// The known faults of the original, as far as a document shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownFault {
    /// The span ends before it starts, and its bill is negative: a stop raced the start.
    EndsBeforeStart,
    /// An interval of no length. Its usage is posted all the same.
    NoLength,
    /// An interval was decided on before it was over. Abacus sets aside what is after its today.
    AheadOfTime,
    /// The first window is over, but the original waits for the length of a whole one.
    LateFirstWindow,
}

/// A difference without a known reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// Another interval.
    Interval {
        /// The original's.
        recorded: Interval,
        /// Ours, if we would have decided on any.
        ours: Option<Interval>,
        /// The granularity with which we would decide the same.
        dimension: Option<Granularity>,
    },
    /// The planned interval does not begin where the last one ended.
    Gap {
        sampled_to: Timestamp,
        /// Where the planned one begins.
        planned_from: Timestamp,
    },
    /// The span counts as complete, but is not sampled to its end.
    NotToItsEnd {
        sampled_to: Timestamp,
        end: Option<Timestamp>,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interval {
                recorded,
                ours,
                dimension,
            } => {
                write!(f, "it decided on {} to {}", recorded.start, recorded.end)?;
                match ours {
                    Some(ours) => write!(f, ", we on {} to {}", ours.start, ours.end)?,
                    None => write!(f, ", we on nothing")?,
                }
                dimension.map_or(Ok(()), |dimension| {
                    write!(f, "; with SAMPLER_DIMENSION={dimension} we agree")
                })
            }
            Self::Gap {
                sampled_to,
                planned_from,
            } => write!(f, "sampled to {sampled_to}, planned from {planned_from}"),
            Self::NotToItsEnd { sampled_to, end } => {
                write!(f, "complete, but sampled to {sampled_to} with ")?;
                match end {
                    Some(end) => write!(f, "an end at {end}"),
                    None => f.write_str("no end"),
                }
            }
        }
    }
}

/// Compares what the document of `span` says with what we decide at `now`.
pub fn compare(span: &Span, now: Timestamp, policy: &Policy) -> Vec<Finding> {
    if span.end.is_some_and(|end| end < span.start) {
        return vec![Finding::KnownFault(KnownFault::EndsBeforeStart)];
    }
    let last = span.processing.last;
    let planned = span.processing.planned.as_ref().map(|p| p.interval);
    // Of no length at the start: that is how a span begins, and nothing was decided yet.
    let executed = Some(last).filter(|last| *last != Interval::at(span.start));
    let decided = executed.into_iter().chain(planned);
    let mut findings: Vec<Finding> = decided
        .map(|interval| compare_interval(span, interval, now, policy))
        .collect();
    if let Some(planned) = planned
        && planned.start != last.end
    {
        findings.push(Finding::Difference(Difference::Gap {
            sampled_to: last.end,
            planned_from: planned.start,
        }));
    }
    findings.extend(compare_state(span, now, policy));
    findings
}

/// Compares one interval with the interval that we would plan from the same start.
fn compare_interval(span: &Span, recorded: Interval, now: Timestamp, policy: &Policy) -> Finding {
    if recorded.is_empty() {
        return Finding::KnownFault(KnownFault::NoLength);
    }
    let ours = decisions(span, recorded.start, policy);
    if ours.contains(&Some(recorded)) {
        return if recorded.end > now.max(recorded.start) {
            Finding::KnownFault(KnownFault::AheadOfTime)
        } else {
            Finding::Same
        };
    }
    let mut granularities = Granularity::ALL.into_iter();
    let dimension = granularities.find(|other| {
        let policy = Policy {
            granularities: Granularities::all(*other),
            stop_grace: policy.stop_grace,
        };
        decisions(span, recorded.start, &policy).contains(&Some(recorded))
    });
    Finding::Difference(Difference::Interval {
        recorded,
        ours: ours[0],
        dimension,
    })
}

/// Our own intervals from `start` when it is due: with the end as it is now, and without one,
/// because the stop may have come after the decision.
fn decisions(span: &Span, start: Timestamp, policy: &Policy) -> [Option<Interval>; 2] {
    let mut before = Span {
        processing: Processing {
            complete: false,
            last: Interval::at(start),
            planned: None,
            ..span.processing.clone()
        },
        ..span.clone()
    };
    [span.end, None].map(|end| {
        before.end = end;
        match next_step(&before, Timestamp::MAX, policy) {
            Step::Plan(interval) => Some(interval),
            Step::Execute(_) | Step::Complete | Step::Wait(_) => None,
        }
    })
}

/// Compares the state of the span as a whole.
fn compare_state(span: &Span, now: Timestamp, policy: &Policy) -> Option<Finding> {
    let sampled_to = span.sampled_to();
    if span.processing.complete {
        let end = span.end;
        let difference = Difference::NotToItsEnd { sampled_to, end };
        return (end != Some(sampled_to)).then_some(Finding::Difference(difference));
    }
    match next_step(span, now, policy) {
        Step::Wait(_) => None,
        Step::Plan(_) if waits_for_a_whole_window(span, now, policy) => {
            Some(Finding::KnownFault(KnownFault::LateFirstWindow))
        }
        Step::Plan(_) | Step::Execute(_) | Step::Complete => Some(Finding::Due),
    }
}

/// Whether the original does not sample an open span yet: it waits until a window's length after what
/// is sampled, even if that is the start, which need not be a boundary.
fn waits_for_a_whole_window(span: &Span, now: Timestamp, policy: &Policy) -> bool {
    let (granularity, start) = (policy.granularities.of(&span.target), span.start);
    let Some(boundary) = granularity.boundary_after(start) else {
        return false;
    };
    let length = boundary.since(granularity.window_of(start));
    span.end.is_none() && span.sampled_to() == start && now <= start.plus(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sampler_domain::{Measures, Planned, SpanId, StartEvent, Target};

    const MINUTE: i64 = 60_000;
    const HOUR: i64 = 60 * MINUTE;

    /// So long after 2026-03-10T12:00:00 UTC.
    fn at(millis: i64) -> Timestamp {
        Timestamp::clamped(1_773_144_000_000 + millis)
    }

    fn interval(start: i64, end: i64) -> Interval {
        Interval {
            start: at(start),
            end: at(end),
        }
    }

    fn hourly() -> Policy {
        Policy {
            granularities: Granularities::all(Granularity::Hour),
            stop_grace: 0,
        }
    }

    /// A span from `start` that the original has executed `last` and planned `planned` of.
    fn span(start: i64, last: Interval, planned: Option<Interval>) -> Span {
        let target = Target::from_store(["o", "s", "c", "r", "p", "i"]);
        let event = StartEvent {
            id: None,
            timestamp: at(start),
            target,
            measures: Measures::default(),
        };
        let mut span = Span::open(SpanId::Text("1".to_owned()), event);
        span.processing.last = last;
        span.processing.planned = planned.map(|interval| Planned {
            interval,
            usage_guid: "theirs".to_owned(),
            planned_at: interval.end,
            posts_end_by: None,
            withheld: None,
        });
        span
    }

    fn ended(mut span: Span, end: i64) -> Span {
        span.end = Some(at(end));
        span
    }

    fn complete(mut span: Span) -> Span {
        span.processing.complete = true;
        span
    }

    /// The findings at 12:00.
    fn due(span: &Span) -> Vec<Finding> {
        compare(span, at(0), &hourly())
    }

    #[test]
    fn a_healthy_original_agrees() {
        let fresh = span(-30 * MINUTE, interval(-30 * MINUTE, -30 * MINUTE), None);
        assert_eq!(compare(&fresh, at(-1), &hourly()), []);
        let idle = span(-3 * HOUR, interval(-HOUR, 0), None);
        assert_eq!(due(&idle), [Finding::Same]);
        let planned = span(
            -3 * HOUR,
            interval(-2 * HOUR, -HOUR),
            Some(interval(-HOUR, 0)),
        );
        assert_eq!(due(&planned), [Finding::Same, Finding::Same, Finding::Due]);
        // A late stop: first planned as if the span still ran, then taken back.
        let late = ended(span(-90 * MINUTE, interval(-HOUR, 0), None), -80 * MINUTE);
        assert_eq!(due(&late), [Finding::Same, Finding::Due]);
        let back = ended(
            span(
                -90 * MINUTE,
                interval(0, -HOUR),
                Some(interval(-HOUR, -80 * MINUTE)),
            ),
            -80 * MINUTE,
        );
        assert_eq!(due(&back), [Finding::Same, Finding::Same, Finding::Due]);
        let done = complete(ended(
            span(-90 * MINUTE, interval(-HOUR, -80 * MINUTE), None),
            -80 * MINUTE,
        ));
        assert_eq!(due(&done), [Finding::Same]);
    }

    #[test]
    fn known_faults_have_their_names() {
        let fault = Finding::KnownFault;
        let negative = ended(span(0, interval(0, 0), Some(interval(0, -1))), -1);
        assert_eq!(due(&negative), [fault(KnownFault::EndsBeforeStart)]);
        let empty = ended(span(-9, interval(-9, -9), Some(interval(-9, -9))), -9);
        assert_eq!(due(&empty)[0], fault(KnownFault::NoLength));
        let ahead = ended(span(-9, interval(-9, 0), Some(interval(0, 5))), 5);
        assert_eq!(due(&ahead), [Finding::Same, fault(KnownFault::AheadOfTime)]);
        let done = complete(ended(span(-9, interval(0, 5), None), 5));
        assert_eq!(due(&done), [fault(KnownFault::AheadOfTime)]);
        let first = span(-30 * MINUTE, interval(-30 * MINUTE, -30 * MINUTE), None);
        assert_eq!(due(&first), [fault(KnownFault::LateFirstWindow)]);
        let late = |now| compare(&first, at(now), &hourly());
        assert_eq!(late(30 * MINUTE), [fault(KnownFault::LateFirstWindow)]);
        assert_eq!(late(30 * MINUTE + 1), [Finding::Due]);
    }

    #[test]
    fn what_nobody_knows_of_is_a_difference() {
        let whole = interval(-36 * HOUR, -12 * HOUR);
        let daily = span(-36 * HOUR, whole, None);
        let difference = Difference::Interval {
            recorded: whole,
            ours: Some(interval(-36 * HOUR, -35 * HOUR)),
            dimension: Some(Granularity::Day),
        };
        assert_eq!(due(&daily), [Finding::Difference(difference), Finding::Due]);
        assert!(
            difference
                .to_string()
                .ends_with("with SAMPLER_DIMENSION=day we agree")
        );
        let odd = span(-2 * HOUR, interval(-2 * HOUR, -HOUR - 7), None);
        let Finding::Difference(Difference::Interval {
            dimension: None, ..
        }) = due(&odd)[0]
        else {
            panic!("{:?}", due(&odd));
        };
        let gap = span(
            -2 * HOUR,
            interval(-2 * HOUR, -HOUR),
            Some(interval(-HOUR + 1, 0)),
        );
        let gap = due(&gap);
        assert!(
            matches!(gap[2], Finding::Difference(Difference::Gap { .. })),
            "{gap:?}"
        );
        let short = complete(ended(span(-HOUR, interval(-HOUR, 0), None), 7));
        let short = due(&short);
        assert!(
            matches!(
                short[1],
                Finding::Difference(Difference::NotToItsEnd { .. })
            ),
            "{short:?}"
        );
    }
}

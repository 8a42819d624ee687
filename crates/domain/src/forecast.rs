//! A forecast: the usages that would be posted for a span if nothing else happened to it.

use crate::{Acceptance, Action, Contract, Driver, Policy, Span, Timestamp, Usage};

/// The usages of a span that are due by a time and have not been recorded as delivered, in the order in
/// which a worker would post them.
///
/// The worker's own protocol decides them. Only the grace for late stops is left out: it changes when a
/// usage is posted, and not what the usage says.
#[derive(Clone, Debug)]
pub struct Forecast {
    driver: Driver,
    until: Timestamp,
    policy: Policy,
}

impl Forecast {
    /// The usages that would be posted for `span` until then, if the upstream accepted everything.
    pub fn new(mut span: Span, until: Timestamp, policy: &Policy) -> Self {
        // The usages of a suspended span are posted as well, once it is resumed.
        span.processing.suspended = None;
        span.processing.probe = None;
        Self {
            driver: Driver::new(span, Contract::Forever, Timestamp::MIN),
            until,
            policy: Policy {
                stop_grace: 0,
                ..policy.clone()
            },
        }
    }
}

impl Iterator for Forecast {
    type Item = Usage;

    fn next(&mut self) -> Option<Usage> {
        loop {
            match self.driver.action(self.until, &self.policy) {
                Action::Change(change) => self.driver.on_change_made(&change),
                Action::Post { planned, .. } => {
                    let usage = Usage::new(self.driver.span(), &planned);
                    self.driver.on_accepted(Acceptance {
                        at: self.until,
                        status: None,
                        location: None,
                    });
                    return Some(usage);
                }
                Action::WriteEntry(entry) => self.driver.on_entry_written(entry.state),
                // Nothing fails here, and nobody else drives the span.
                Action::LookUp(_)
                | Action::Register(_)
                | Action::BeginResuming(_)
                | Action::Reread
                | Action::Done => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Granularities, Granularity, Id, Interval, Measures, Planned, SpanId, StartEvent,
        Suspension, Target, Totals,
    };

    const HOUR: i64 = 3_600_000;

    fn at(millis: i64) -> Timestamp {
        Timestamp::new(millis).unwrap()
    }

    fn span(start: i64, end: Option<i64>) -> Span {
        let event = StartEvent {
            id: Some(Id::new("a").unwrap()),
            timestamp: at(start),
            target: Target::from_store(["o", "s", "c", "r", "p", "i"]),
            measures: Measures::new(Vec::new()).unwrap(),
        };
        let mut span = Span::open(SpanId::new(at(0), 0), event);
        span.end = end.map(at);
        span
    }

    /// The durations of the usages, in ms.
    fn durations(span: Span, until: i64) -> Vec<i64> {
        let policy = Policy {
            granularities: Granularities::all(Granularity::Hour),
            stop_grace: 10 * HOUR,
        };
        let usages = Forecast::new(span, at(until), &policy);
        let duration = |usage: Usage| usage.measured_usage.last()?.quantity.as_json().as_i64();
        usages.filter_map(duration).collect()
    }

    #[test]
    fn windows_that_end_by_then_are_there_and_no_others() {
        let half = HOUR / 2;
        assert!(durations(span(half, None), half).is_empty());
        assert!(durations(span(half, None), HOUR - 1).is_empty());
        assert_eq!(durations(span(half, None), HOUR), [half]);
        assert_eq!(durations(span(half, None), 3 * HOUR), [half, HOUR, HOUR]);
        let ended = span(half, Some(2 * HOUR + 1));
        assert_eq!(durations(ended.clone(), 2 * HOUR), [half, HOUR]);
        assert_eq!(durations(ended, 9 * HOUR), [half, HOUR, 1]);
    }

    #[test]
    fn what_was_sampled_is_left_out_or_taken_back() {
        let mut late = span(0, Some(HOUR / 2));
        late.processing.last = Interval {
            start: at(HOUR),
            end: at(2 * HOUR),
        };
        late.processing.totals = Totals::from(at(2 * HOUR));
        assert_eq!(durations(late, 2 * HOUR), [-HOUR, -HOUR / 2]);
    }

    #[test]
    fn what_is_planned_and_what_is_suspended_is_yet_to_be_posted() {
        let mut planned = span(0, None);
        let interval = Interval {
            start: at(0),
            end: at(HOUR),
        };
        planned.processing.planned = Some(Planned::new(&planned, interval, at(HOUR)));
        let mut suspended = planned.clone();
        suspended.processing.suspended = Some(Suspension {
            cause: "00000000-0000-0000-0000-000000000000".parse().unwrap(),
            since: at(HOUR),
        });
        assert_eq!(durations(planned, 2 * HOUR), [HOUR, HOUR]);
        assert_eq!(durations(suspended, 2 * HOUR), [HOUR, HOUR]);
    }
}

//! How often each moment of a span is covered.

use std::collections::BTreeMap;

use crate::api::{Interval, Span};
use crate::moment::Millis;

/// What is covered, as the changes at each moment where something changes. Usages that follow each other
/// without a gap leave nothing in between.
#[derive(Debug)]
pub(super) struct Coverage {
    changes: BTreeMap<Millis, Layers>,
}

/// How often a moment is covered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Layers {
    /// By usages.
    billed: i64,
    /// By usages and by what does not count, less what the span says is sampled.
    surplus: i64,
    /// By ranges that do not count, and of which the upstream may have accepted a usage all the same.
    open: i64,
}

/// A stretch of time that is not covered as it should be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) from: Millis,
    pub(super) to: Millis,
    pub(super) found: Found,
    /// Its ms, as often as they are wrong.
    pub(super) length: i128,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Neither billed nor skipped.
    Missing,
    /// Taken back by usages, and not billed before.
    TakenBack,
    /// Billed, although the span says that it does not count: the usage was accepted all the same.
    Settled,
    /// Billed twice, or not sampled.
    Twice,
}

impl Coverage {
    /// What the span says: that it is sampled, and what of that does not count.
    pub(super) fn of(span: &Span) -> Self {
        let mut coverage = Self {
            changes: BTreeMap::new(),
        };
        // From back to front: what is to be covered is missing until it is.
        coverage.add(span.sampled_to, span.start, |layers| &mut layers.surplus);
        for range in span.excluded.iter().chain(&span.again) {
            let Interval { start, end } = range.interval();
            coverage.add(start, end, |layers| &mut layers.surplus);
        }
        let unanswered = span.excluded.iter().filter(|it| it.unanswered);
        for range in unanswered.chain(&span.again) {
            let (one, other) = (range.start, range.end);
            coverage.add(one.min(other), one.max(other), |layers| &mut layers.open);
        }
        coverage
    }

    pub(super) fn bill(&mut self, Interval { start, end }: Interval) {
        self.add(start, end, |layers| &mut layers.billed);
        self.add(start, end, |layers| &mut layers.surplus);
    }

    /// Adds one from `start` to `end`; where that leads backwards, takes one away.
    fn add(&mut self, start: Millis, end: Millis, layer: fn(&mut Layers) -> &mut i64) {
        for (at, by) in [(start, 1), (end, -1)] {
            let layers = self.changes.entry(at).or_default();
            *layer(layers) += by;
            if *layers == Layers::default() {
                self.changes.remove(&at);
            }
        }
    }

    pub(super) fn stretches(&self) -> Vec<Stretch> {
        let mut now = Layers::default();
        let ends = self.changes.keys().skip(1);
        let changes = self.changes.iter().zip(ends);
        let stretches = changes.filter_map(|((from, change), to)| {
            now.billed += change.billed;
            now.surplus += change.surplus;
            now.open += change.open;
            let (found, times) = now.found()?;
            let (from, to) = (*from, *to);
            let length = (i128::from(to) - i128::from(from)) * i128::from(times);
            Some(Stretch {
                from,
                to,
                found,
                length,
            })
        });
        stretches.collect()
    }
}

impl Layers {
    /// What is wrong, and how often.
    fn found(self) -> Option<(Found, i64)> {
        match (self.surplus, self.billed) {
            (_, 2..) => Some((Found::Twice, self.billed - 1)),
            (..=-1, _) => Some((Found::Missing, -self.surplus)),
            (1.., _) if self.open > 0 => Some((Found::Settled, self.surplus)),
            (1.., _) => Some((Found::Twice, self.surplus)),
            (_, ..=-1) => Some((Found::TakenBack, -self.billed)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Target;
    use crate::api::{Excluded, Proof};

    fn span(sampled_to: Millis, excluded: Vec<Excluded>, again: Vec<Excluded>) -> Span {
        Span {
            id: "s".to_owned(),
            target: Target::from_ids(["o", "s", "c", "r", "p", "i"].map(str::to_owned)),
            measured_usage: Vec::new(),
            start: 0,
            end: None,
            state: "open".to_owned(),
            start_event_id: None,
            sampled_to,
            planned: None,
            excluded,
            again,
            proof: Proof {
                used: 0,
                billed: 0,
                skipped: 0,
                unanswered: 0,
                difference: None,
            },
        }
    }

    fn range(start: Millis, end: Millis, back_to: Option<Millis>, unanswered: bool) -> Excluded {
        Excluded {
            start,
            end,
            back_to,
            unanswered,
            error: None,
        }
    }

    fn found(span: &Span, usages: &[(Millis, Millis)]) -> Vec<(Millis, Millis, Found)> {
        let mut coverage = Coverage::of(span);
        for (start, end) in usages.iter().copied() {
            coverage.bill(Interval { start, end });
        }
        let stretches = coverage.stretches().into_iter();
        stretches.map(|it| (it.from, it.to, it.found)).collect()
    }

    #[test]
    fn each_moment_is_covered_once_by_usages_in_any_order() {
        let plain = span(30, Vec::new(), Vec::new());
        assert_eq!(found(&plain, &[(20, 30), (0, 10), (10, 20)]), []);
        assert_eq!(
            found(&plain, &[(0, 10), (20, 30)]),
            [(10, 20, Found::Missing)]
        );
        assert_eq!(
            found(&plain, &[(0, 30), (10, 20)]),
            [(10, 20, Found::Twice)]
        );
        assert_eq!(found(&plain, &[(0, 40)]), [(30, 40, Found::Twice)]);
        assert_eq!(found(&plain, &[(0, 40), (40, 30)]), []);
    }

    #[test]
    fn what_is_excluded_needs_no_usage() {
        let gone = span(30, vec![range(10, 20, None, false)], Vec::new());
        assert_eq!(found(&gone, &[(0, 10), (20, 30)]), []);
        assert_eq!(found(&gone, &[(0, 30)]), [(10, 20, Found::Twice)]);
        // A late stop over it.
        let trimmed = span(15, vec![range(10, 20, Some(15), false)], Vec::new());
        assert_eq!(found(&trimmed, &[(0, 10)]), []);
        // A correction that was skipped.
        let back = span(15, vec![range(30, 15, None, false)], Vec::new());
        assert_eq!(found(&back, &[(0, 30)]), []);
    }

    #[test]
    fn what_was_accepted_all_the_same_is_settled() {
        let flagged = span(30, vec![range(10, 20, None, true)], Vec::new());
        assert_eq!(found(&flagged, &[(0, 30)]), [(10, 20, Found::Settled)]);
        let again = span(30, Vec::new(), vec![range(10, 30, None, false)]);
        assert_eq!(found(&again, &[(0, 20)]), [(10, 20, Found::Settled)]);
        assert_eq!(
            found(&again, &[(0, 20), (10, 20)]),
            [(10, 20, Found::Twice)]
        );
    }

    #[test]
    fn no_usage_takes_back_what_none_has_billed() {
        let gone = span(10, vec![range(10, 20, None, false)], Vec::new());
        assert_eq!(
            found(&gone, &[(0, 10), (20, 10)]),
            [(10, 20, Found::TakenBack)]
        );
    }
}

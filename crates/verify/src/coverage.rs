//! How often each moment of a span is covered.

use std::collections::BTreeMap;

use crate::api::{Interval, Span};
use crate::moment::Millis;
use crate::report::FindingKind;

/// What is covered, as the changes at each moment where something changes. Usages that follow each other without
/// a gap leave nothing in between, so any number of them needs no memory.
#[derive(Debug, Default)]
pub(crate) struct Coverage(BTreeMap<Millis, Layers>);

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

impl Coverage {
    /// What the span says: that it is sampled, and what of that does not count.
    pub(crate) fn of(span: &Span) -> Self {
        let mut coverage = Self::default();
        // From back to front: what is to be covered is missing until it is.
        coverage.add(span.sampled_to, span.start, |layers| &mut layers.surplus);
        for range in span.ranges() {
            let Interval { start, end } = range.interval();
            coverage.add(start, end, |layers| &mut layers.surplus);
        }
        let unanswered = span.excluded.iter().filter(|it| it.unanswered);
        for range in unanswered.chain(&span.again) {
            let (first, last) = range.whole().bounds();
            coverage.add(first, last, |layers| &mut layers.open);
        }
        coverage
    }

    pub(crate) fn bill(&mut self, Interval { start, end }: Interval) {
        self.add(start, end, |layers| &mut layers.billed);
        self.add(start, end, |layers| &mut layers.surplus);
    }

    /// Adds one from `start` to `end`; where that leads backwards, takes one away.
    fn add(&mut self, start: Millis, end: Millis, layer: fn(&mut Layers) -> &mut i64) {
        for (at, by) in [(start, 1), (end, -1)] {
            let layers = self.0.entry(at).or_default();
            *layer(layers) += by;
            if *layers == Layers::default() {
                self.0.remove(&at);
            }
        }
    }

    /// The stretches that no single usage covers, with what that is and how often. What ends before `oldest` may have
    /// expired.
    pub(crate) fn stretches(&self, oldest: Millis) -> Vec<(Interval, FindingKind, i64)> {
        let (mut now, mut stretches) = (Layers::default(), Vec::new());
        for ((start, change), end) in self.0.iter().zip(self.0.keys().skip(1)) {
            now.billed += change.billed;
            now.surplus += change.surplus;
            now.open += change.open;
            let (start, end) = (*start, *end);
            let found = now.found(end <= oldest);
            stretches.extend(found.map(|(kind, times)| (Interval { start, end }, kind, times)));
        }
        stretches
    }
}

impl Layers {
    /// What is found: of several kinds, the one that says most.
    fn found(self, may_have_expired: bool) -> Option<(FindingKind, i64)> {
        match (self.surplus, self.billed) {
            (_, 2..) => Some((FindingKind::Overlap, self.billed - 1)),
            (..=-1, _) if may_have_expired => Some((FindingKind::Expired, -self.surplus)),
            (..=-1, _) => Some((FindingKind::Gap, -self.surplus)),
            // Accepted, although the span says that it does not count.
            (1.., _) if self.open > 0 => Some((FindingKind::Unanswered, self.surplus)),
            (1.., _) => Some((FindingKind::Overlap, self.surplus)),
            // Taken back, and not billed before.
            (0, ..=-1) if !may_have_expired => Some((FindingKind::Gap, -self.billed)),
            (0, _) => None,
        }
    }
}

//! Stops at bad places: before, within and behind intervals whose usages do not count, or may never.

use sampler_domain::{Interval, Span, Timestamp};
use sampler_testkit::rng::Rng;

use super::op::{Event, Kind};
use super::world::{OTHER_PLAN, World, target_number};

impl World {
    /// The stop of an open span that has such an interval; `None` where there is none. Only providers that
    /// are not well behaved send it.
    pub(crate) fn stop_at_a_bad_place(&self, seed: u64) -> Option<Event> {
        let rng = &mut Rng::new(seed, 0);
        let kept = self.store.all().into_iter().map(|kept| kept.span);
        let is_open = |span: &Span| span.end.is_none() && !self.is_well_behaved(span);
        let found: Vec<(Span, Vec<Interval>)> = kept
            .filter(is_open)
            .map(|span| (span.clone(), doubtful(&span)))
            .filter(|(_, doubtful)| !doubtful.is_empty())
            .collect();
        if found.is_empty() {
            return None;
        }
        let (span, doubtful) = rng.pick(&found);
        let interval = *rng.pick(doubtful);
        Some(Event {
            kind: Kind::Stop,
            id: Some(format!("bad-{seed}")),
            timestamp: place(rng, interval).max(span.start),
            target: target_number(&span.target),
            measures: 0,
            broken: false,
        })
    }

    fn is_well_behaved(&self, span: &Span) -> bool {
        let number = target_number(&span.target) % OTHER_PLAN;
        let behaved = self.setup.well_behaved.get(number);
        behaved.is_some_and(|is_well| *is_well)
    }
}

/// What of a span is excluded, sent again or refused.
fn doubtful(span: &Span) -> Vec<Interval> {
    let processing = &span.processing;
    let excluded = processing.excluded.iter();
    let again = processing.again.iter().map(|again| &again.range);
    let refused = processing.planned.iter();
    let refused = refused.filter(|_| processing.failure.is_some());
    let ranges = excluded.chain(again).map(|range| range.interval);
    ranges.chain(refused.map(|it| it.interval)).collect()
}

/// A moment before, within or behind an interval, or at its edge.
fn place(rng: &mut Rng, interval: Interval) -> Timestamp {
    let (low, high) = (
        interval.start.min(interval.end),
        interval.start.max(interval.end),
    );
    let length = high.since(low);
    match rng.below(10) {
        0..=4 => low.plus(rng.between(1, length - 1)),
        5 => low,
        6 => high,
        7..=8 => low.plus(-rng.log_uniform(2 * length)),
        _ => high.plus(rng.log_uniform(2 * length)),
    }
}

//! By which granularity the time of a span was cut into intervals: its `dimensions`.
//!
//! A setting says how long intervals are, and operators change settings. Backwards, and where it is sent again,
//! time is cut as it was cut forwards. Otherwise a window would count less than nothing, although the sum is
//! right.

use serde::{Deserialize, Serialize};

use crate::{Granularity, Interval, Policy, Span, Timestamp};

/// A span is cut by this granularity from a time on, until the next cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cut {
    pub from: Timestamp,
    #[serde(rename = "dimension")]
    pub granularity: Granularity,
}

impl Span {
    /// The next boundary after `time`, as that time was cut; none where nothing was cut, or where time ends. What
    /// another program has sampled before us is cut as we began.
    pub fn cut_after(&self, time: Timestamp) -> Option<Timestamp> {
        let cuts = &self.processing.cuts;
        let place = cuts.partition_point(|cut| cut.from <= time);
        let cut = cuts[..place].last().or(cuts.first())?;
        let boundary = cut.granularity.boundary_after(time);
        let edge = cuts.get(place).map(|cut| cut.from);
        [boundary, edge].into_iter().flatten().min()
    }

    /// The boundary before `time`, as that time was cut; none where nothing was cut, or where time begins.
    pub(crate) fn cut_before(&self, time: Timestamp) -> Option<Timestamp> {
        let cut = self.cut_just_before(time)?;
        let boundary = cut.granularity.boundary_before(time);
        let edge = (cut.from < time).then_some(cut.from);
        boundary.max(edge)
    }

    fn cut_just_before(&self, time: Timestamp) -> Option<Cut> {
        let cuts = &self.processing.cuts;
        let before = cuts.iter().rev().find(|cut| cut.from < time);
        before.or(cuts.first()).copied()
    }

    /// By what an interval of the span was cut; by what the policy says where nothing was cut.
    pub fn granularity_of(&self, interval: Interval, policy: &Policy) -> Granularity {
        let cut = self.cut_just_before(interval.start.max(interval.end));
        cut.map_or_else(
            || policy.granularities.of(&self.target),
            |cut| cut.granularity,
        )
    }

    /// Notes that the time from `from` on is cut by this granularity.
    pub(crate) fn cut_by(&mut self, granularity: Granularity, from: Timestamp) {
        let cuts = &mut self.processing.cuts;
        if cuts.last().map(|cut| cut.granularity) != Some(granularity) {
            cuts.push(Cut { from, granularity });
        }
    }
}

//! By which granularity the time of a span was cut into intervals.
//!
//! A setting says how long intervals are, and operators change settings. A late stop takes back what was
//! sampled too much as it was counted: in the pieces in which it was cut forwards. Otherwise a window would
//! count less than nothing, although the sum is right.

use crate::{Granularity, Planned, Policy, Span, Timestamp};

/// A span is cut by this granularity from a time on, until the next cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cut {
    pub from: Timestamp,
    pub granularity: Granularity,
}

impl Planned {
    /// The same plan, as the policy cuts the time of the span. An interval that leads backwards is cut as
    /// the time was.
    #[must_use]
    pub fn cut_by(self, span: &Span, policy: &Policy) -> Self {
        let is_forwards = self.interval.start < self.interval.end;
        Self {
            granularity: is_forwards.then(|| policy.granularities.of(&span.target)),
            ..self
        }
    }
}

impl Span {
    /// How the time just before `time` was cut; none where that is not known, because another program
    /// has sampled it.
    pub(crate) fn cut_before(&self, time: Timestamp) -> Option<Cut> {
        let mut cuts = self.processing.cuts.iter().rev();
        cuts.find(|cut| cut.from < time).copied()
    }

    /// The cut that a plan adds: none if it goes on as the plan before, or leads backwards.
    pub fn added_cut(&self, planned: &Planned) -> Option<Cut> {
        let granularity = planned.granularity?;
        let last = self.processing.cuts.last().map(|cut| cut.granularity);
        (last != Some(granularity)).then_some(Cut {
            from: planned.interval.start,
            granularity,
        })
    }

    /// Makes a plan the span's, with the cut that it adds.
    pub(crate) fn plan(&mut self, planned: &Planned) {
        let cut = self.added_cut(planned);
        self.processing.cuts.extend(cut);
        self.processing.planned = Some(planned.clone());
    }
}

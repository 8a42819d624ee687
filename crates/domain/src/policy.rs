//! The policy of sampling: granularity and grace.

use crate::{Granularities, Target, Timestamp};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How long intervals are.
    pub granularities: Granularities,
    /// How long after its end an interval of an open span waits for a late stop, in ms.
    pub stop_grace: i64,
}

impl Policy {
    /// When an open span of `target` that is sampled to `time` needs a worker next.
    pub fn open_due_at(&self, target: &Target, time: Timestamp) -> Timestamp {
        let boundary = self.granularities.of(target).boundary_after(time);
        boundary.unwrap_or(Timestamp::MAX).plus(self.stop_grace)
    }
}

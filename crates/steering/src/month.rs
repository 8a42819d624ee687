//! The rule of when a month closes, for both programs.

use sampler_domain::{ClosingMonth, Timestamp};

#[derive(Clone, Copy, Debug)]
pub struct MonthClose {
    /// How long into a month the upstream accepts usages of the one before, ms.
    pub month_slack: i64,
    /// How long an interval of an open span waits for a late stop, ms.
    pub stop_grace: i64,
}

impl MonthClose {
    pub fn closing(self, now: Timestamp) -> Option<ClosingMonth> {
        ClosingMonth::at(now, self.month_slack, self.stop_grace)
    }

    pub fn closes_at(self, end: Timestamp) -> Timestamp {
        end.plus(self.month_slack)
    }
}

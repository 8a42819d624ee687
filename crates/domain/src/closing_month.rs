//! The month that the upstream is about to close.

use crate::{Granularity, Timestamp};

/// The month that the upstream closes next. Usages of it that come later are set aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClosingMonth {
    /// Its first millisecond.
    pub start: Timestamp,
    /// Its end: the first millisecond of the current month.
    pub end: Timestamp,
    /// When the last intervals of open spans in it become due: at its end, plus the grace.
    pub last_due_at: Timestamp,
}

impl ClosingMonth {
    /// The month that is closing at `now`: the previous month, during the first `slack` ms of a month.
    /// Open spans become due `grace` ms after a boundary
    /// ([`Policy::stop_grace`](crate::Policy::stop_grace)).
    pub fn at(now: Timestamp, slack: i64, grace: i64) -> Option<Self> {
        let end = Granularity::Month.window_of(now);
        let start = Granularity::Month.boundary_before(end)?;
        let last_due_at = end.plus(grace);
        (now.since(end) <= slack).then_some(Self {
            start,
            end,
            last_due_at,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timestamp::at;

    #[test]
    fn a_month_is_closing_for_a_while_after_it_ended() {
        let closing = ClosingMonth {
            start: at("2026-02-01T00:00:00Z"),
            end: at("2026-03-01T00:00:00Z"),
            last_due_at: at("2026-03-01T00:00:30Z"),
        };
        assert_eq!(
            ClosingMonth::at(at("2026-02-28T23:59:59.999Z"), 600_000, 30_000),
            None
        );
        assert_eq!(
            ClosingMonth::at(at("2026-03-01T00:00:00Z"), 600_000, 30_000),
            Some(closing)
        );
        assert_eq!(
            ClosingMonth::at(at("2026-03-01T00:10:00Z"), 600_000, 30_000),
            Some(closing)
        );
        assert_eq!(
            ClosingMonth::at(at("2026-03-01T00:10:00.001Z"), 600_000, 30_000),
            None
        );
    }
}

//! The month that the upstream is about to close, whose spans come first.

use crate::{Granularity, Timestamp};

/// The month that the upstream closes next. Usages of it that come later are set aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClosingMonth {
    /// Its first millisecond.
    pub start: Timestamp,
    /// Its end: the first millisecond of the current month.
    pub end: Timestamp,
    /// When the last intervals of open spans in it become due: at its end, plus the grace.
    pub last_regular_due_at: Timestamp,
}

impl ClosingMonth {
    /// The month that is closing at `now`: the previous month, during the first `slack` ms of a month.
    /// Open spans become due `grace` ms after a boundary
    /// ([`Policy::stop_grace`](crate::Policy::stop_grace)).
    pub fn at(now: Timestamp, slack: i64, grace: i64) -> Option<Self> {
        let end = Granularity::Month.window_of(now);
        let start = Granularity::Month.boundary_before(end)?;
        let last_regular_due_at = end.plus(grace);
        (now.since(end) <= slack).then_some(Self {
            start,
            end,
            last_regular_due_at,
        })
    }

    /// The `due_at` of a span that yields its permit at `now`. If the span continues within this
    /// month, it comes after all spans that became due for the month and have not had a turn, and
    /// before all others. Any other span comes after all that is due for this month.
    pub fn yielded_due_at(self, now: Timestamp, continues_within: bool) -> Timestamp {
        if continues_within {
            now.min(self.last_due_at())
        } else {
            now.max(self.last_due_at().plus(1))
        }
    }

    /// The last `due_at` of spans of this month, apart from those that wait after a failure: one
    /// millisecond after the last regular one. Spans that have yielded get it, so that they come after
    /// all others of the month.
    pub fn last_due_at(self) -> Timestamp {
        self.last_regular_due_at.plus(1)
    }

    /// Whether a time is within this month. An interval never crosses a boundary of months, so any of
    /// its times but the higher end decides.
    pub fn holds(self, time: Timestamp) -> bool {
        self.start <= time && time < self.end
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
            last_regular_due_at: at("2026-03-01T00:00:30Z"),
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

    #[test]
    fn a_span_that_yields_stands_behind_what_fell_due() {
        let now = at("2026-03-01T00:05:00Z");
        let closing = ClosingMonth::at(now, 600_000, 30_000).unwrap();
        assert_eq!(
            closing.yielded_due_at(now, true),
            at("2026-03-01T00:00:30.001Z")
        );
        assert_eq!(closing.yielded_due_at(now, false), now);
        let early = at("2026-03-01T00:00:10Z");
        assert_eq!(closing.yielded_due_at(early, true), early);
        assert_eq!(
            closing.yielded_due_at(early, false),
            at("2026-03-01T00:00:30.002Z")
        );
    }
}

//! What an operator decides: granularity, grace, slack, waits.

use crate::{Granularities, Granularity, Target, Timestamp};

/// How spans are sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How long intervals are.
    pub granularities: Granularities,
    /// How long an open span's interval waits behind its boundary for a stop that comes late, ms.
    pub stop_grace: i64,
}

impl Policy {
    /// When a span of `target` that goes on needs a worker next, if it is sampled to `moment`.
    pub fn open_due_at(&self, target: &Target, moment: Timestamp) -> Timestamp {
        let boundary = self.granularities.of(target).boundary_after(moment);
        boundary.unwrap_or(Timestamp::MAX).plus(self.stop_grace)
    }
}

/// How far an event's timestamp may lie from the receiver's clock; both limits are inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slack {
    /// Into the past, ms.
    pub past: i64,
    /// Into the future, ms.
    pub future: i64,
}

impl Slack {
    /// Whether `timestamp` may be taken at `now`.
    pub const fn admits(self, timestamp: Timestamp, now: Timestamp) -> bool {
        let ahead = timestamp.since(now);
        -self.past <= ahead && ahead <= self.future
    }
}

/// The month that Abacus is about to close: usages for it that come later are put aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClosingMonth {
    /// Its first moment.
    pub start: Timestamp,
    /// Its last moment, which is the first one of the month that goes on.
    pub end: Timestamp,
    /// When the last intervals of open spans in it fall due: at its end, and the grace.
    pub last_regular_due_at: Timestamp,
}

impl ClosingMonth {
    /// The month that is about to be closed at `now`, if one is: the one before, during the first
    /// `slack` ms of a month. Open spans fall due `grace` ms behind a boundary ([`Policy::stop_grace`]).
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

    /// When a span is due again that yields its permit at `now`. One that goes on within this
    /// month stands behind all that fell due for it and have not had a turn since it ended, and
    /// before everything else; any other stands behind what is due for this month.
    pub fn yielded_due_at(self, now: Timestamp, goes_on_within: bool) -> Timestamp {
        if goes_on_within {
            now.min(self.last_due_at())
        } else {
            now.max(self.last_due_at().plus(1))
        }
    }

    /// The last moment at which something is due for this month, apart from what failed.
    pub fn last_due_at(self) -> Timestamp {
        self.last_regular_due_at.plus(1)
    }

    /// Whether a span that is sampled to `moment` goes on within this month.
    pub fn holds(self, moment: Timestamp) -> bool {
        self.start <= moment && moment < self.end
    }
}

/// How long a span waits after executions that failed: twice as long each time, up to a limit,
/// less a random part of up to half so that spans which failed together come back apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure, ms.
    pub first: i64,
    /// At the most, ms.
    pub limit: i64,
}

impl Backoff {
    /// The wait in ms after the failure number `attempts`; `fraction` is random in `[0, 1)`.
    pub fn wait(self, attempts: u32, fraction: f64) -> i64 {
        let doublings = attempts.saturating_sub(1).min(40);
        let whole = self
            .first
            .saturating_mul(1 << doublings)
            .clamp(1, self.limit.max(1));
        #[expect(clippy::cast_possible_truncation, reason = "at most half of `whole`")]
        let off = (whole as f64 / 2.0 * fraction.clamp(0.0, 1.0)) as i64;
        (whole - off).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        let moment = chrono::DateTime::parse_from_rfc3339(text).unwrap();
        Timestamp::new(moment.timestamp_millis()).unwrap()
    }

    #[test]
    fn the_edges_of_the_slack_are_inside() {
        let slack = Slack {
            past: 1_000,
            future: 2_000,
        };
        let now = at("2026-01-01T00:00:00Z");
        assert!(slack.admits(now.plus(-1_000), now));
        assert!(!slack.admits(now.plus(-1_001), now));
        assert!(slack.admits(now.plus(2_000), now));
        assert!(!slack.admits(now.plus(2_001), now));
    }

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

    #[test]
    fn waits_grow_to_their_limit_and_keep_at_least_half() {
        let backoff = Backoff {
            first: 1_000,
            limit: 60_000,
        };
        let longest = |attempts| backoff.wait(attempts, 0.0);
        assert_eq!(
            [1, 2, 3, 6, 7, 1_000].map(longest),
            [1_000, 2_000, 4_000, 32_000, 60_000, 60_000]
        );
        assert_eq!(backoff.wait(3, 0.5), 3_000);
        assert!(backoff.wait(3, 0.999_999) >= 2_000);
    }
}

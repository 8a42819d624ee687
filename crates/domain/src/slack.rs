//! How far the timestamp of an event may be from the receiver's clock.

use crate::Timestamp;

/// How far an event's timestamp may be from the receiver's clock; both limits are inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slack {
    /// Into the past, ms.
    pub past: i64,
    /// Into the future, ms.
    pub future: i64,
}

impl Slack {
    /// Whether an event with this `timestamp` is accepted at `now`.
    pub const fn admits(self, timestamp: Timestamp, now: Timestamp) -> bool {
        let ahead = timestamp.since(now);
        -self.past <= ahead && ahead <= self.future
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        let time = chrono::DateTime::parse_from_rfc3339(text).unwrap();
        Timestamp::new(time.timestamp_millis()).unwrap()
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
}

//! Stretches of time: that of one usage, or of several that follow each other.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// From `start` to `end`; backwards, taking usage back, where `end` is before `start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Interval {
    pub start: Timestamp,
    pub end: Timestamp,
}

impl Interval {
    /// The interval of no length at `time`, where the sampling of a span starts.
    pub const fn at(time: Timestamp) -> Self {
        Self {
            start: time,
            end: time,
        }
    }

    /// Milliseconds from start to end, negative where the interval goes backwards.
    pub const fn duration(self) -> i64 {
        self.end.since(self.start)
    }

    /// Whether the interval has no length, so that there is no usage to send for it.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// The floor of the midpoint, the time at which the upstream accumulates the usage (section 5).
    ///
    /// The floor keeps it within the window of the interval in both directions: an interval never
    /// crosses a boundary, so its lower end is at or above the boundary that the window starts at.
    pub fn midpoint(self) -> Timestamp {
        Timestamp::clamped(i64::midpoint(self.start.as_millis(), self.end.as_millis()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(start: i64, end: i64) -> Interval {
        let time = |millis| Timestamp::new(millis).unwrap();
        Interval {
            start: time(start),
            end: time(end),
        }
    }

    #[test]
    fn duration_has_a_sign() {
        assert_eq!(interval(10, 25).duration(), 15);
        assert_eq!(interval(25, 10).duration(), -15);
        assert!(interval(10, 10).is_empty());
    }

    #[test]
    fn the_midpoint_is_rounded_down_in_both_directions() {
        assert_eq!(interval(10, 13).midpoint().as_millis(), 11);
        assert_eq!(interval(13, 10).midpoint().as_millis(), 11);
        assert_eq!(interval(10, 11).midpoint().as_millis(), 10);
        assert_eq!(interval(11, 10).midpoint().as_millis(), 10);
    }
}

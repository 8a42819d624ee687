//! How far the database's clock and the upstream's are apart. It is only a warning: the upstream may set aside
//! what is after its today.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use sampler_domain::Timestamp;
use sampler_store::Limiter;
use tracing::warn;

/// Answers that are compared. One that comes through a wrong gateway is outvoted.
const ANSWERS: usize = 5;

/// Clocks that differ by less agree, ms.
const TOLERANCE: i64 = 5_000;

/// How often the log says that they do not.
const LOG_INTERVAL: Duration = Duration::from_hours(1);

pub(crate) struct ClockOffset {
    /// By how much the database's clock was ahead, ms; by the last answers that had a date.
    last: Mutex<VecDeque<i64>>,
    reports: Limiter<()>,
}

impl Default for ClockOffset {
    fn default() -> Self {
        Self {
            last: Mutex::default(),
            reports: Limiter::new(1, LOG_INTERVAL),
        }
    }
}

impl ClockOffset {
    /// Notes the date of an answer that came at `now`.
    pub(crate) fn note(&self, date: Option<Timestamp>, now: Timestamp) {
        let Some(date) = date else { return };
        let mut last = self.last.lock().expect("nobody panics with it");
        last.truncate(ANSWERS - 1);
        last.push_front(now.since(date));
        drop(last);
        if self.disagrees() && self.reports.admit(()).is_some() {
            warn!(
                code = "clock.differs",
                ahead_ms = self.ahead(),
                "the clocks of the database and of the upstream differ"
            );
        }
    }

    /// By how much the database's clock is ahead, ms; the median of the last answers.
    pub(crate) fn ahead(&self) -> Option<i64> {
        let last = self.last.lock().expect("nobody panics with it");
        let mut offsets: Vec<i64> = last.iter().copied().collect();
        drop(last);
        offsets.sort_unstable();
        (offsets.len() == ANSWERS).then(|| offsets[ANSWERS / 2])
    }

    pub(crate) fn disagrees(&self) -> bool {
        self.ahead().is_some_and(|ahead| ahead.abs() > TOLERANCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Timestamp = Timestamp::clamped(1_773_144_000_000);

    #[test]
    fn the_median_of_five_answers_decides() {
        let offset = ClockOffset::default();
        for date in [
            Some(NOON),
            None,
            Some(NOON.plus(-86_400_000)),
            Some(NOON),
            Some(NOON),
        ] {
            offset.note(date, NOON.plus(700));
            assert_eq!(offset.ahead(), None);
        }
        offset.note(Some(NOON.plus(86_400_000)), NOON.plus(700));
        assert_eq!(offset.ahead(), Some(700));
        assert!(!offset.disagrees());
        for _ in 0..3 {
            offset.note(Some(NOON), NOON.plus(-6_000));
        }
        assert!(offset.disagrees());
        for _ in 0..3 {
            offset.note(Some(NOON), NOON);
        }
        assert!(!offset.disagrees());
    }
}

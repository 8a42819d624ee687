//! How the backlog has changed since the program began, for a day at the most.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Moments that are remembered at the most.
const MOMENTS_MAX: usize = 240;

/// The least and the largest time between two of them: they go back for a day.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LAST_PAUSE: Duration = Duration::from_mins(6);

const DAY: Duration = Duration::from_hours(24);

/// How many spans were due at a series of times. Older times are farther apart.
#[derive(Debug)]
pub(crate) struct Trend {
    moments: VecDeque<(Instant, u64)>,
    pause: Duration,
}

impl Default for Trend {
    fn default() -> Self {
        Self {
            moments: VecDeque::new(),
            pause: FIRST_PAUSE,
        }
    }
}

impl Trend {
    /// Notes how many spans are due, if the last time is long enough ago.
    pub(crate) fn note(&mut self, now: Instant, due: u64) {
        let is_recent = |(at, _): &(Instant, u64)| now.duration_since(*at) < self.pause;
        if self.moments.back().is_some_and(is_recent) {
            return;
        }
        // None is older than a day until the next one is noted.
        let is_old = |(at, _): &(Instant, u64)| now.duration_since(*at) + LAST_PAUSE > DAY;
        while self.moments.front().is_some_and(is_old) {
            self.moments.pop_front();
        }
        if self.moments.len() == MOMENTS_MAX {
            self.make_room();
        }
        self.moments.push_back((now, due));
    }

    /// Removes half of the times, or the first one.
    fn make_room(&mut self) {
        if self.pause >= LAST_PAUSE {
            self.moments.pop_front();
            return;
        }
        let every_second = self.moments.iter().step_by(2).copied();
        self.moments = every_second.collect();
        self.pause = (self.pause * 2).min(LAST_PAUSE);
    }

    /// How long ago each time is, the first one first, and how many spans were due then.
    pub(crate) fn moments(&self, now: Instant) -> Vec<(Duration, u64)> {
        let ago = |(at, due): &(Instant, u64)| (now.duration_since(*at), *due);
        self.moments.iter().map(ago).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_back_for_a_day_in_few_moments() {
        let (begin, mut trend) = (Instant::now(), Trend::default());
        let second = Duration::from_secs(1);
        for number in 0..30 {
            trend.note(begin + second * number, u64::from(number));
        }
        let shown = trend.moments(begin + second * 30);
        let expected = [(30, 0), (25, 5), (20, 10), (15, 15), (10, 20), (5, 25)];
        assert_eq!(shown, expected.map(|(ago, due)| (second * ago, due)));
        let day = 24 * 60 * 60;
        for number in 30..2 * day {
            trend.note(begin + second * number, u64::from(number));
            let (first, _) = trend.moments(begin + second * number)[0];
            assert!(first <= second * day, "{first:?}");
        }
        let shown = trend.moments(begin + second * 2 * day);
        assert!(
            (120..=MOMENTS_MAX).contains(&shown.len()),
            "{}",
            shown.len()
        );
        let (first, last) = (shown[0].0, shown[shown.len() - 1].0);
        assert!(
            first > second * (day - 1_000) && first <= second * day,
            "{first:?}"
        );
        assert!(last <= LAST_PAUSE);
        for (ago, due) in shown {
            assert_eq!(ago + Duration::from_secs(due), second * 2 * day);
        }
    }
}

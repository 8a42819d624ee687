//! How the backlog has changed since the program began, for a day at the most.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

const TIMES_MAX: usize = 240;

/// The least and the largest time between two of them: they go back for a day.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LAST_PAUSE: Duration = Duration::from_mins(6);

const DAY: Duration = Duration::from_hours(24);

/// How many spans were due at a series of times. Older times are farther apart.
#[derive(Debug)]
pub(crate) struct Trend {
    times: VecDeque<(Instant, u64)>,
    pause: Duration,
}

impl Default for Trend {
    fn default() -> Self {
        Self {
            times: VecDeque::new(),
            pause: FIRST_PAUSE,
        }
    }
}

impl Trend {
    /// Notes how many spans are due, if the last time is long enough ago.
    pub(crate) fn note(&mut self, now: Instant, due: u64) {
        let last = self.times.back();
        if last.is_some_and(|(at, _)| now.duration_since(*at) < self.pause) {
            return;
        }
        // None is older than a day until the next one is noted.
        while let Some((first, _)) = self.times.front()
            && now.duration_since(*first) + LAST_PAUSE > DAY
        {
            self.times.pop_front();
        }
        if self.times.len() == TIMES_MAX {
            self.make_room();
        }
        self.times.push_back((now, due));
    }

    /// Removes half of the times, or the first one.
    fn make_room(&mut self) {
        if self.pause >= LAST_PAUSE {
            self.times.pop_front();
            return;
        }
        let every_second = self.times.iter().step_by(2).copied();
        self.times = every_second.collect();
        self.pause = (self.pause * 2).min(LAST_PAUSE);
    }

    /// How long ago each time is, the first one first, and how many spans were due then.
    pub(crate) fn times(&self, now: Instant) -> Vec<(Duration, u64)> {
        self.times
            .iter()
            .map(|(at, due)| (now.duration_since(*at), *due))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_back_for_a_day_in_few_times() {
        let (begin, mut trend) = (Instant::now(), Trend::default());
        let second = Duration::from_secs(1);
        for number in 0..30 {
            trend.note(begin + second * number, u64::from(number));
        }
        let shown = trend.times(begin + second * 30);
        let expected = [(30, 0), (25, 5), (20, 10), (15, 15), (10, 20), (5, 25)];
        assert_eq!(shown, expected.map(|(ago, due)| (second * ago, due)));
        let day = 24 * 60 * 60;
        for number in 30..2 * day {
            trend.note(begin + second * number, u64::from(number));
            let (first, _) = trend.times(begin + second * number)[0];
            assert!(first <= second * day, "{first:?}");
        }
        let shown = trend.times(begin + second * 2 * day);
        assert!((120..=TIMES_MAX).contains(&shown.len()), "{}", shown.len());
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

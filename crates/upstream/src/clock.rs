//! An estimate of the upstream's clock from the dates of several of its answers, without I/O.
//!
//! Times are durations since a fixed time, by a clock that never steps. A sample is the offset of the
//! upstream's clock from that clock, so a step of the machine's own clock does not change the estimate.

use std::collections::VecDeque;
use std::time::Duration;

use sampler_domain::Timestamp;

/// How many samples an estimate needs. With fewer, one wrong answer could decide.
const SAMPLES_MIN: usize = 3;

const SAMPLES_MAX: usize = 9;

/// `Date` has whole seconds, ms.
const DATE_RESOLUTION: i64 = 1_000;

/// How far the intervals of two samples may be apart before the samples disagree, ms.
const NOISE: i64 = 1_000;

/// The largest correction of our clock forwards, ms. A time that is too late only delays usages; one
/// that is too early loses them, because Abacus sets aside what is after its today.
const FORWARD_CORRECTION_MAX: i64 = 10 * 60_000;

/// If a date is further away from our clock, one of the clocks is not set at all, ms.
const APART_MAX: i64 = 366 * 86_400_000;

/// How often to ask for the time of the upstream. All intervals follow from the usual one.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// From one request to the next while nothing is posted.
    pub usual: Duration,
}

impl Pace {
    /// How long a sample counts: 5 minutes, if the usual interval is 20 s.
    pub fn life(self) -> Duration {
        self.usual * 15
    }

    /// The shortest time between two samples, so that a burst of answers through one gateway counts
    /// once: 1 s.
    pub fn spacing(self) -> Duration {
        self.usual / 20
    }

    /// The same before the first estimate: 250 ms.
    pub fn first_spacing(self) -> Duration {
        self.usual / 80
    }

    /// From one request to the next while the samples disagree: 5 s.
    pub fn in_doubt(self) -> Duration {
        self.usual / 4
    }
}

/// An answer with a date.
#[derive(Clone, Copy, Debug)]
pub struct ClockReading {
    pub sent: Duration,
    pub received: Duration,
    /// Our clock's time when it came.
    pub ours: Timestamp,
    pub date: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// It is a sample.
    Taken,
    /// It came too soon after the last sample to be another one.
    TooSoon,
    /// It is more than a year behind our clock, so one of the clocks is not set.
    FarBehind,
    /// It is more than a year ahead of our clock, so one of the clocks is not set.
    FarAhead,
}

#[derive(Clone, Debug)]
pub struct ClockEstimate {
    pace: Pace,
    samples: VecDeque<Sample>,
    /// The last estimate, for when the samples are too old.
    last: Option<i64>,
}

/// An offset of Abacus's clock: ms since the epoch at the origin of monotonic times.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Duration,
    earliest: i64,
    latest: i64,
    /// The offset between these two that is nearest to our clock.
    nearest: i64,
    /// The same, but not further ahead of our clock than the largest correction.
    bounded: i64,
}

impl Sample {
    fn new(reading: &ClockReading) -> Self {
        let ours = reading.ours.as_millis() - millis(reading.received);
        // The date was written between the sending and the receipt, at any time within its second.
        let earliest = reading.date.as_millis() - millis(reading.received);
        let latest = reading.date.as_millis() + DATE_RESOLUTION - millis(reading.sent);
        let nearest = ours.clamp(earliest, latest.max(earliest));
        Self {
            at: reading.received,
            earliest,
            latest,
            nearest,
            bounded: nearest.min(ours + FORWARD_CORRECTION_MAX),
        }
    }
}

impl ClockEstimate {
    pub fn new(pace: Pace) -> Self {
        Self {
            pace,
            samples: VecDeque::new(),
            last: None,
        }
    }

    pub fn note(&mut self, reading: &ClockReading) -> Noted {
        let apart = reading.date.since(reading.ours);
        if apart > APART_MAX {
            return Noted::FarAhead;
        }
        if apart < -APART_MAX {
            return Noted::FarBehind;
        }
        let spacing = match self.estimate(reading.received) {
            Some(_) => self.pace.spacing(),
            None => self.pace.first_spacing(),
        };
        let last = self.samples.back().map(|sample| sample.at);
        if last.is_some_and(|last| reading.received < last + spacing) {
            return Noted::TooSoon;
        }
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample::new(reading));
        self.last = self.estimate(reading.received).or(self.last);
        Noted::Taken
    }

    /// Abacus's time at `instant`; `None` without enough fresh samples.
    pub fn at(&self, instant: Duration) -> Option<Timestamp> {
        self.estimate(instant)
            .map(|offset| timestamp(offset, instant))
    }

    /// Abacus's time at `instant`, by an old estimate if there is no fresh one.
    pub fn at_by_last(&self, instant: Duration) -> Option<Timestamp> {
        self.estimate(instant)
            .or(self.last)
            .map(|offset| timestamp(offset, instant))
    }

    /// How far our clock, which says `ours` at `instant`, is ahead of Abacus's, in ms; negative if it
    /// is behind. Not bounded: this is for people.
    pub fn ahead(&self, instant: Duration, ours: Timestamp) -> Option<i64> {
        let offset = self.median(instant, |sample| sample.nearest)?;
        Some(ours.as_millis() - millis(instant) - offset)
    }

    /// Whether the samples contradict each other.
    pub fn is_in_doubt(&self, instant: Duration) -> bool {
        let earliest = self.fresh(instant).map(|sample| sample.earliest).max();
        let latest = self.fresh(instant).map(|sample| sample.latest).min();
        let (Some(earliest), Some(latest)) = (earliest, latest) else {
            return false;
        };
        earliest > latest + NOISE
    }

    /// When the last sample was taken.
    pub fn last_at(&self) -> Option<Duration> {
        self.samples.back().map(|sample| sample.at)
    }

    fn estimate(&self, instant: Duration) -> Option<i64> {
        self.median(instant, |sample| sample.bounded)
    }

    /// Of two in the middle it is the earlier: a time that is too early loses usages.
    fn median(&self, instant: Duration, offset: impl Fn(&Sample) -> i64) -> Option<i64> {
        let mut offsets: Vec<i64> = self.fresh(instant).map(offset).collect();
        if offsets.len() < SAMPLES_MIN {
            return None;
        }
        offsets.sort_unstable();
        Some(offsets[(offsets.len() - 1) / 2])
    }

    fn fresh(&self, instant: Duration) -> impl Iterator<Item = &Sample> {
        let life = self.pace.life();
        self.samples
            .iter()
            .filter(move |sample| instant.saturating_sub(sample.at) <= life)
    }
}

fn timestamp(offset: i64, instant: Duration) -> Timestamp {
    Timestamp::clamped(offset.saturating_add(millis(instant)))
}

fn millis(length: Duration) -> i64 {
    i64::try_from(length.as_millis()).unwrap_or(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Timestamp = Timestamp::clamped(1_773_144_000_000);
    const MINUTE: i64 = 60_000;
    const DAY: i64 = 1_440 * MINUTE;

    fn pace() -> Pace {
        Pace {
            usual: Duration::from_secs(20),
        }
    }

    /// An estimate that hears an answer each second. Abacus's clock says noon at the beginning.
    struct Comparison {
        estimate: ClockEstimate,
        instant: Duration,
        /// How far our clock is ahead, ms.
        ahead: i64,
    }

    impl Comparison {
        fn new(ahead: i64) -> Self {
            Self {
                estimate: ClockEstimate::new(pace()),
                instant: Duration::ZERO,
                ahead,
            }
        }

        fn theirs(&self) -> Timestamp {
            NOON.plus(millis(self.instant))
        }

        /// A second passes, and an answer comes whose date is wrong by `wrong` ms.
        fn answer(&mut self, wrong: i64) -> Noted {
            self.instant += Duration::from_secs(1);
            let theirs = self.theirs();
            let seconds = theirs.plus(wrong).as_millis().div_euclid(1_000);
            self.estimate.note(&ClockReading {
                sent: self.instant.saturating_sub(Duration::from_millis(20)),
                received: self.instant,
                ours: theirs.plus(self.ahead),
                date: Timestamp::clamped(seconds * 1_000),
            })
        }

        /// How far what is estimated is ahead of the truth, ms.
        fn error(&self) -> Option<i64> {
            let now = self.estimate.at(self.instant)?;
            Some(now.since(self.theirs()))
        }

        fn of(ahead: i64, wrong: &[i64]) -> Self {
            let mut comparison = Self::new(ahead);
            for wrong in wrong {
                comparison.answer(*wrong);
            }
            comparison
        }
    }

    #[test]
    fn three_samples_make_an_estimate_and_the_right_clock_stays_as_it_is() {
        assert_eq!(Comparison::of(0, &[0, 0]).error(), None);
        assert_eq!(Comparison::of(0, &[0, 0, 0]).error(), Some(0));
        // Within the second that a date leaves open, our clock is as good.
        assert_eq!(Comparison::of(700, &[0, 0, 0]).error(), Some(700));
    }

    #[test]
    fn a_clock_that_is_ahead_is_taken_back_as_far_as_it_is_beyond_doubt() {
        for ahead in [30 * MINUTE, 63 * DAY] {
            let comparison = Comparison::of(ahead, &[0, 0, 0]);
            assert_eq!(comparison.error(), Some(1_020), "the second and the way");
            let ours = comparison.theirs().plus(ahead);
            let told = comparison.estimate.ahead(comparison.instant, ours);
            assert_eq!(told, Some(ahead - 1_020));
        }
    }

    #[test]
    fn a_clock_that_is_behind_is_put_forward_by_ten_minutes_at_the_most() {
        assert_eq!(Comparison::of(-5 * MINUTE, &[0, 0, 0]).error(), Some(0));
        let comparison = Comparison::of(-60 * MINUTE, &[0, 0, 0]);
        assert_eq!(comparison.error(), Some(-50 * MINUTE));
        let ours = comparison.theirs().plus(-60 * MINUTE);
        let told = comparison.estimate.ahead(comparison.instant, ours);
        assert_eq!(told, Some(-60 * MINUTE), "people are told all of it");
    }

    #[test]
    fn no_single_answer_decides_and_a_majority_is_outvoted_again() {
        for wrong in [-DAY, DAY, -300 * DAY] {
            let mut comparison = Comparison::of(0, &[0, wrong, 0]);
            assert_eq!(comparison.error(), Some(0), "{wrong}");
            assert!(comparison.estimate.is_in_doubt(comparison.instant));
            for _ in 0..8 {
                comparison.answer(0);
            }
            assert!(
                !comparison.estimate.is_in_doubt(comparison.instant),
                "forgotten"
            );
        }
        let mut comparison = Comparison::of(0, &[-DAY; 9]);
        assert!(comparison.error() < Some(-DAY + 2_000));
        for _ in 0..4 {
            comparison.answer(0);
        }
        assert!(comparison.error() < Some(-DAY + 2_000));
        comparison.answer(0);
        assert_eq!(comparison.error(), Some(0));
    }

    #[test]
    fn a_step_of_our_clock_changes_nothing() {
        for step in [3 * 60 * MINUTE, -3 * 60 * MINUTE] {
            let mut comparison = Comparison::of(0, &[0; 9]);
            comparison.ahead = step;
            assert_eq!(comparison.error(), Some(0));
            comparison.answer(0);
            assert_eq!(comparison.error(), Some(0));
        }
        // A later answer is compared with the clock as it is by then.
        let mut comparison = Comparison::of(0, &[0; 9]);
        comparison.ahead = 3 * 60 * MINUTE;
        for _ in 0..20 {
            comparison.answer(0);
            assert!(
                comparison.error() <= Some(1_020),
                "{:?}",
                comparison.error()
            );
        }
    }

    #[test]
    fn what_is_a_year_away_is_no_clock() {
        let mut comparison = Comparison::new(0);
        assert_eq!(comparison.answer(-367 * DAY), Noted::FarBehind);
        assert_eq!(comparison.answer(367 * DAY), Noted::FarAhead);
        assert_eq!(comparison.estimate.last_at(), None);
    }

    #[test]
    fn answers_that_come_at_once_count_once() {
        let mut comparison = Comparison::of(0, &[0, 0, 0]);
        for _ in 0..20 {
            comparison.instant -= Duration::from_millis(999);
            assert_eq!(comparison.answer(-DAY), Noted::TooSoon);
            comparison.instant -= Duration::from_millis(1);
        }
        assert_eq!(comparison.error(), Some(0));
    }

    #[test]
    fn an_estimate_expires_but_the_last_one_goes_on_for_notes() {
        let mut comparison = Comparison::of(DAY, &[0, 0, 0]);
        comparison.instant += Duration::from_mins(5) - Duration::from_secs(2);
        assert!(comparison.error().is_some());
        comparison.instant += Duration::from_secs(1);
        assert_eq!(comparison.error(), None, "one of three is too old");
        let last = comparison.estimate.at_by_last(comparison.instant).unwrap();
        assert_eq!(last.since(comparison.theirs()), 1_020);
    }

    #[test]
    fn an_answer_that_takes_long_leaves_more_in_doubt() {
        let mut estimate = ClockEstimate::new(pace());
        for second in [30, 31, 32] {
            let received = Duration::from_secs(second);
            estimate.note(&ClockReading {
                sent: received.saturating_sub(Duration::from_secs(25)),
                received,
                ours: NOON.plus(millis(received)).plus(20_000),
                date: NOON.plus(millis(received)).plus(-4_000),
            });
        }
        let instant = Duration::from_secs(32);
        let now = estimate.at(instant).unwrap();
        assert_eq!(now.since(NOON.plus(32_000)), 20_000, "it may be right");
    }
}

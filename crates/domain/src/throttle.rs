//! Which new starts are admitted while their rate is below 100 %.
//!
//! The id of an event gives it a place on a circle, and each minute all places move on by the rate.
//! A start is admitted during the minutes in which its place has just passed zero. So in each minute
//! the share of starts that is admitted is the rate. At a steady rate, a start that is repeated each
//! minute is admitted within `⌈100 / rate⌉` minutes. With each change of the rate the places jump, and
//! that time starts again. Each receiver decides alike, and none remembers anything.

use crate::{EventId, Percent, Target, Timestamp, partition};

const MINUTE: i64 = 60_000;

const CIRCLE: u64 = 1 << 32;

/// The place of a start on the circle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartPlace(u32);

impl StartPlace {
    /// The place of an event by its id; without one, by its target.
    pub fn of(id: Option<&EventId>, target: &Target) -> Self {
        let hash = match id {
            Some(id) => partition::hash(id.as_str().as_bytes()),
            None => partition::hash(&target.to_bytes()),
        };
        // Any 32 bits will do, but always the same, so that all receivers decide alike.
        let bits = (hash >> 16) & u128::from(u32::MAX);
        Self(u32::try_from(bits).expect("32 bits"))
    }

    /// When a start that comes at `now` is admitted: `now`, or at the beginning of a later minute if
    /// the rate stays. `None` if never, because the rate is 0.
    pub fn admitted_at(self, now: Timestamp, rate: Percent) -> Option<Timestamp> {
        let step = step(rate);
        if step == 0 {
            return None;
        }
        let minute = now.as_millis().div_euclid(MINUTE);
        let reached = self.reached(minute, step);
        if reached < step {
            return Some(now);
        }
        let minutes = (CIRCLE - reached).div_ceil(step);
        let minutes = i64::try_from(minutes).unwrap_or(i64::MAX / MINUTE / 2);
        let begins = (minute.saturating_add(minutes)).saturating_mul(MINUTE);
        Some(Timestamp::clamped(begins))
    }

    /// How far the place is past zero in a minute.
    fn reached(self, minute: i64, step: u64) -> u64 {
        let minute = minute.rem_euclid(1 << 32).unsigned_abs();
        (u64::from(self.0) + (minute * (step % CIRCLE)) % CIRCLE) % CIRCLE
    }
}

/// How far all places move each minute. Rounded up, so that no start waits for longer than it
/// should.
fn step(rate: Percent) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "from 0 to the length of the circle"
    )]
    let step = (rate.share() * CIRCLE as f64).ceil() as u64;
    step.min(CIRCLE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn place(name: &str) -> StartPlace {
        let target = Target::from_store(["o", "s", "c", "r", "p", "i"]);
        StartPlace::of(Some(&EventId::from_store(name)), &target)
    }

    fn is_admitted(place: StartPlace, minute: i64, rate: Percent) -> bool {
        let now = Timestamp::clamped(minute * MINUTE + 17);
        place.admitted_at(now, rate) == Some(now)
    }

    proptest! {
        #[test]
        fn a_repeat_each_minute_gets_in_in_time(
            place in any::<u32>().prop_map(StartPlace),
            rate in prop_oneof![0.01..=100.0_f64, (1..=100_i32).prop_map(f64::from)],
            minute in 0..100_000_000_i64,
        ) {
            let percent = Percent::new(rate).unwrap();
            let most = (100.0 / rate).ceil();
            let waited = (0..1_000_000).find(|wait| is_admitted(place, minute + wait, percent)).unwrap();
            let tries = waited as f64 + 1.0;
            prop_assert!(tries <= most, "{tries} tries at {rate} %");
        }

        #[test]
        fn a_start_is_told_the_minute_in_which_it_gets_in(
            place in any::<u32>().prop_map(StartPlace),
            rate in 0.1..100.0_f64,
            now in 0..6_000_000_000_000_i64,
        ) {
            let (rate, now) = (Percent::new(rate).unwrap(), Timestamp::clamped(now));
            let told = place.admitted_at(now, rate).unwrap();
            prop_assert_eq!(place.admitted_at(told, rate), Some(told));
            let (from, to) = (now.as_millis() / MINUTE, told.as_millis() / MINUTE);
            for minute in from..to {
                prop_assert!(!is_admitted(place, minute, rate));
            }
        }
    }

    #[test]
    fn all_get_in_at_100_and_none_at_0() {
        for minute in 0..1_000 {
            for name in ["a", "b", "c"] {
                assert!(is_admitted(place(name), minute, Percent::ALL));
                assert!(!is_admitted(place(name), minute, Percent::NONE));
            }
        }
        assert_eq!(place("a").admitted_at(Timestamp::MIN, Percent::NONE), None);
    }

    #[test]
    fn in_each_minute_the_share_that_gets_in_is_the_rate() {
        let places: Vec<StartPlace> = (0..20_000)
            .map(|number| place(&format!("event-{number}")))
            .collect();
        for rate in [1.0, 10.0, 37.5, 50.0, 90.0] {
            let percent = Percent::new(rate).unwrap();
            for minute in [0, 1, 29_000_000, 29_000_001] {
                let admitted = places
                    .iter()
                    .filter(|place| is_admitted(**place, minute, percent));
                let share = admitted.count() as f64 / 200.0;
                assert!((share - rate).abs() < 1.5, "{share} % at {rate} %");
            }
        }
    }

    /// The bound is that of a steady rate alone.
    #[test]
    fn there_is_no_bound_while_the_rate_changes_each_minute() {
        let rates = [50.0, 10.0].map(|rate| Percent::new(rate).unwrap());
        let gets_in = |place| {
            let mut minutes = (0..10_000_i64).zip(rates.iter().cycle());
            minutes.any(|(minute, rate)| is_admitted(place, minute, *rate))
        };
        let places = (0..100).map(|number| place(&format!("event-{number}")));
        let never = places.filter(|place| !gets_in(*place)).count();
        assert!((10..40).contains(&never), "{never} of 100");
    }

    #[test]
    fn without_an_id_the_target_decides() {
        let of = |instance| {
            let target = Target::from_store(["o", "s", "c", "r", "p", instance]);
            StartPlace::of(None, &target)
        };
        assert_eq!(of("i"), of("i"));
        assert_ne!(of("i"), of("j"));
        assert_ne!(place("i"), of("i"));
    }
}

//! The controller, which sets the rate of new starts by itself: a PID controller that keeps the
//! time which the backlog needs near a target.
//!
//! The error is how far the time is below the target, as a share of the target: 1 with nothing due,
//! 0 at the target, negative above. The rate is the sum of three terms, held between 0 and 100 %: the
//! error times `kp`, the sum of all errors times `ki`, and the change of the error times `kd`. So with
//! `kp` alone the rate is 100 % while the time is below `1 - 1 / kp` of the target, and falls to 0 %
//! at the target.
//!
//! The rate falls at once and rises slowly. Clients repeat a refused start each
//! minute, so many starts wait when the rate rises, and the intervals of admitted starts are
//! due only later. A rate that rose at once would swing between the limits.

use serde::{Deserialize, Serialize};

use crate::{ControllerSettings, Percent};

/// How much of its speed the backlog is taken to keep for each minute in which less was seen.
const CAPACITY_KEPT: f64 = 0.9;

/// The least speed that is assumed, intervals a second. Few spans are not a reason to refuse
/// starts, even where nothing is done at all: one usage may be what the upstream cannot take.
const CAPACITY_MIN: f64 = 1.0;

/// How far above the target a time counts: nothing is gained by more.
const ERROR_MIN: f64 = -10.0;

/// How much the rate may rise in a minute: by a tenth of itself and a hundredth of all starts. From
/// nothing to everything that takes 25 minutes.
const RISE: f64 = 1.1;
const RISE_LEAST: f64 = 0.01;

/// The longest time between two steps that counts, s. After a longer one, the present error says
/// nothing of the time between.
const STEP_MAX: f64 = 300.0;

/// The measurement of each minute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Spans that are due.
    pub due: f64,
    /// Whether more than `due` are due: too many to be counted.
    pub at_least: bool,
    /// Intervals that are done in a second, by all workers, while they have something to do.
    pub rate: f64,
}

/// The state of the controller between two steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ControllerMemory {
    /// The sum of all errors, each times its seconds.
    pub integral: f64,
    /// The last error; none before the first step.
    pub last_error: Option<f64>,
    /// The greatest rate that was seen recently, intervals a second.
    pub capacity: f64,
    /// The last rate; none before the first step.
    pub rate: Option<Percent>,
}

/// The terms of a step, each as a share of all starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ControllerTerms {
    /// How long the backlog needs, s.
    pub needed_seconds: f64,
    pub proportional: f64,
    pub integral: f64,
    pub derivative: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ControllerStep {
    /// How many of the new starts are admitted.
    pub rate: Percent,
    pub terms: ControllerTerms,
    pub memory: ControllerMemory,
}

impl ControllerSettings {
    /// A step, `seconds` after the last one. The parameters have no
    /// [`errors`](ControllerSettings::errors).
    pub fn step(&self, before: ControllerMemory, load: Load, seconds: f64) -> ControllerStep {
        let seconds = seconds.clamp(0.0, STEP_MAX);
        let capacity = capacity(before.capacity, load.rate, seconds);
        let counted = load.due.max(0.0) / capacity;
        let needed_seconds = if load.at_least {
            counted.max(self.target_seconds)
        } else {
            counted
        };
        let error = (1.0 - needed_seconds / self.target_seconds).max(ERROR_MIN);
        let proportional = self.kp * error;
        let change = before.last_error.map_or(0.0, |last| error - last);
        let derivative = if seconds > 0.0 {
            self.kd * change / seconds
        } else {
            0.0
        };
        let integral = self.integrated(before.integral, error, seconds, proportional + derivative);
        let terms = ControllerTerms {
            needed_seconds,
            proportional,
            integral: self.ki * integral,
            derivative,
        };
        let wanted = terms.proportional + terms.integral + terms.derivative;
        let rate = Percent::of_share(wanted.min(highest(before.rate, seconds)));
        ControllerStep {
            rate,
            terms,
            memory: ControllerMemory {
                integral,
                last_error: Some(error),
                capacity,
                rate: Some(rate),
            },
        }
    }

    /// The sum of all errors. It stays while the rate is at a limit already and the error would only
    /// push it further, and its term is never more than the whole range: otherwise it would take as
    /// long to come back as it took to get there.
    fn integrated(&self, sum: f64, error: f64, seconds: f64, others: f64) -> f64 {
        let next = sum + error * seconds;
        let rate = others + self.ki * next;
        let pushes_further = (rate > 1.0 && error > 0.0) || (rate < 0.0 && error < 0.0);
        let most = 1.0 / self.ki.max(f64::MIN_POSITIVE);
        if pushes_further {
            sum
        } else {
            next.clamp(-most, most)
        }
    }
}

/// The highest share after this many seconds.
fn highest(before: Option<Percent>, seconds: f64) -> f64 {
    let minutes = seconds / 60.0;
    before.map_or(1.0, |before| {
        before.share() * RISE.powf(minutes) + RISE_LEAST * minutes
    })
}

/// How many intervals a second the workers can do: as many as they do now, or a little less than
/// the greatest rate of late, because they also do less while there is little to do.
fn capacity(before: f64, rate: f64, seconds: f64) -> f64 {
    let kept = before * CAPACITY_KEPT.powf(seconds / 60.0);
    rate.max(kept).max(CAPACITY_MIN)
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "these numbers are exact")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const P: ControllerSettings = ControllerSettings {
        enabled: true,
        target_seconds: 600.0,
        kp: 8.0,
        ki: 0.0,
        kd: 0.0,
    };

    const IDLE: Load = Load {
        due: 0.0,
        at_least: false,
        rate: 100.0,
    };

    /// A backlog that needs this many seconds.
    fn needs(seconds: f64) -> Load {
        Load {
            due: seconds * 100.0,
            ..IDLE
        }
    }

    fn rate(settings: &ControllerSettings, seconds: f64) -> f64 {
        let step = settings.step(ControllerMemory::default(), needs(seconds), 60.0);
        step.rate.get()
    }

    #[test]
    fn the_rate_falls_towards_the_target() {
        assert_eq!(rate(&P, 0.0), 100.0);
        assert_eq!(rate(&P, 525.0), 100.0);
        assert!((rate(&P, 562.5) - 50.0).abs() < 1e-9);
        assert_eq!(rate(&P, 600.0), 0.0);
        assert_eq!(rate(&P, 1e12), 0.0);
    }

    #[test]
    fn the_rate_falls_at_once_and_rises_slowly() {
        let mut memory = P.step(ControllerMemory::default(), needs(0.0), 60.0).memory;
        let mut step = |seconds: f64| {
            let step = P.step(memory, needs(seconds), 60.0);
            memory = step.memory;
            step.rate.get()
        };
        assert_eq!(step(0.0), 100.0);
        assert_eq!(step(600.0), 0.0);
        assert!((step(0.0) - 1.0).abs() < 1e-9);
        let minutes = (2..1_000).find(|_| step(0.0) == 100.0).unwrap();
        assert!((20..=30).contains(&minutes), "{minutes}");
    }

    #[test]
    fn an_integral_moves_the_rate_while_the_error_stays_and_does_not_wind_up() {
        let settings = ControllerSettings {
            kp: 1.0,
            ki: 0.001,
            ..P
        };
        let mut memory = ControllerMemory::default();
        let mut step = |seconds: f64| {
            let step = settings.step(memory, needs(seconds), 60.0);
            memory = step.memory;
            step.rate.get()
        };
        let first = step(300.0);
        assert!(step(300.0) > first, "it rises");
        for _ in 0..10_000 {
            step(0.0);
        }
        assert_eq!(step(0.0), 100.0);
        // However long the idle time was, the rate falls within minutes.
        let minutes = (1..1_000).find(|_| step(1_800.0) == 0.0).unwrap();
        assert!(minutes <= 20, "{minutes}");
    }

    #[test]
    fn a_derivative_brakes_a_backlog_that_grows_fast() {
        let settings = ControllerSettings {
            kp: 2.0,
            kd: 60.0,
            ..P
        };
        let before = settings.step(ControllerMemory::default(), needs(300.0), 60.0);
        let growing = settings.step(before.memory, needs(420.0), 60.0);
        let at_once = settings.step(ControllerMemory::default(), needs(420.0), 60.0);
        assert!(growing.rate < at_once.rate);
        assert!(growing.terms.derivative < 0.0);
    }

    #[test]
    fn more_than_can_be_counted_is_over_the_target() {
        let many = Load {
            at_least: true,
            ..needs(1.0)
        };
        let step = P.step(ControllerMemory::default(), many, 60.0);
        assert_eq!(step.rate, Percent::NONE);
        assert_eq!(step.terms.needed_seconds, P.target_seconds);
    }

    #[test]
    fn few_spans_that_nobody_can_do_turn_nothing_away() {
        let mut memory = ControllerMemory::default();
        for _ in 0..10_000 {
            let stuck = Load {
                due: 10.0,
                rate: 0.0,
                ..IDLE
            };
            let step = P.step(memory, stuck, 60.0);
            assert_eq!(step.rate, Percent::ALL);
            memory = step.memory;
        }
        let outage = Load {
            due: 10_000.0,
            rate: 0.0,
            ..IDLE
        };
        assert_eq!(P.step(memory, outage, 60.0).rate, Percent::NONE);
    }

    #[test]
    fn the_first_minute_after_an_idle_time_is_not_taken_for_a_standstill() {
        let mut memory = P.step(ControllerMemory::default(), needs(1.0), 60.0).memory;
        for _ in 0..10 {
            memory = P.step(memory, Load { rate: 0.0, ..IDLE }, 60.0).memory;
        }
        let burst = Load {
            due: 5_000.0,
            rate: 0.0,
            ..IDLE
        };
        assert_eq!(P.step(memory, burst, 60.0).rate, Percent::ALL);
    }

    proptest! {
        #[test]
        fn whatever_is_measured_the_rate_is_a_percentage_and_memory_stays_finite(
            kp in 0.0..1e6, ki in 0.0..1e6, kd in 0.0..1e6, target in 1.0..2_678_400.0,
            at_least: bool,
            loads in prop::collection::vec((0.0..1e15, 0.0..1e9, 0.0..1e6), 1..50),
        ) {
            let settings = ControllerSettings { enabled: true, target_seconds: target, kp, ki, kd };
            let mut memory = ControllerMemory::default();
            for (due, rate, seconds) in loads {
                let step = settings.step(memory, Load { due, at_least, rate }, seconds);
                prop_assert!((0.0..=100.0).contains(&step.rate.get()));
                prop_assert!(step.memory.integral.is_finite() && step.memory.capacity.is_finite());
                memory = step.memory;
            }
        }
    }
}

//! How many usages may be in flight at once: as many as Abacus bears. A pure controller, told of
//! each answer; it grows the limit step by step and cuts it when Abacus says, or shows by its
//! latency, that it is too much (additive increase, multiplicative decrease).

use std::time::Duration;

/// The limit before anything is known.
const FIRST: usize = 8;

/// What is left of the limit after Abacus said that it is too much.
const AFTER_BUSY: f64 = 0.5;

/// What is left of the limit after latency has risen.
const AFTER_SLOW: f64 = 0.9;

/// Latency counts as risen beyond this multiple of what it was lately...
const RISE_FACTOR: f64 = 1.5;

/// ...and by this much, so that noise between fast answers is none.
const RISE_LEAST: Duration = Duration::from_millis(10);

/// How much a window's latency counts in what latency was lately.
const WEIGHT: f64 = 0.2;

/// The shortest window; a limit that is looked at after each answer would only follow noise.
const WINDOW_LEAST: Duration = Duration::from_millis(10);

/// What an answer says about the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// It was borne, whatever became of the usage.
    Borne,
    /// It was too much: 429, 5xx, a lost connection or a time-out.
    TooMuch,
}

/// The controller. Moments are durations since any fixed one.
#[derive(Clone, Debug)]
pub struct Limiter {
    limit: f64,
    max: usize,
    /// Whether the limit still doubles: nothing was too much so far.
    probing: bool,
    /// What latency was lately, in seconds.
    lately: Option<f64>,
    window: Window,
}

/// Answers that are looked at together: about as many as were in flight at once.
#[derive(Clone, Debug, Default)]
struct Window {
    ends_at: Option<Duration>,
    /// The sum of latencies, in seconds.
    latency: f64,
    answers: u32,
    most_in_flight: usize,
    too_much: bool,
}

impl Limiter {
    /// A controller that never lets more than `max` in.
    pub fn new(max: usize) -> Self {
        let max = max.max(1);
        let limit = FIRST.min(max) as f64;
        Self {
            limit,
            max,
            probing: true,
            lately: None,
            window: Window::default(),
        }
    }

    /// How many may be in flight now; at least one.
    pub fn limit(&self) -> usize {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the limit lies between 1 and `max`"
        )]
        let limit = self.limit as usize;
        limit
    }

    /// Takes note of an answer at `now` that took `latency`, while `in_flight` were on their way
    /// (itself included).
    pub fn answered(&mut self, now: Duration, latency: Duration, load: Load, in_flight: usize) {
        let window = &mut self.window;
        let ends_at = *window
            .ends_at
            .get_or_insert(now + latency.max(WINDOW_LEAST));
        window.latency += latency.as_secs_f64();
        window.answers += 1;
        window.most_in_flight = window.most_in_flight.max(in_flight);
        window.too_much |= load == Load::TooMuch;
        if now >= ends_at || window.too_much {
            self.adjust();
        }
    }

    /// Looks back on a window, and sets the limit for the next.
    fn adjust(&mut self) {
        let window = std::mem::take(&mut self.window);
        let mean = window.latency / f64::from(window.answers.max(1));
        if window.too_much {
            self.shrink(AFTER_BUSY);
            return;
        }
        let lately = *self.lately.get_or_insert(mean);
        let rise = mean - lately;
        if mean > lately * RISE_FACTOR && rise > RISE_LEAST.as_secs_f64() {
            self.shrink(AFTER_SLOW);
        } else if window.most_in_flight >= self.limit() {
            // Only a limit that was reached has shown that it is borne.
            let grown = if self.probing {
                self.limit * 2.0
            } else {
                self.limit + 1.0
            };
            self.limit = grown.min(self.max as f64);
        }
        self.lately = Some(lately + WEIGHT * rise);
    }

    fn shrink(&mut self, factor: f64) {
        self.probing = false;
        self.limit = (self.limit * factor).max(1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An Abacus that answers within `base` up to `capacity` at once, and queues beyond.
    fn settle(limiter: &mut Limiter, capacity: usize, base: Duration, rounds: u32) -> Vec<usize> {
        let mut now = Duration::ZERO;
        let mut limits = Vec::new();
        for _ in 0..rounds {
            let in_flight = limiter.limit();
            let queue = (in_flight as f64 / capacity as f64).max(1.0);
            let latency = base.mul_f64(queue);
            now += latency;
            for _ in 0..in_flight {
                limiter.answered(now, latency, Load::Borne, in_flight);
            }
            limits.push(limiter.limit());
        }
        limits
    }

    #[test]
    fn it_finds_the_cap_soon_where_all_is_borne() {
        let mut limiter = Limiter::new(128);
        let limits = settle(&mut limiter, 1_000, Duration::from_millis(20), 20);
        assert_eq!(
            limits.iter().filter(|limit| **limit == 128).count(),
            16,
            "{limits:?}"
        );
    }

    #[test]
    fn a_limit_that_is_not_reached_does_not_grow() {
        let mut limiter = Limiter::new(128);
        for millis in 0..1_000 {
            let now = Duration::from_millis(20 * millis);
            limiter.answered(now, Duration::from_millis(20), Load::Borne, 3);
        }
        assert_eq!(limiter.limit(), FIRST);
    }

    #[test]
    fn too_much_halves_at_once_and_growth_goes_on_by_one() {
        let mut limiter = Limiter::new(1_000);
        settle(&mut limiter, 1_000, Duration::from_millis(20), 4);
        let before = limiter.limit();
        limiter.answered(
            Duration::MAX / 2,
            Duration::from_millis(20),
            Load::TooMuch,
            before,
        );
        let after = limiter.limit();
        assert_eq!(after, before / 2);
        let limits = settle(&mut limiter, 1_000, Duration::from_millis(20), 12);
        let grown = limits.last().unwrap() - after;
        assert!((5..=12).contains(&grown), "{limits:?}");
    }

    #[test]
    fn one_is_always_let_in() {
        let mut limiter = Limiter::new(64);
        for second in 0..100 {
            let now = Duration::from_secs(second);
            limiter.answered(now, Duration::from_secs(1), Load::TooMuch, 1);
        }
        assert_eq!(limiter.limit(), 1);
        let limits = settle(&mut limiter, 100, Duration::from_millis(20), 100);
        assert!(*limits.last().unwrap() > 30, "it comes back: {limits:?}");
        assert_eq!(Limiter::new(0).limit(), 1);
    }

    #[test]
    fn rising_latency_holds_it_near_what_is_borne() {
        let mut limiter = Limiter::new(10_000);
        let limits = settle(&mut limiter, 50, Duration::from_millis(50), 200);
        let late = &limits[50..];
        assert!(
            late.iter().all(|limit| (20..1_000).contains(limit)),
            "{late:?}"
        );
    }
}

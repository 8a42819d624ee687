//! An adaptive limit of usages in flight, without I/O. It grows with each window of good answers, and
//! shrinks when the upstream is overloaded or its latency rises (additive increase, multiplicative
//! decrease).

use std::time::Duration;

/// The limit before anything is known.
const FIRST: usize = 8;

/// The factor of the limit after an overload.
const AFTER_OVERLOAD: f64 = 0.5;

/// The factor of the limit after a rise in latency.
const AFTER_SLOW: f64 = 0.9;

/// Latency has risen if it is beyond this multiple of the baseline...
const RISE_FACTOR: f64 = 1.5;

/// ...and this much above it, so that noise between fast answers does not count.
const RISE_MIN: Duration = Duration::from_millis(10);

/// The weight of a window's latency in the baseline.
const WEIGHT: f64 = 0.2;

/// The shortest window: a limit that is adjusted after each answer would only follow noise.
const WINDOW_MIN: Duration = Duration::from_millis(10);

/// The load that an answer shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// The upstream can take it, whatever the answer says about the usage.
    Sustained,
    /// The upstream cannot take it: 429, 401, 403, 5xx, an unexpected 2xx or 3xx, a timeout or a lost
    /// connection.
    Overload,
}

/// The limit, and the answers by which it adapts. Times are durations since an arbitrary, fixed time.
#[derive(Clone, Debug)]
pub struct ConcurrencyLimit {
    limit: f64,
    max: usize,
    /// Whether the limit still doubles, because there was no overload so far.
    is_doubling: bool,
    /// The moving average of latency, in seconds.
    baseline: Option<f64>,
    window: Window,
}

/// Answers that are evaluated together: about as many as were in flight at once.
#[derive(Clone, Debug, Default)]
struct Window {
    ends_at: Option<Duration>,
    /// The sum of latencies, in seconds.
    latency: f64,
    answers: u32,
    most_in_flight: usize,
    overload: bool,
}

impl ConcurrencyLimit {
    pub fn new(max: usize) -> Self {
        let max = max.max(1);
        let limit = FIRST.min(max) as f64;
        Self {
            limit,
            max,
            is_doubling: true,
            baseline: None,
            window: Window::default(),
        }
    }

    /// How many may be in flight now; at least one.
    pub fn limit(&self) -> usize {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the limit is between 1 and `max`"
        )]
        let limit = self.limit as usize;
        limit
    }

    /// Notes an answer at `now` that took `latency`, while `in_flight` posts were under way, with its
    /// own.
    pub fn answered(&mut self, now: Duration, latency: Duration, load: Load, in_flight: usize) {
        let window = &mut self.window;
        let ends_at = *window.ends_at.get_or_insert(now + latency.max(WINDOW_MIN));
        window.latency += latency.as_secs_f64();
        window.answers += 1;
        window.most_in_flight = window.most_in_flight.max(in_flight);
        window.overload |= load == Load::Overload;
        if now >= ends_at || window.overload {
            self.adjust();
        }
    }

    /// Evaluates a window, and sets the limit for the next.
    fn adjust(&mut self) {
        let window = std::mem::take(&mut self.window);
        let mean = window.latency / f64::from(window.answers.max(1));
        if window.overload {
            self.shrink(AFTER_OVERLOAD);
            return;
        }
        let baseline = *self.baseline.get_or_insert(mean);
        let rise = mean - baseline;
        if mean > baseline * RISE_FACTOR && rise > RISE_MIN.as_secs_f64() {
            self.shrink(AFTER_SLOW);
        } else if window.most_in_flight >= self.limit() {
            // Only a limit that was reached has shown that Abacus can take it.
            let grown = if self.is_doubling {
                self.limit * 2.0
            } else {
                self.limit + 1.0
            };
            self.limit = grown.min(self.max as f64);
        }
        self.baseline = Some(baseline + WEIGHT * rise);
    }

    fn shrink(&mut self, factor: f64) {
        self.is_doubling = false;
        self.limit = (self.limit * factor).max(1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An Abacus that answers within `base` up to `capacity` at once, and queues beyond.
    fn settle(
        limiter: &mut ConcurrencyLimit,
        capacity: usize,
        base: Duration,
        rounds: u32,
    ) -> Vec<usize> {
        let mut now = Duration::ZERO;
        let mut limits = Vec::new();
        for _ in 0..rounds {
            let in_flight = limiter.limit();
            let queue = (in_flight as f64 / capacity as f64).max(1.0);
            let latency = base.mul_f64(queue);
            now += latency;
            for _ in 0..in_flight {
                limiter.answered(now, latency, Load::Sustained, in_flight);
            }
            limits.push(limiter.limit());
        }
        limits
    }

    #[test]
    fn it_soon_reaches_the_maximum_if_abacus_can_take_it() {
        let mut limiter = ConcurrencyLimit::new(128);
        let limits = settle(&mut limiter, 1_000, Duration::from_millis(20), 20);
        assert_eq!(
            limits.iter().filter(|limit| **limit == 128).count(),
            16,
            "{limits:?}"
        );
    }

    #[test]
    fn a_limit_that_is_not_reached_does_not_grow() {
        let mut limiter = ConcurrencyLimit::new(128);
        for millis in 0..1_000 {
            let now = Duration::from_millis(20 * millis);
            limiter.answered(now, Duration::from_millis(20), Load::Sustained, 3);
        }
        assert_eq!(limiter.limit(), FIRST);
    }

    #[test]
    fn an_overload_halves_the_limit_and_growth_goes_on_by_one() {
        let mut limiter = ConcurrencyLimit::new(1_000);
        settle(&mut limiter, 1_000, Duration::from_millis(20), 4);
        let before = limiter.limit();
        limiter.answered(
            Duration::MAX / 2,
            Duration::from_millis(20),
            Load::Overload,
            before,
        );
        let after = limiter.limit();
        assert_eq!(after, before / 2);
        let limits = settle(&mut limiter, 1_000, Duration::from_millis(20), 12);
        let grown = limits.last().unwrap() - after;
        assert!((5..=12).contains(&grown), "{limits:?}");
    }

    #[test]
    fn the_limit_is_never_below_one() {
        let mut limiter = ConcurrencyLimit::new(64);
        for second in 0..100 {
            let now = Duration::from_secs(second);
            limiter.answered(now, Duration::from_secs(1), Load::Overload, 1);
        }
        assert_eq!(limiter.limit(), 1);
        let limits = settle(&mut limiter, 100, Duration::from_millis(20), 100);
        assert!(*limits.last().unwrap() > 30, "it comes back: {limits:?}");
        assert_eq!(ConcurrencyLimit::new(0).limit(), 1);
    }

    #[test]
    fn rising_latency_holds_the_limit_near_the_capacity() {
        let mut limiter = ConcurrencyLimit::new(10_000);
        let limits = settle(&mut limiter, 50, Duration::from_millis(50), 200);
        let late = &limits[50..];
        assert!(
            late.iter().all(|limit| (20..1_000).contains(limit)),
            "{late:?}"
        );
    }
}

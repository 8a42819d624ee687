//! How fast this worker is: intervals in a second, over the time of the last two minutes in which it
//! had something to do. Idle time does not count.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

/// The length of the window, and of the pieces in which it moves.
const WINDOW: Duration = Duration::from_mins(2);
const SLOT: Duration = Duration::from_secs(5);

/// Counts intervals and the time that they take.
#[derive(Debug)]
pub(crate) struct RateMeter(Mutex<Meter>);

/// A span that is driven.
pub(crate) struct Driving<'m>(&'m RateMeter);

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        self.0.counted().driven -= 1;
    }
}

#[derive(Debug)]
struct Meter {
    /// Spans that are driven.
    driven: usize,
    /// Up to when the busy time is counted.
    counted_to: Instant,
    slots: VecDeque<Slot>,
}

#[derive(Debug)]
struct Slot {
    began: Instant,
    busy: Duration,
    done: u32,
}

impl Slot {
    fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.began)
    }
}

impl Default for RateMeter {
    fn default() -> Self {
        Self(Mutex::new(Meter {
            driven: 0,
            counted_to: Instant::now(),
            slots: VecDeque::new(),
        }))
    }
}

impl RateMeter {
    /// A span is driven until the answer is dropped.
    pub(crate) fn begin(&self) -> Driving<'_> {
        self.counted().driven += 1;
        Driving(self)
    }

    /// The execution of an interval is recorded.
    pub(crate) fn count_interval(&self) {
        let mut meter = self.counted();
        if let Some(slot) = meter.slots.back_mut() {
            slot.done = slot.done.saturating_add(1);
        }
    }

    pub(crate) fn rate(&self) -> f64 {
        let meter = self.counted();
        let done: f64 = meter.slots.iter().map(|slot| f64::from(slot.done)).sum();
        let busy: Duration = meter.slots.iter().map(|slot| slot.busy).sum();
        // A clock has few digits: work that seems to take no time must not give an infinite rate.
        let seconds = busy.as_secs_f64().max(0.001);
        if done > 0.0 { done / seconds } else { 0.0 }
    }

    /// The meter, with the busy time up to now.
    fn counted(&self) -> MutexGuard<'_, Meter> {
        let mut meter = self.0.lock().expect("nobody panics with it");
        let now = Instant::now();
        let passed = now.saturating_duration_since(meter.counted_to);
        meter.counted_to = now;
        let is_busy = meter.driven > 0;
        if let Some(slot) = meter.slots.back_mut().filter(|_| is_busy) {
            // A longer time without any sign belongs to the window, and no further back.
            slot.busy += passed.min(WINDOW);
        }
        if meter.slots.back().is_none_or(|it| it.age(now) >= SLOT) {
            meter.slots.push_back(Slot {
                began: now,
                busy: Duration::ZERO,
                done: 0,
            });
        }
        while meter.slots.len() > 1 && meter.slots[0].age(now) > WINDOW + SLOT {
            meter.slots.pop_front();
        }
        meter
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn pass(seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_rate_is_that_of_the_time_in_which_there_is_something_to_do() {
        let meter = RateMeter::default();
        assert!(meter.rate() == 0.0);
        pass(60).await;
        let driving = meter.begin();
        for _ in 0..100 {
            pass(1).await;
            meter.count_interval();
            meter.count_interval();
        }
        let rate = meter.rate();
        assert!((1.9..2.1).contains(&rate), "{rate}");
        drop(driving);
        pass(20).await;
        let rate = meter.rate();
        assert!(
            (1.9..2.1).contains(&rate),
            "idle time changes nothing: {rate}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn where_nothing_moves_the_rate_falls_to_nothing() {
        let meter = RateMeter::default();
        let driving = meter.begin();
        meter.count_interval();
        for _ in 0..30 {
            pass(5).await;
            meter.rate();
        }
        assert!(meter.rate() == 0.0);
        drop(driving);
        pass(600).await;
        assert!(meter.rate() == 0.0);
    }
}

//! Limits how often something happens in a period: lines of the log that would be repeated.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Keys that have a period of their own. All others share one.
const KEYS: usize = 1_000;

/// Admits each key a number of times in a period, and counts what it does not admit.
#[derive(Debug)]
pub struct Limiter<K> {
    times: u32,
    length: Duration,
    keys: usize,
    /// The key of the shared period is `None`.
    periods: Mutex<HashMap<Option<K>, Period>>,
}

#[derive(Debug)]
struct Period {
    began: Instant,
    admitted: u32,
    suppressed: u64,
}

impl<K: Eq + Hash> Limiter<K> {
    /// Admits each of up to 1,000 keys `times` in each period of this `length`.
    pub fn new(times: u32, length: Duration) -> Self {
        Self {
            times,
            length,
            keys: KEYS,
            periods: Mutex::default(),
        }
    }

    /// Has a period for each of at most `keys` keys.
    #[must_use]
    pub fn for_keys(self, keys: usize) -> Self {
        Self { keys, ..self }
    }

    /// Counts one more. `None` if it is not admitted; otherwise how many were not since the last that
    /// was.
    pub fn admit(&self, key: K) -> Option<u64> {
        let (now, mut periods, key) = (Instant::now(), self.lock(), Some(key));
        if !periods.contains_key(&key) && periods.len() >= self.keys {
            periods.retain(|_, period| now.duration_since(period.began) < self.length);
        }
        let has_room = periods.len() < self.keys || periods.contains_key(&key);
        let begun = Period {
            began: now,
            admitted: 0,
            suppressed: 0,
        };
        let period = periods.entry(key.filter(|_| has_room)).or_insert(begun);
        if now.duration_since(period.began) >= self.length {
            (period.began, period.admitted) = (now, 0);
        }
        if period.admitted < self.times {
            period.admitted += 1;
            return Some(std::mem::take(&mut period.suppressed));
        }
        period.suppressed += 1;
        None
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Option<K>, Period>> {
        self.periods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    #[tokio::test(start_paused = true)]
    async fn each_key_is_admitted_so_often_and_then_it_is_said_how_often_it_was_not() {
        let limiter = Limiter::new(20, MINUTE);
        let admitted = |key| (0..1_000).filter(|_| limiter.admit(key) == Some(0)).count();
        assert_eq!((admitted("a"), admitted("b")), (20, 20));
        tokio::time::advance(MINUTE).await;
        assert_eq!(limiter.admit("a"), Some(980));
        assert_eq!(limiter.admit("a"), Some(0));
    }

    #[tokio::test(start_paused = true)]
    async fn keys_beyond_the_limit_share_a_period() {
        let limiter = Limiter::new(1, MINUTE).for_keys(10);
        for _ in 0..2 {
            let admitted = (0..30).filter(|key| limiter.admit(*key).is_some()).count();
            assert_eq!(admitted, 11);
            assert_eq!(limiter.lock().len(), 11);
            tokio::time::advance(MINUTE).await;
        }
    }
}

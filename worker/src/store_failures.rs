//! Spans that the store has failed on: each pauses, and longer each time.
//!
//! Such a span stays due. Without a pause the next search finds it at once, and its usage is posted
//! again as fast as the upstream answers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use sampler_domain::{Backoff, SpanId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The most spans whose failures are counted. Further ones pause as after a first failure.
const COUNTED_MAX: usize = 10_000;

/// The most spans that pause without a permit to be driven. More spans keep their permits while
/// they pause, so that the worker takes on only as many as it can remember.
const PAUSED_MAX: usize = 10_000;

/// How long a span pauses, ms. A store that fails is rarely back within a second; half a minute is
/// little for a span, and its month closes minutes after its end.
const BACKOFF: Backoff = Backoff {
    first: 1_000,
    limit: 30_000,
};

/// How often in a row the store has failed on spans.
#[derive(Debug)]
pub(crate) struct StoreFailures {
    counts: Mutex<HashMap<SpanId, u32>>,
    paused: Arc<Semaphore>,
}

impl Default for StoreFailures {
    fn default() -> Self {
        Self {
            counts: Mutex::default(),
            paused: Arc::new(Semaphore::new(PAUSED_MAX)),
        }
    }
}

impl StoreFailures {
    fn lock(&self) -> MutexGuard<'_, HashMap<SpanId, u32>> {
        self.counts.lock().expect("nobody panics with it")
    }

    /// Records a failure. Returns how long the span pauses. `fraction` is random in `[0, 1)`.
    pub(crate) fn note(&self, id: &SpanId, fraction: f64) -> Duration {
        let mut counts = self.lock();
        if counts.len() >= COUNTED_MAX && !counts.contains_key(id) {
            // Spans that other workers have taken over are never forgotten otherwise.
            counts.clear();
        }
        let count = counts.entry(id.clone()).or_default();
        *count = count.saturating_add(1);
        let wait = BACKOFF.wait(*count, fraction);
        Duration::from_millis(wait.unsigned_abs())
    }

    /// The store did all that was asked for the span.
    pub(crate) fn forget(&self, id: &SpanId) {
        self.lock().remove(id);
    }

    /// The right to pause without a permit to be driven, if there is room.
    pub(crate) fn pause(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.paused).try_acquire_owned().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> SpanId {
        SpanId::Text(number.to_string())
    }

    #[test]
    fn pauses_grow_until_the_store_has_done_what_was_asked() {
        let failures = StoreFailures::default();
        let pauses = || failures.note(&id(1), 0.0).as_millis();
        assert_eq!([pauses(), pauses(), pauses()], [1_000, 2_000, 4_000]);
        assert_eq!(failures.note(&id(2), 0.0).as_millis(), 1_000);
        failures.forget(&id(1));
        assert_eq!(failures.note(&id(1), 0.0).as_millis(), 1_000);
    }

    #[test]
    fn no_more_failures_are_counted_than_there_is_room_for() {
        let failures = StoreFailures::default();
        for number in 0..3 * COUNTED_MAX {
            failures.note(&id(number), 0.0);
        }
        assert!(failures.lock().len() <= COUNTED_MAX);
    }
}

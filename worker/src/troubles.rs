//! Spans that the store has failed on: each pauses, and longer each time. What this run knows of them, and
//! could not record, is kept in mind.
//!
//! Such a span stays due. Without a pause the next search finds it at once, and its usage is posted
//! again as fast as the upstream answers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use sampler_domain::{Backoff, Remembered, SpanId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The most spans that pause without a permit to be driven. More spans keep their permits while
/// they pause, so that the worker takes on only as many as it can remember.
const PAUSED_MAX: usize = 10_000;

/// How long a span pauses, ms. A store that fails is rarely back within a second; half a minute is
/// little for a span, and its month closes minutes after its end.
const BACKOFF: Backoff = Backoff {
    first: 1_000,
    limit: 30_000,
};

/// The spans that the store has failed on.
pub(crate) struct Troubles {
    spans: Mutex<HashMap<SpanId, Trouble>>,
    paused: Arc<Semaphore>,
}

#[derive(Default)]
struct Trouble {
    /// How often in a row the store has failed on the span.
    failures: u32,
    remembered: Remembered,
}

impl Default for Troubles {
    fn default() -> Self {
        Self {
            spans: Mutex::default(),
            paused: Arc::new(Semaphore::new(PAUSED_MAX)),
        }
    }
}

impl Troubles {
    fn lock(&self) -> MutexGuard<'_, HashMap<SpanId, Trouble>> {
        self.spans.lock().expect("nobody panics with it")
    }

    /// What this run keeps in mind about a span. It stays until a drive ends.
    pub(crate) fn remembered(&self, id: &SpanId) -> Remembered {
        let spans = self.lock();
        let trouble = spans.get(id);
        trouble.map_or_else(Remembered::default, |it| it.remembered.clone())
    }

    /// Notes that the store has failed on a span. Returns how long the span pauses. `fraction` is random in
    /// `[0, 1)`.
    pub(crate) fn note(&self, id: &SpanId, remembered: Remembered, fraction: f64) -> Duration {
        let mut spans = self.lock();
        let trouble = spans.entry(id.clone()).or_default();
        trouble.failures = trouble.failures.saturating_add(1);
        trouble.remembered = remembered;
        let wait = BACKOFF.wait(trouble.failures, fraction);
        Duration::from_millis(wait.unsigned_abs())
    }

    /// Notes that the store did all that was asked for the span.
    pub(crate) fn end(&self, id: &SpanId, remembered: &Remembered) {
        let mut spans = self.lock();
        if remembered.is_nothing() {
            spans.remove(id);
        } else {
            let trouble = spans.entry(id.clone()).or_default();
            trouble.failures = 0;
            trouble.remembered = remembered.clone();
        }
    }

    /// The right to pause without a permit to be driven, if there is room.
    pub(crate) fn pause(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.paused).try_acquire_owned().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_the_store_has_done_what_was_asked() {
        let troubles = Troubles::default();
        let [one, other] = ["one", "other"].map(|id| SpanId::Text(id.to_owned()));
        let pause = |id| {
            let pause = troubles.note(id, Remembered::default(), 0.0);
            pause.as_millis()
        };
        assert_eq!(
            [pause(&one), pause(&one), pause(&one)],
            [1_000, 2_000, 4_000]
        );
        assert_eq!(pause(&other), 1_000);
        troubles.end(&one, &Remembered::default());
        assert_eq!(pause(&one), 1_000);
    }
}

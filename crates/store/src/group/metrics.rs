//! What group commit measures.

use sampler_metrics::catalogue::{COMMIT_BATCH_EVENTS, COMMIT_SECONDS};
use sampler_metrics::{Histogram, Registry};
use tokio::time::Instant;

/// How many writes share a command, and how long a command takes. Clones measure the same.
#[derive(Clone, Debug)]
pub struct GroupMetrics {
    writes: Histogram,
    seconds: Histogram,
}

impl Default for GroupMetrics {
    fn default() -> Self {
        Self {
            writes: COMMIT_BATCH_EVENTS.histogram(),
            seconds: COMMIT_SECONDS.histogram(),
        }
    }
}

impl GroupMetrics {
    pub fn register(&self, registry: &mut Registry) {
        registry.histogram(&COMMIT_BATCH_EVENTS, &self.writes);
        registry.histogram(&COMMIT_SECONDS, &self.seconds);
    }

    /// Notes a command with `writes` writes that has just ended, whatever its outcome.
    pub(super) fn note(&self, writes: usize, began: Instant) {
        self.writes.observe(writes as f64);
        self.seconds.observe(began.elapsed().as_secs_f64());
    }
}

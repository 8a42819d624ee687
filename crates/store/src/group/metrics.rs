//! What group commit measures.

use sampler_metrics::{Histogram, Registry};
use tokio::time::Instant;

sampler_metrics::metrics! {
    pub METRICS;

    /// Writes that share a command to the database: starts and stops in a receiver; changes of spans
    /// and entries of the ledger in a worker
    COMMIT_BATCH_EVENTS = "sampler_commit_batch_events", Histogram(BATCH_WRITES);

    /// The time of such a command and of the searches before it, until a majority of the replica set
    /// has it in its journals
    COMMIT_SECONDS = "sampler_commit_seconds", Histogram(COMMAND_SECONDS);
}

/// Up to the most writes in one command.
const BATCH_WRITES: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// From a fast disk alone to a replica set in distress.
const COMMAND_SECONDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

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

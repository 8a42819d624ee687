//! Pauses of sampling while the database cannot keep up. Sampling can wait; events cannot.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tracing::{info, warn};

use crate::Worker;

/// Whether sampling pauses, by how long heartbeats take.
#[derive(Debug, Default)]
pub(crate) struct Distress(AtomicBool);

impl Distress {
    pub(crate) fn pauses(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Worker {
    /// Notes how long a heartbeat took until a majority had it, or until it failed. One that fails
    /// fast does not count.
    pub(crate) fn note_commit(&self, took: Duration, has_failed: bool) {
        let bounds = self.settings.distress.commit();
        let commit_seconds = took.as_secs_f64();
        if has_failed && commit_seconds <= bounds.upper {
            return;
        }
        let was_paused = self.distress.pauses();
        let is_paused = bounds.pauses(was_paused, commit_seconds);
        self.distress.0.store(is_paused, Ordering::Relaxed);
        match (was_paused, is_paused) {
            (false, true) => warn!(
                code = "distress.begun",
                commit_seconds, "sampling pauses, because the database cannot keep up"
            ),
            (true, false) => info!(
                commit_seconds,
                "the database keeps up again: sampling resumes"
            ),
            _ => {}
        }
    }
}

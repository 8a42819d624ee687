//! The metrics of a worker.

use metrics::{counter, gauge, histogram};
use sampler_upstream::Answer;
use tokio::time::Instant;

use crate::Worker;

/// Counts a post by its answer.
pub(crate) fn note_post(posted: Instant, answer: &Answer) {
    histogram!("sampler_post_seconds").record(posted.elapsed());
    counter!("sampler_usages_total", "outcome" => outcome(answer)).increment(1);
}

/// Counts a question whether a usage counts by its outcome.
pub(crate) fn note_confirmation(outcome: &'static str) {
    counter!("sampler_confirmations_total", "outcome" => outcome).increment(1);
}

/// Counts a complete span that does not agree with the ledger.
pub(crate) fn note_difference() {
    counter!("sampler_ledger_differences_total").increment(1);
}

fn outcome(answer: &Answer) -> &'static str {
    match answer {
        Answer::Accepted => "accepted",
        Answer::Refused { .. } => "refused",
        Answer::Wait { .. } => "throttled",
        Answer::TryAgain { .. } => "failed",
    }
}

impl Worker {
    /// Sets the metrics of how much this worker does now.
    pub fn measure(&self) {
        gauge!("sampler_distress").set(u8::from(self.distress.pauses()));
        gauge!("sampler_post_concurrency").set(self.post_limit.current() as f64);
        self.steering.measure(self.now(), self.month());
        if let Some(ahead) = self.offset.ahead() {
            gauge!("sampler_clock_offset_seconds").set(ahead as f64 / 1_000.0);
        }
    }
}

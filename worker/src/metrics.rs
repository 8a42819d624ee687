//! The metrics of a worker's posts.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sampler_metrics::catalogue::{
    COMMIT_LAG_SECONDS, CONSERVATION_VIOLATIONS, DISTRESS, POST_CONCURRENCY, POST_SECONDS, USAGES,
};
use sampler_metrics::{Counters, Histogram, Registry};
use sampler_upstream::Answer;
use tokio::time::Instant;

use crate::Worker;

#[derive(Debug)]
pub(crate) struct PostMetrics {
    usages: Counters,
    seconds: Histogram,
}

impl Default for PostMetrics {
    fn default() -> Self {
        Self {
            usages: Counters::new(&USAGES),
            seconds: POST_SECONDS.histogram(),
        }
    }
}

impl PostMetrics {
    pub(crate) fn note(&self, posted: Instant, answer: &Answer) {
        self.seconds.observe(posted.elapsed().as_secs_f64());
        self.usages.inc(&[outcome(answer)]);
    }
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
    /// Adds what is measured here to the metrics of the program.
    pub fn register_metrics(self: &Arc<Self>, registry: &mut Registry) {
        registry.counters(&self.metrics.usages);
        registry.counters(self.asking.outcomes());
        registry.histogram(&POST_SECONDS, &self.metrics.seconds);
        let violations = self.violations();
        registry.counter(&CONSERVATION_VIOLATIONS, move || {
            violations.load(Ordering::Relaxed)
        });
        let worker = Arc::clone(self);
        registry.gauge(&COMMIT_LAG_SECONDS, move || worker.distress.lag());
        let worker = Arc::clone(self);
        registry.gauge(&DISTRESS, move || {
            Some(f64::from(u8::from(worker.distress.pauses())))
        });
        let worker = Arc::clone(self);
        registry.gauge(&POST_CONCURRENCY, move || {
            Some(worker.post_limit.current() as f64)
        });
    }
}

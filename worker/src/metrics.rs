//! The metrics of a worker's posts.

use std::sync::Arc;

use sampler_metrics::{Counters, Histogram, Registry};
use sampler_upstream::Answer;
use tokio::time::Instant;

use crate::Worker;

sampler_metrics::metrics! {
    pub(crate) METRICS;

    /// Posts of usages by their answer: accepted; refused, which an operator must look at; throttled
    /// with 429; failed, which are repeated
    USAGES = "sampler_usages_total", Counter,
        outcome: Words(&["accepted", "refused", "throttled", "failed"]);

    /// The time from posting a usage to the upstream's answer
    POST_SECONDS = "sampler_post_seconds", Histogram(POST_BOUNDS);

    /// How many posts may be in flight at once, as the upstream can take them now
    POST_CONCURRENCY = "sampler_post_concurrency", Gauge;

    /// 1 while this worker pauses sampling because the database cannot keep up; 0 otherwise
    DISTRESS = "sampler_distress", Gauge;
}

/// From an upstream nearby to one that takes a minute.
const POST_BOUNDS: &[f64] = &[
    0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];

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

//! The metrics of events.

use std::sync::Arc;

use axum::http::StatusCode;
use sampler_metrics::catalogue::{COMMIT_LAG_SECONDS, EVENTS, QUEUE_EVENTS};
use sampler_metrics::{Counters, Registry};
use sampler_service::problem::Problem;
use sampler_service::problem::kinds::OVERLOADED;

use crate::Receiver;
use crate::problems::THROTTLED;

/// Counts events by their answers.
#[derive(Debug)]
pub(crate) struct EventMetrics(Counters);

impl Default for EventMetrics {
    fn default() -> Self {
        Self(Counters::new(&EVENTS))
    }
}

impl EventMetrics {
    /// Counts one event by its answer: whether it was kept before, or the problem.
    pub(crate) fn note(&self, event: &'static str, is_replayed: Result<bool, &Problem>) {
        let outcome = match is_replayed {
            Ok(true) => "replayed",
            Ok(false) => "accepted",
            Err(problem) => outcome(problem),
        };
        self.0.inc(&[event, outcome]);
    }
}

fn outcome(problem: &Problem) -> &'static str {
    let is_turned_away = [OVERLOADED.slug, THROTTLED.slug].contains(&problem.kind().slug);
    match problem.status() {
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS if is_turned_away => {
            "turned_away"
        }
        status if status.is_server_error() => "failed",
        _ => "refused",
    }
}

impl Receiver {
    /// Adds what is measured here to the metrics of the program.
    pub fn register_metrics(self: &Arc<Self>, registry: &mut Registry) {
        registry.counters(&self.metrics.0);
        let receiver = Arc::clone(self);
        registry.gauge(&COMMIT_LAG_SECONDS, move || receiver.steering.lag());
        let receiver = Arc::clone(self);
        registry.gauge(&QUEUE_EVENTS, move || {
            Some(receiver.admission.waiting_events() as f64)
        });
    }
}

//! The metrics of events.

use std::sync::Arc;

use sampler_metrics::{Counters, Registry};
use sampler_service::problem::Problem;
use sampler_service::problem::kinds::OVERLOADED;

use crate::Receiver;
use crate::problems::THROTTLED;

sampler_metrics::metrics! {
    pub(crate) METRICS;

    /// Events by their answer: accepted and new; replayed, which were kept before; refused with 4xx;
    /// turned_away with 503 or 429, because there were too many; failed with any other 5xx
    EVENTS = "sampler_events_total", Counter,
        event: Words(&["start", "stop", "update", "unknown"]),
        outcome: Words(&["accepted", "replayed", "refused", "turned_away", "failed"]);

    /// Events that wait for their turn
    QUEUE_EVENTS = "sampler_queue_events", Gauge;
}

/// Counts events by their answers.
#[derive(Debug)]
pub(crate) struct EventMetrics {
    all: Counters,
}

impl Default for EventMetrics {
    fn default() -> Self {
        Self {
            all: Counters::new(&EVENTS),
        }
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
        self.all.inc(&[event, outcome]);
    }
}

fn outcome(problem: &Problem) -> &'static str {
    let is_turned_away = [OVERLOADED.slug, THROTTLED.slug].contains(&problem.kind().slug);
    if is_turned_away {
        "turned_away"
    } else if problem.status().is_server_error() {
        "failed"
    } else {
        "refused"
    }
}

impl Receiver {
    pub fn register_metrics(self: &Arc<Self>, registry: &mut Registry) {
        registry.counters(&self.metrics.all);
        let receiver = Arc::clone(self);
        registry.gauge(&QUEUE_EVENTS, move || {
            Some(receiver.admission.waiting_events() as f64)
        });
    }
}

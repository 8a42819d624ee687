//! The metrics of events.

use metrics::{counter, gauge};
use sampler_api::EventType;
use sampler_service::problem::Problem;
use sampler_service::problem::kinds::OVERLOADED;

use crate::Receiver;
use crate::problems::THROTTLED;

/// Counts an event by its answer: whether it was kept before, or the problem. `kind` is `None` if the event does not
/// say its kind.
pub(crate) fn note_event(kind: Option<EventType>, is_replayed: Result<bool, &Problem>) {
    let event = kind.map_or("unknown", EventType::name);
    let outcome = match is_replayed {
        Ok(true) => "replayed",
        Ok(false) => "accepted",
        Err(problem) => outcome(problem),
    };
    counter!("sampler_events_total", "event" => event, "outcome" => outcome).increment(1);
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
    /// Sets the metrics of what waits now.
    pub fn measure(&self) {
        gauge!("sampler_queue_events").set(self.admission.waiting_events() as f64);
        self.steering.measure(self.parts.clock.now(), self.month());
    }
}

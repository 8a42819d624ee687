//! The metrics of events.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use sampler_domain::Timestamp;
use sampler_metrics::{Counters, Registry};
use sampler_service::problem::Problem;
use sampler_service::problem::kinds::OVERLOADED;
use sampler_store::Intake;

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
    recent: Recent,
}

impl Default for EventMetrics {
    fn default() -> Self {
        Self {
            all: Counters::new(&EVENTS),
            recent: Recent::default(),
        }
    }
}

/// The events of this minute and of the one before.
#[derive(Debug, Default)]
struct Recent {
    kept: Minutes,
    refused: Minutes,
    /// When the last one came, ms; 0 before the first.
    last_at: AtomicI64,
}

/// Counts of two minutes, the even and the odd one: each is the number of the minute, then the count.
#[derive(Debug, Default)]
struct Minutes([AtomicU64; 2]);

impl Minutes {
    fn add(&self, minute: u32) {
        let slot = &self.0[usize::from(!minute.is_multiple_of(2))];
        let begun = u64::from(minute) << 32;
        let _ = slot.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |kept| {
            Some(if kept >> 32 == u64::from(minute) {
                kept + 1
            } else {
                begun | 1
            })
        });
    }

    fn of(&self, minute: u32) -> u32 {
        let slot = &self.0[usize::from(!minute.is_multiple_of(2))];
        let kept = slot.load(Ordering::Relaxed);
        let count = if kept >> 32 == u64::from(minute) {
            kept & u64::from(u32::MAX)
        } else {
            0
        };
        u32::try_from(count).unwrap_or(u32::MAX)
    }
}

impl Recent {
    fn note(&self, outcome: &str, now: Timestamp) {
        let minute = minute_of(now);
        match outcome {
            "accepted" | "replayed" => self.kept.add(minute),
            "refused" => self.refused.add(minute),
            _ => {}
        }
        self.last_at.fetch_max(now.as_millis(), Ordering::Relaxed);
    }

    fn intake(&self, now: Timestamp) -> Intake {
        let last = minute_of(now).wrapping_sub(1);
        let at = self.last_at.load(Ordering::Relaxed);
        Intake {
            kept: self.kept.of(last),
            refused: self.refused.of(last),
            last_at: (at > 0).then(|| Timestamp::clamped(at)),
        }
    }
}

fn minute_of(at: Timestamp) -> u32 {
    u32::try_from(at.as_millis() / 60_000).unwrap_or(u32::MAX)
}

impl EventMetrics {
    /// Counts one event by its answer: whether it was kept before, or the problem.
    pub(crate) fn note(
        &self,
        event: &'static str,
        is_replayed: Result<bool, &Problem>,
        now: Timestamp,
    ) {
        let outcome = match is_replayed {
            Ok(true) => "replayed",
            Ok(false) => "accepted",
            Err(problem) => outcome(problem),
        };
        self.all.inc(&[event, outcome]);
        self.recent.note(outcome, now);
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
    /// What this receiver has taken in of late.
    pub fn intake(&self) -> Intake {
        self.metrics.recent.intake(self.parts.clock.now())
    }

    pub fn register_metrics(self: &Arc<Self>, registry: &mut Registry) {
        registry.counters(&self.metrics.all);
        let receiver = Arc::clone(self);
        registry.gauge(&QUEUE_EVENTS, move || {
            Some(receiver.admission.waiting_events() as f64)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_intake_is_that_of_the_last_whole_minute() {
        let recent = Recent::default();
        let at = |minute: i64| Timestamp::clamped(60_000 * (30_000_000 + minute) + 7);
        assert_eq!(recent.intake(at(0)).last_at, None);
        for (outcome, minute) in [
            ("accepted", 0),
            ("replayed", 0),
            ("refused", 0),
            ("failed", 0),
            ("accepted", 1),
        ] {
            recent.note(outcome, at(minute));
        }
        let of = |minute: i64| {
            let intake = recent.intake(at(minute));
            (intake.kept, intake.refused)
        };
        assert_eq!(
            [of(0), of(1), of(2), of(3)],
            [(0, 0), (2, 1), (1, 0), (0, 0)]
        );
        recent.note("accepted", at(2));
        assert_eq!([of(2), of(3)], [(1, 0), (1, 0)]);
        assert_eq!(recent.intake(at(3)).last_at, Some(at(2)));
    }
}

//! The problems of events that are refused for what they say.

use sampler_domain::{Field, Refusal, UpdateEvent};
use sampler_service::problem::{FieldError, Pointer, Problem, ProblemType};

use crate::problems;

/// What is said first to an update whose stop is kept.
pub(super) const STOPPED: &str = "The previous span was stopped by this update.";

pub(super) fn problem(refusal: Refusal) -> Problem {
    match refusal {
        Refusal::IdTaken(fields) => {
            let detail = "An event with this id was kept before, and differs in the fields named. \
                          This one was not kept.";
            id_taken(detail, &fields)
        }
        // As long as the original Sampler writes to the same database, its index allows each id once. The
        // other target may belong to another client, so the answer reveals nothing about it.
        Refusal::IdTakenElsewhere => {
            let detail = "An event with this id was kept before. The original Sampler writes to the same \
                          database, and as long as it does, each id can be used once. This event was not \
                          kept: send it with another id.";
            Problem::new(&problems::ID_TAKEN, detail)
        }
        Refusal::IdOfAnotherUpdate => {
            let detail = "An update with this id was kept before, from another target or to another \
                          one. This one was not kept.";
            id_of_another_update(detail)
        }
        Refusal::AlreadyOpen => {
            let detail =
                "The target has an open span: it was started before, and not stopped since.";
            Problem::new(&problems::OPEN_SPAN, detail)
        }
        Refusal::NotOpen => {
            let detail = "The target has no open span: it was not started, or stopped since.";
            Problem::new(&problems::NO_OPEN_SPAN, detail)
        }
        Refusal::Overlaps { until } => {
            let detail =
                "The target's previous span ends later than this one starts. Nothing was kept.";
            let error = format!("It must not be before {until}, the end of the previous span.");
            of_timestamp(&problems::OVERLAPPING_START, detail, error)
        }
        Refusal::BeforeStart { start } => {
            let detail =
                "The stop is before the start of the target's open span. Nothing was kept.";
            let error = format!("It must not be before {start}, the start of the span.");
            of_timestamp(&problems::STOP_BEFORE_START, detail, error)
        }
        Refusal::OutsideSlack { slack, now } => {
            let (from, to) = (now.plus(-slack.past), now.plus(slack.future));
            let detail = "The timestamp is too far from now. Nothing was kept.";
            let error = format!("It must be between {from} and {to}.");
            of_timestamp(&problems::OUTSIDE_SLACK, detail, error)
        }
    }
}

fn of_timestamp(kind: &'static ProblemType, detail: &str, error: String) -> Problem {
    let error = FieldError::new(Pointer::root().field("timestamp"), error);
    Problem::new(kind, detail).errors([error])
}

/// The problem of an update. If its stop is kept, "nothing was kept" would be wrong.
pub(super) fn of_update(refusal: Refusal, has_stop: bool, event: &UpdateEvent) -> Problem {
    match refusal {
        refusal if !has_stop => problem(refusal),
        Refusal::IdTaken(fields) => {
            let detail = format!(
                "{STOPPED} The new one was started under this id, by an event that differs in the \
                 fields named. It stays as that event says. What is to change needs an update with \
                 another id."
            );
            id_taken(&detail, &fields)
        }
        Refusal::IdOfAnotherUpdate => {
            let detail = format!(
                "{STOPPED} The new one was started by another update with this id, from another \
                 target. An id is that of one update."
            );
            id_of_another_update(&detail)
        }
        refusal => incomplete(refusal, event),
    }
}

/// The problem of an update whose start is missing. What it advises is billed once: whatever is in the
/// way of the start is billed, too.
fn incomplete(refusal: Refusal, event: &UpdateEvent) -> Problem {
    let at = event.timestamp;
    let way_out = match &refusal {
        Refusal::AlreadyOpen => format!(
            "The new target has an open span. If that is the use that was to start, it is billed, \
             and nothing is to be done. If not, stop that span at {at} at the latest, then repeat \
             the update with the same id. If that span starts after {at}, do not repeat the update: \
             the time until then cannot be billed any more."
        ),
        // It stays in the way: an end never changes.
        Refusal::Overlaps { until } => format!(
            "The new target's previous span ends at {until}. Do not repeat the update. If the new \
             target is in use after that, send a start with another id, and {until} or a later \
             timestamp."
        ),
        Refusal::IdTakenElsewhere => {
            "The original Sampler writes to the same database, and another \
             target has this id. Do not repeat the update. If no other event has started the new \
             target, send its start as an event with another id."
                .to_owned()
        }
        Refusal::OutsideSlack { now, .. } if at > *now => {
            "The timestamp is too far ahead. Repeat the update with the same id later.".to_owned()
        }
        // The start may have been kept long ago, and its span may be removed.
        Refusal::OutsideSlack { .. } => {
            "It is too late for a repeat. If the new target is still in \
             use, and that is not billed, send a start with another id and a later timestamp."
                .to_owned()
        }
        _ => "Repeat the update with the same id.".to_owned(),
    };
    let slug = problem(refusal).kind().slug;
    let detail = format!("{STOPPED} The new one could not be started ({slug}). {way_out}");
    Problem::new(&problems::UPDATE_INCOMPLETE, detail)
}

fn id_taken(detail: &str, fields: &[Field]) -> Problem {
    Problem::new(&problems::ID_TAKEN, detail).errors(fields.iter().map(|field| {
        let pointer = Pointer::root().field(field.name());
        FieldError::new(pointer, "It differs from the event that was kept.")
    }))
}

/// A half of it would count as a half of this one, and the other half would be kept under one id twice.
fn id_of_another_update(detail: &str) -> Problem {
    let error = FieldError::new(
        Pointer::root().field("previous"),
        "It, or the target, differs from the update that was kept.",
    );
    Problem::new(&problems::ID_TAKEN, detail).errors([error])
}

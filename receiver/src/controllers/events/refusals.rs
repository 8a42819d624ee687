//! The problems of events that are refused for what they say.

use sampler_domain::{Field, Refusal};
use sampler_service::problem::{FieldError, Pointer, Problem, ProblemType};

use crate::problems;

pub(super) fn problem(refusal: Refusal) -> Problem {
    match refusal {
        Refusal::IdTaken(fields) => {
            let detail = "An event with this id was kept before, and differs in the fields named. \
                          This one was not kept.";
            id_taken(detail, &fields)
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

/// The problem of an update whose stop is kept, and whose start is not known to be. The repeat of the update
/// keeps the start, once nothing is in its way.
pub(super) fn of_halved(problem: Problem) -> Problem {
    let detail = "The previous span is stopped by this update, and the new one is not known to be started. \
                  Once nothing is in the way of its start, the same request completes the update.";
    problem.with_detail(detail).member("stopped", true)
}

fn id_taken(detail: &str, fields: &[Field]) -> Problem {
    Problem::new(&problems::ID_TAKEN, detail).errors(fields.iter().map(|field| {
        let pointer = Pointer::root().field(field.name());
        FieldError::new(pointer, "It differs from the event that was kept.")
    }))
}

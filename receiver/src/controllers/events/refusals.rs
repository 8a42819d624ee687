//! The problems of events that are refused for what they say.

use sampler_domain::{Field, Slack, Timestamp};
use sampler_service::problem::{FieldError, Pointer, Problem};

use crate::problems;

pub(super) fn id_taken(fields: &[Field]) -> Problem {
    let detail = "An event with this id was kept before, and differs in the fields named. \
                  This one was not kept.";
    let differs = |field: &Field| {
        let pointer = Pointer::root().field(field.name());
        FieldError::new(pointer, "It differs from the event that was kept.")
    };
    Problem::new(&problems::ID_TAKEN, detail).errors(fields.iter().map(differs))
}

/// As long as an original Sampler writes to the same database, its index allows each id once. The
/// other target is somebody else's, so nothing of it is told.
pub(super) fn id_taken_elsewhere() -> Problem {
    let detail = "An event with this id was kept before. An original Sampler writes to the same \
                  database, and as long as it does, each id can be used once. This event was not \
                  kept: send it with another id.";
    Problem::new(&problems::ID_TAKEN, detail)
}

/// A half of it would count as a half of this one, and the other half would be kept under one id twice.
pub(super) fn id_of_another_update() -> Problem {
    let detail = "An update with this id was kept before, from another target or to another one. This \
                  one was not kept.";
    let error = FieldError::new(
        Pointer::root().field("previous"),
        "It, or the target, differs from the update that was kept.",
    );
    Problem::new(&problems::ID_TAKEN, detail).errors([error])
}

pub(super) fn already_open() -> Problem {
    let detail = "The target has an open span: it was started before, and not stopped since.";
    Problem::new(&problems::OPEN_SPAN, detail)
}

pub(super) fn not_open() -> Problem {
    let detail = "The target has no open span: it was not started, or stopped since.";
    Problem::new(&problems::NO_OPEN_SPAN, detail)
}

pub(super) fn overlaps(until: Timestamp) -> Problem {
    let detail = "The target's previous span ends later than this one starts. Nothing was kept.";
    let error = format!("It must not lie before {until}, the end of the previous span.");
    Problem::new(&problems::OVERLAPPING_START, detail).errors([of_timestamp(error)])
}

pub(super) fn before_start(start: Timestamp) -> Problem {
    let detail = "The stop lies before the start of the target's open span. Nothing was kept.";
    let error = format!("It must not lie before {start}, the start of the span.");
    Problem::new(&problems::STOP_BEFORE_START, detail).errors([of_timestamp(error)])
}

pub(super) fn outside_slack(slack: Slack, now: Timestamp) -> Problem {
    let (from, to) = (now.plus(-slack.past), now.plus(slack.future));
    let detail = "The timestamp is too far from now. Nothing was kept.";
    let error = format!("It must lie between {from} and {to}.");
    Problem::new(&problems::OUTSIDE_SLACK, detail).errors([of_timestamp(error)])
}

fn of_timestamp(error: String) -> FieldError {
    FieldError::new(Pointer::root().field("timestamp"), error)
}

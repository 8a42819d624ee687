//! The outcome of each event of a batch, as the receiver reports it.

use std::collections::HashSet;
use std::time::Duration;

use sampler_api::{BatchResult, Problem};
use sampler_verify::words::{counted, form};
use serde::Deserialize;
use serde_json::json;

use super::input::FileEvent;
use super::report::{Report, in_one_line};
use crate::api::PAUSE_ASKED_MAX;
use crate::failure::Failure;

/// An event that is neither kept nor refused yet.
pub(super) type Unsettled = (FileEvent, BatchResult);

/// Counts what is kept or refused. Returns the others.
pub(super) fn judge(
    report: &mut Report,
    part: Vec<FileEvent>,
    outcomes: Vec<BatchResult>,
) -> Vec<Unsettled> {
    let mut unsettled = Vec::new();
    // The instances of events that may still be kept; none: an event says in no known way what it is about.
    let mut open: HashSet<Option<String>> = HashSet::new();
    for (event, outcome) in part.into_iter().zip(outcomes) {
        let about = instances_of(&event);
        let follows = open.contains(&None) || about.iter().any(|one| open.contains(one));
        let follows = follows || (about.contains(&None) && !open.is_empty());
        match outcome.status {
            200..=299 if outcome.replayed == Some(true) => report.replayed += 1,
            200..=299 => report.accepted += 1,
            // Behind such an event, a refusal that follows from what was kept before is not final.
            status if is_final(&outcome) && !(follows && matches!(status, 409 | 422)) => {
                report.refuse(event.line, status, outcome.problem.unwrap_or_default());
            }
            _ => {
                open.extend(about);
                unsettled.push((event, outcome));
            }
        }
    }
    unsettled
}

/// Whether the event was refused for good. An update is sent until its other half is kept, too: the target
/// is not metered meanwhile.
fn is_final(outcome: &BatchResult) -> bool {
    let is_half_kept = outcome.problem.as_ref().is_some_and(Problem::has_stopped);
    !matches!(outcome.status, 408 | 429 | 500..) && !is_half_kept
}

/// The pause before the next attempt: the own one, or the longest that the receiver asks for.
pub(super) fn pause(own: Duration, unsettled: &[Unsettled]) -> Duration {
    let asked = unsettled
        .iter()
        .filter_map(|(_, outcome)| outcome.retry_after)
        .max()
        .map_or(Duration::ZERO, Duration::from_secs);
    own.max(asked.min(PAUSE_ASKED_MAX))
}

/// The failure where events get no final answer however often they are sent. At least one is left.
pub(super) fn given_up(unsettled: &[Unsettled], done: u64) -> Failure {
    let (event, outcome) = &unsettled[0];
    let (line, status) = (event.line, outcome.status);
    let why = outcome.problem.as_ref().map(in_one_line);
    let words = format!(
        "{} {} no final answer, the first in line {line}: {status}{}; {} before {} done; send the file again: \
         what is kept is recognised",
        counted(unsettled.len(), "event"),
        form(unsettled.len(), "has", "have"),
        why.map_or_else(String::new, |why| format!(" {why}")),
        counted(done, "event"),
        form(done, "is", "are"),
    );
    let answer = json!({ "status": status, "problem": outcome.problem });
    Failure::Unsettled(words, answer)
}

/// What an event is about. Other members do not matter here.
#[derive(Deserialize)]
struct About {
    resource_instance_id: Option<String>,
    previous: Option<Box<About>>,
    /// Of a `CloudEvent`.
    data: Option<Box<About>>,
}

/// The instances that an event is about; none of it where that is not known.
fn instances_of(event: &FileEvent) -> Vec<Option<String>> {
    let Ok(about) = serde_json::from_str::<About>(&event.body) else {
        return vec![None];
    };
    let About {
        resource_instance_id,
        previous,
        ..
    } = match about.data {
        Some(data) => *data,
        None => about,
    };
    let before = previous.and_then(|previous| previous.resource_instance_id);
    let before = before.map(Some);
    [resource_instance_id].into_iter().chain(before).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn outcome(status: u16, name: &str, retry_after: Option<u64>) -> BatchResult {
        let mut problem = Problem {
            r#type: format!("/problems/{name}"),
            detail: "Nothing was kept.".to_owned(),
            ..Problem::default()
        };
        let has_stopped = json!(name == "half-an-update");
        problem.members.insert("stopped".to_owned(), has_stopped);
        BatchResult {
            index: 0,
            status,
            replayed: None,
            span: None,
            problem: Some(problem),
            retry_after,
        }
    }

    /// The lines that are left of events with these statuses and problems.
    fn left(events: &[(u16, &str, &Value)]) -> Vec<u64> {
        let part = events.iter().zip(1..).map(|((.., body), line)| FileEvent {
            line,
            is_cloud_event: false,
            body: body.to_string(),
        });
        let outcomes = events
            .iter()
            .map(|(status, name, _)| outcome(*status, name, None));
        let (part, outcomes) = (part.collect(), outcomes.collect());
        let left = judge(&mut Report::default(), part, outcomes);
        left.into_iter().map(|(event, _)| event.line).collect()
    }

    #[test]
    fn refusals_behind_an_event_of_the_same_instance_are_not_believed() {
        let of = |instance: &str| json!({ "resource_instance_id": instance });
        let (i, j, k) = (of("i"), of("j"), of("k"));
        let cloud_event = json!({ "data": i });
        let update = json!({ "resource_instance_id": "k", "previous": i });
        let unknown = json!({ "resource_instance_id": 5 });
        for (status, name) in [
            (408, "a"),
            (429, "a"),
            (500, "a"),
            (503, "a"),
            (409, "half-an-update"),
        ] {
            let events = [
                (409, "open-span", &i),
                (status, name, &i),
                (409, "open-span", &j),
                (422, "no-open-span", &cloud_event),
                (400, "invalid-event", &i),
                (201, "", &i),
                (409, "open-span", &update),
                (409, "open-span", &k),
                (409, "open-span", &unknown),
            ];
            assert_eq!(left(&events), [2, 4, 7, 8, 9], "{status} {name}");
        }
        assert_eq!(left(&[(503, "a", &unknown), (409, "a", &j)]), [1, 2]);
        assert_eq!(left(&[(409, "a", &i), (422, "a", &j)]), [0_u64; 0]);
    }

    #[test]
    fn the_receiver_is_asked_no_earlier_than_it_says() {
        let event = FileEvent {
            line: 7,
            is_cloud_event: false,
            body: String::new(),
        };
        for (asked, seconds) in [
            (&[None][..], 4),
            (&[Some(1)], 4),
            (&[Some(61), None, Some(30)], 61),
            (&[Some(86_400)], 300),
        ] {
            let one = |asked: &Option<u64>| (event.clone(), outcome(503, "throttled", *asked));
            let unsettled: Vec<Unsettled> = asked.iter().map(one).collect();
            let pause = pause(Duration::from_secs(4), &unsettled);
            assert_eq!(pause.as_secs(), seconds, "{asked:?}");
        }
        let failure = given_up(&[(event, outcome(503, "throttled", None))], 6);
        let words =
            "1 event has no final answer, the first in line 7: 503 throttled: Nothing was kept.; ";
        assert!(failure.to_string().starts_with(words), "{failure}");
        assert_eq!(failure.document()["status"], 503);
        assert_eq!(failure.exit_code(), 3);
    }
}

//! The outcome of each event of a batch, as the receiver reports it.

use std::collections::HashSet;
use std::time::Duration;

use sampler_api::{BatchResult, Problem};
use sampler_verify::words::{counted, form};
use serde::Deserialize;
use serde_json::{Value, json};

use super::file_event::FileEvent;
use super::report::{Report, Why, in_one_line};
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
    let mut instances = Instances::default();
    for (event, outcome) in part.into_iter().zip(outcomes) {
        match outcome.status {
            200..=299 if outcome.replayed == Some(true) => report.replayed += 1,
            200..=299 => report.accepted += 1,
            status
                if is_final(&outcome) && !(hangs_on_others(status) && instances.hold(&event)) =>
            {
                let problem = outcome.problem.unwrap_or_default();
                report.refuse(event.line, Some(status), Why::Problem(Box::new(problem)));
            }
            _ => {
                instances.add(&event);
                unsettled.push((event, outcome));
            }
        }
    }
    unsettled
}

/// Whether the event was refused for good. A half-kept update is sent until the other
/// half is, too: the target is not metered meanwhile.
fn is_final(outcome: &BatchResult) -> bool {
    let is_half_kept = outcome.problem.as_ref().is_some_and(Problem::has_stopped);
    !matches!(outcome.status, 408 | 429 | 500..) && !is_half_kept
}

/// Whether the answer follows from what was kept before: it is another once that is settled.
fn hangs_on_others(status: u16) -> bool {
    matches!(status, 409 | 422)
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

/// The failure where events get no final answer however often they are sent.
pub(super) fn given_up(unsettled: &[Unsettled], done: u64) -> Failure {
    let count = unsettled.len();
    let Some((event, outcome)) = unsettled.first() else {
        return Failure::Unsettled("no event is left".to_owned(), Value::Null);
    };
    let (line, status) = (event.line, outcome.status);
    let why = match &outcome.problem {
        Some(problem) => format!(" {}", in_one_line(problem)),
        None => String::new(),
    };
    let words = format!(
        "{} {} no final answer, the first in line {line}: {status}{why}; {} before {} done; the same \
         command continues from there",
        counted(count, "event"),
        form(count, "has", "have"),
        counted(done, "event"),
        form(done, "is", "are"),
    );
    let answer = json!({ "status": status, "problem": outcome.problem });
    Failure::Unsettled(words, answer)
}

/// The instances of events that may still be kept.
#[derive(Default)]
struct Instances {
    known: HashSet<String>,
    /// An event says in no known way what it is about.
    is_any: bool,
}

/// What an event is about. Other members do not matter here.
#[derive(Deserialize)]
struct About {
    resource_instance_id: Option<String>,
    previous: Option<Box<About>>,
    /// Of a `CloudEvent`.
    data: Option<Box<About>>,
}

impl Instances {
    fn add(&mut self, event: &FileEvent) {
        match instances_of(event) {
            Some(instances) => self.known.extend(instances),
            None => self.is_any = true,
        }
    }

    /// Whether an event is about one of them, or may be.
    fn hold(&self, event: &FileEvent) -> bool {
        if self.is_any || self.known.is_empty() {
            return self.is_any;
        }
        let instances = instances_of(event);
        instances.is_none_or(|instances| instances.iter().any(|one| self.known.contains(one)))
    }
}

fn instances_of(event: &FileEvent) -> Option<Vec<String>> {
    let about: About = serde_json::from_str(&event.body).ok()?;
    let about = about.data.map_or(
        About {
            data: None,
            ..about
        },
        |data| *data,
    );
    let mut instances = vec![about.resource_instance_id?];
    instances.extend(
        about
            .previous
            .and_then(|previous| previous.resource_instance_id),
    );
    Some(instances)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(line: u64, body: &Value) -> FileEvent {
        FileEvent {
            line,
            is_cloud_event: body.get("data").is_some(),
            body: body.to_string(),
        }
    }

    fn problem(name: &str) -> Problem {
        Problem {
            r#type: format!("/problems/{name}"),
            detail: "Nothing was kept.".to_owned(),
            ..Problem::default()
        }
    }

    fn outcome(status: u16, retry_after: Option<u64>) -> BatchResult {
        BatchResult {
            index: 0,
            status,
            replayed: None,
            span: None,
            problem: Some(problem("throttled")),
            retry_after,
        }
    }

    /// The previous span is stopped, and the new one is not started.
    #[test]
    fn half_an_update_is_sent_again() {
        let of = |instance: &str| event(1, &json!({ "resource_instance_id": instance }));
        let conflict = |has_stopped: bool| {
            let mut problem = problem("open-span");
            problem
                .members
                .insert("stopped".to_owned(), json!(has_stopped));
            BatchResult {
                problem: Some(problem),
                ..outcome(409, None)
            }
        };
        let part = vec![of("i"), of("j"), of("i")];
        let mut report = Report::default();
        let left = judge(&mut report, part, [true, false, false].map(conflict).into());
        let left: Vec<&str> = left.iter().map(|(event, _)| event.body.as_str()).collect();
        let of_i = of("i").body;
        assert_eq!(left, [&of_i; 2]);
        assert_eq!(report.refused, 1);
    }

    /// The lines that are left of events with these statuses.
    fn left(events: &[(u16, Value)]) -> Vec<u64> {
        let part = events.iter().zip(1..);
        let part = part.map(|((_, body), line)| event(line, body)).collect();
        let outcomes = events.iter().map(|(status, _)| outcome(*status, None));
        let left = judge(&mut Report::default(), part, outcomes.collect());
        left.into_iter().map(|(event, _)| event.line).collect()
    }

    #[test]
    fn refusals_behind_an_event_of_the_same_instance_are_not_believed() {
        let of = |instance: &str| json!({ "resource_instance_id": instance });
        let (i, j) = (of("i"), of("j"));
        let cloud_event = json!({ "data": i });
        let update = json!({ "resource_instance_id": "k", "previous": i });
        for status in [408, 429, 500, 502, 503, 504, 599] {
            let events = [
                (409, i.clone()),
                (status, i.clone()),
                (409, j.clone()),
                (422, cloud_event.clone()),
                (400, i.clone()),
                (201, i.clone()),
                (409, update.clone()),
                (409, of("k")),
                (409, json!({ "type": 5 })),
            ];
            assert_eq!(left(&events), [2, 4, 7, 8, 9], "{status}");
        }
        let unknown = json!({ "resource_instance_id": 5 });
        assert_eq!(left(&[(503, unknown), (409, j.clone())]), [1, 2]);
        assert_eq!(left(&[(409, i), (422, j)]), [0_u64; 0]);
    }

    #[test]
    fn the_receiver_is_not_asked_before_it_says() {
        let own = Duration::from_secs(4);
        let wait = |asked: &[Option<u64>]| {
            let one = |asked: &Option<u64>| (event(1, &json!({})), outcome(503, *asked));
            let unsettled: Vec<Unsettled> = asked.iter().map(one).collect();
            pause(own, &unsettled).as_secs()
        };
        assert_eq!(wait(&[None]), 4);
        assert_eq!(wait(&[Some(1)]), 4);
        assert_eq!(wait(&[Some(61), None, Some(30)]), 61);
        assert_eq!(wait(&[Some(300)]), 300);
        assert_eq!(wait(&[Some(86_400)]), 300);
    }

    #[test]
    fn what_the_receiver_says_is_told_at_the_end() {
        let unsettled = [
            (event(7, &json!({})), outcome(503, None)),
            (event(8, &json!({})), outcome(409, None)),
        ];
        let failure = given_up(&unsettled, 6);
        let words = failure.to_string();
        assert!(
            words.starts_with(
                "2 events have no final answer, the first in line 7: 503 throttled: Nothing was kept.;"
            ),
            "{words}"
        );
        let document = failure.document();
        assert_eq!(document["status"], 503);
        assert_eq!(document["problem"]["detail"], "Nothing was kept.");
        assert_eq!(document["exit_code"], 3);
    }
}

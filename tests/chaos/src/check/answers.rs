//! The answers to the clients, event by event.

use std::collections::{BTreeMap, HashMap};

use super::{Rule, Violation};
use crate::event::{EventFields, Kind};
use crate::history::{Answer, Attempt, Event, Record};

/// The answers that the API gives to events.
const DOCUMENTED: [u16; 5] = [201, 400, 409, 422, 503];

/// What a client knows of an event in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KnownOutcome {
    /// It was kept.
    Accepted,
    Refused,
    /// The client had no definite answer.
    Nothing,
}

/// What the client of each event knows of it in the end.
pub(super) fn known_outcomes(records: &[Record]) -> HashMap<&str, KnownOutcome> {
    let mut outcomes = HashMap::new();
    for record in records {
        let Record::Attempt(attempt) = record else {
            continue;
        };
        let outcome = outcomes
            .entry(attempt.event.as_str())
            .or_insert(KnownOutcome::Nothing);
        // `check_attempts` reports events that were both accepted and refused.
        if attempt.answer.is_accepted() {
            *outcome = KnownOutcome::Accepted;
        } else if attempt.answer.is_refused() && *outcome == KnownOutcome::Nothing {
            *outcome = KnownOutcome::Refused;
        }
    }
    outcomes
}

/// Looks at all answers, but not at whether they are right for the target. `is_ordered`: whether 500 may
/// be the answer to a request of that moment that took so long, because a fault orders it.
pub(super) fn check(records: &[Record], is_ordered: impl Fn(i64, u64) -> bool) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut attempts: BTreeMap<&str, Vec<&Attempt>> = BTreeMap::new();
    for record in records {
        match record {
            Record::Attempt(attempt) => {
                attempts.entry(&attempt.event).or_default().push(attempt);
                check_status(attempt, &is_ordered, &mut violations);
            }
            Record::ProgramEnded(ended) => {
                violations.push(Rule::ProgramLives.broken(&ended.program, &ended.how));
            }
            Record::Event(_) | Record::Act(_) | Record::Fault(_) => {}
        }
    }
    for attempts in attempts.values() {
        check_attempts(attempts, &mut violations);
    }
    let outcomes = known_outcomes(records);
    for record in records {
        if let Record::Event(event) = record {
            let outcome = outcomes
                .get(event.name.as_str())
                .copied()
                .unwrap_or(KnownOutcome::Nothing);
            check_event(event, outcome, &mut violations);
        }
    }
    violations
}

fn check_status(
    attempt: &Attempt,
    is_ordered: impl Fn(i64, u64) -> bool,
    violations: &mut Vec<Violation>,
) {
    let Answer::Status {
        status, problem, ..
    } = &attempt.answer
    else {
        return;
    };
    let detail = format!(
        "{status} {} at {}",
        problem.as_deref().unwrap_or("-"),
        attempt.at
    );
    if *status == 500 {
        if !is_ordered(attempt.at, attempt.took) {
            violations.push(Rule::NoInternalError.broken(&attempt.event, detail));
        }
    } else if !DOCUMENTED.contains(status) {
        violations.push(Rule::DocumentedAnswer.broken(&attempt.event, detail));
    }
}

/// All answers to one event must go together: two of its attempts may be on their way at the same
/// time, but they say the same.
fn check_attempts(attempts: &[&Attempt], violations: &mut Vec<Violation>) {
    let is_fresh = |answer: &Answer| {
        matches!(
            answer,
            Answer::Status {
                status: 201,
                replayed: false,
                ..
            }
        )
    };
    let fresh: Vec<_> = attempts
        .iter()
        .filter(|attempt| is_fresh(&attempt.answer))
        .collect();
    let accepted = attempts.iter().find(|attempt| attempt.answer.is_accepted());
    let refused = attempts.iter().find(|attempt| attempt.answer.is_refused());
    if let [first, second, ..] = fresh.as_slice() {
        let detail = format!(
            "sent at {} and again at {}, new both times",
            first.at, second.at
        );
        violations.push(Rule::KeptOnce.broken(&first.event, detail));
    }
    if let (Some(accepted), Some(refused)) = (accepted, refused) {
        let detail = format!(
            "accepted when sent at {}, refused when sent at {}: {:?}",
            accepted.at, refused.at, refused.answer
        );
        violations.push(Rule::RepeatAccepted.broken(&accepted.event, detail));
    }
}

fn check_event(event: &Event, outcome: KnownOutcome, violations: &mut Vec<Violation>) {
    let is_malformed = EventFields::read(event.kind, &event.body).is_none();
    if outcome == KnownOutcome::Nothing && !event.gives_up {
        violations.push(Rule::Answered.broken(&event.name, &event.intent));
    }
    if outcome == KnownOutcome::Accepted && is_malformed {
        let kind = if event.kind == Kind::Start {
            "a start"
        } else {
            "a stop"
        };
        violations.push(Rule::MalformedRefused.broken(&event.name, kind));
    }
}

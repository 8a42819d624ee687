//! The checker. It knows what the API promises and what must be billed, and nothing of how that is
//! done: it reads what the clients sent, what they were answered, and what Abacus counts.
//!
//! Each start names itself in a measure, so each usage says which span it belongs to. Clients send
//! the events of a target in order, so for each target there is one possible course of things; or
//! several, where an event was given up without a definite answer, and then at least one of them
//! must agree with all answers and with the bill.

mod answers;
mod bill;
mod histories;
mod ledger;
mod rule;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};

use crate::event::{EventFields, Kind, Target};
use crate::evidence::{Evidence, Span};
use crate::history::{Event, Record};

use answers::KnownOutcome;
use bill::Bills;
use histories::Histories;
pub use rule::{Rule, Violation};

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// What is wrong.
    pub violations: Vec<Violation>,
    /// How many starts were accepted.
    pub spans: usize,
    /// How many usages count.
    pub usages: usize,
    /// How many of them take back.
    pub corrections: usize,
    /// How many targets have several possible courses.
    pub uncertain: usize,
}

impl Verdict {
    /// Whether nothing is wrong.
    pub fn is_right(&self) -> bool {
        self.violations.is_empty()
    }
}

/// An event with its fields and what its client knows of it.
struct Case<'a> {
    event: &'a Event,
    /// None where the body is not valid.
    fields: Option<EventFields>,
    outcome: KnownOutcome,
    /// The accepted event of the same target whose `id` it uses again.
    id_of: Option<&'a str>,
}

/// Checks a run.
pub fn check(evidence: &Evidence) -> Verdict {
    let mut violations = answers::check(&evidence.records);
    let cases = cases(&evidence.records);
    let bills = Bills::new(&evidence.counted, &cases, &mut violations);
    for case in &cases {
        if let (Some(other), KnownOutcome::Accepted) = (case.id_of, case.outcome) {
            let detail = format!("the id was accepted before, with {other}");
            violations.push(Rule::IdTaken.broken(&case.event.name, detail));
        }
    }
    let mut uncertain = 0;
    for cases in by_target(&cases).values() {
        let histories = Histories::of(cases, &mut violations);
        uncertain += usize::from(histories.is_uncertain());
        violations.extend(histories.compare(cases, &bills));
    }
    check_spans(&evidence.spans, &mut violations);
    if let Some(entries) = &evidence.ledger {
        ledger::check(entries, &evidence.counted, &evidence.spans, &mut violations);
    }
    for aside in &evidence.aside {
        violations.push(Rule::PutAside.broken(&aside.dedup_id, &aside.reason));
    }
    explain(&mut violations, &evidence.spans);
    let is_span =
        |case: &&Case<'_>| case.outcome == KnownOutcome::Accepted && case.event.kind == Kind::Start;
    let takes_back = |duration: Option<i64>| duration.is_some_and(i64::is_negative);
    Verdict {
        violations,
        spans: cases.iter().filter(is_span).count(),
        usages: evidence.counted.len(),
        corrections: evidence
            .counted
            .iter()
            .filter(|usage| takes_back(usage.duration()))
            .count(),
        uncertain,
    }
}

fn cases(records: &[Record]) -> Vec<Case<'_>> {
    let outcomes = answers::known_outcomes(records);
    let mut accepted: BTreeMap<(bool, Target, String), (&str, EventFields)> = BTreeMap::new();
    let mut cases = Vec::new();
    for record in records {
        let Record::Event(event) = record else {
            continue;
        };
        let fields = EventFields::read(event.kind, &event.body);
        let outcome = outcomes
            .get(event.name.as_str())
            .copied()
            .unwrap_or(KnownOutcome::Nothing);
        let mut id_of = None;
        if let Some(fields) = &fields {
            // An id counts within its target.
            let key = (
                event.kind == Kind::Start,
                fields.target.clone(),
                fields.id.clone(),
            );
            match accepted.get(&key) {
                Some((name, earlier)) if earlier != fields => id_of = Some(*name),
                None if outcome == KnownOutcome::Accepted => {
                    accepted.insert(key, (event.name.as_str(), fields.clone()));
                }
                _ => {}
            }
        }
        cases.push(Case {
            event,
            fields,
            outcome,
            id_of,
        });
    }
    cases
}

/// The events of each target, in order. An event that is not valid, or has the `id` of another event
/// of its target, must have no effect.
fn by_target<'a, 'b>(cases: &'b [Case<'a>]) -> BTreeMap<&'b Target, Vec<&'b Case<'a>>> {
    let mut targets: BTreeMap<&Target, Vec<&Case<'_>>> = BTreeMap::new();
    for case in cases {
        if let (Some(fields), None) = (&case.fields, case.id_of) {
            targets.entry(&fields.target).or_default().push(case);
        }
    }
    targets
}

fn check_spans(spans: &[Span], violations: &mut Vec<Violation>) {
    for span in spans.iter().filter(|span| !span.complete) {
        violations.push(Rule::Incomplete.broken(&span.start_id, "the span is not complete"));
    }
}

/// Adds what the database says about the span that a violation is about.
fn explain(violations: &mut [Violation], spans: &[Span]) {
    let documents: HashMap<&str, &Span> = spans
        .iter()
        .map(|span| (span.start_id.as_str(), span))
        .collect();
    for violation in violations {
        if let Some(span) = documents.get(violation.subject.as_str()) {
            violation.document = Some(span.document.to_string());
        }
    }
}

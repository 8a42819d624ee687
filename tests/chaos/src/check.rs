//! The checker. It knows what the API promises and what must be billed, and nothing of how that is
//! done: it reads what the clients sent, what they were answered, and what Abacus counts. Each usage that
//! counts is what its entry in the ledger says, each entry is of a span that the API shows, and whether the
//! entries of a span are what was used is for the verifier to say, which knows as little.
//!
//! Each start names itself in a measure, so each usage says which span it belongs to. Clients send
//! the events of a target in order, so for each target there is one possible course of things; or
//! several, where an event was given up without a definite answer, and then at least one of them
//! must agree with all answers and with the bill.

mod acts;
mod answers;
mod histories;
mod hours;
mod ledger;
mod off;
mod rule;
mod spans;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};

use crate::event::{EventFields, Kind, Target};
use crate::evidence::{Entry, Evidence};
use crate::history::{Event, Record};
use crate::inject::ASIDE_REASON;
use crate::schedule::COMMANDS_REFUSED;

use answers::KnownOutcome;
use histories::Histories;
pub use ledger::Undecidable;
use ledger::faults;
use off::OffBill;
pub use rule::{Rule, Violation};
use spans::Spans;

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
    /// How many usages are skipped in the ledger.
    pub skipped: usize,
    /// How many are set aside.
    pub set_aside: usize,
    /// How many were set aside, sent again, and set aside again.
    pub rounds: usize,
    /// How many were not posted, because they take back what is on no bill.
    pub withheld: usize,
    /// How many are known to count.
    pub confirmed: usize,
    /// How often the ledger cannot know what counts.
    pub undecidable: Undecidable,
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

/// The starts, by their names.
struct Starts<'a>(HashMap<&'a str, &'a Case<'a>>);

impl<'a> Starts<'a> {
    fn of(cases: &'a [Case<'a>]) -> Self {
        let starts = cases.iter().filter(|case| case.event.kind == Kind::Start);
        let named = starts.map(|case| (case.event.name.as_str(), case));
        Self(named.collect())
    }

    /// The fields of a start that may be billed; otherwise the rule that is broken where it is.
    fn fields(&self, name: &str) -> Result<&'a EventFields, Rule> {
        let case = self.0.get(name).ok_or(Rule::UsageKnown)?;
        case.can_count().ok_or(Rule::RefusedNotBilled)
    }
}

/// Checks a run.
pub fn check(evidence: &Evidence) -> Verdict {
    let refused = faults(&evidence.records, |text| text.starts_with(COMMANDS_REFUSED));
    let is_ordered = |at: i64, took: u64| {
        let to = at.saturating_add_unsigned(took);
        refused
            .iter()
            .any(|(from, until)| *from <= to && at <= *until)
    };
    let mut violations = answers::check(&evidence.records, is_ordered);
    acts::check(
        &evidence.records,
        &evidence.trail,
        is_ordered,
        &mut violations,
    );
    let cases = cases(&evidence.records);
    let off = OffBill::new(evidence, &mut violations);
    let starts = Starts::of(&cases);
    let spans = Spans::new(evidence, &starts, &mut violations);
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
        violations.extend(histories.compare(cases, &spans));
    }
    let mut undecidable = ledger::check(evidence, &mut violations);
    undecidable.unknown = hours::check(&evidence.counted, &off, &mut violations);
    for aside in evidence
        .aside
        .iter()
        .filter(|aside| aside.reason != ASIDE_REASON)
    {
        violations.push(Rule::PutAside.broken(&aside.dedup_id, &aside.reason));
    }
    let is_span =
        |case: &&Case<'_>| case.outcome == KnownOutcome::Accepted && case.event.kind == Kind::Start;
    let entries = |is_meant: fn(&Entry) -> bool| {
        let ledger = evidence.ledger.iter();
        ledger.filter(|entry| is_meant(entry)).count()
    };
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
        skipped: entries(|entry| entry.usage.state == "skipped"),
        set_aside: entries(|entry| entry.usage.state == "set_aside"),
        rounds: entries(|entry| entry.rounds > 0),
        withheld: entries(|entry| entry.withheld),
        confirmed: entries(|entry| entry.usage.state == "counted"),
        undecidable,
        uncertain,
    }
}

impl Case<'_> {
    /// The fields, unless it must have no effect: it is not valid, or has the `id` of another event of its
    /// target.
    fn can_count(&self) -> Option<&EventFields> {
        self.fields.as_ref().filter(|_| self.id_of.is_none())
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

/// The events of each target that can count, in order.
fn by_target<'a, 'b>(cases: &'b [Case<'a>]) -> BTreeMap<&'b Target, Vec<&'b Case<'a>>> {
    let mut targets: BTreeMap<&Target, Vec<&Case<'_>>> = BTreeMap::new();
    for case in cases {
        if let Some(fields) = case.can_count() {
            targets.entry(&fields.target).or_default().push(case);
        }
    }
    targets
}

//! The possible histories of one target: what its spans may be, given events and answers.

use super::answers::KnownOutcome;
use super::spans::Spans;
use super::{Case, Rule, Violation};
use crate::event::{EventFields, Kind};

/// The most histories that are followed; a client gives up an event of a target only once.
const HISTORIES_MAX: usize = 256;

/// One possible history of the target. Cases are named by their index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct TargetHistory {
    /// Which start began each span, and when it ends. Only the last can be open.
    spans: Vec<(usize, Option<i64>)>,
    /// Events without a definite answer, which may still count at any time.
    pending: Vec<usize>,
}

/// All possible histories of the target.
#[derive(Clone, Debug)]
pub(super) struct Histories {
    possible: Vec<TargetHistory>,
}

impl TargetHistory {
    /// The history with one more event; `None` if the API must refuse it: one open span at a time, none
    /// begins before the previous one has ended, none ends before it begins.
    fn take(&self, place: usize, cases: &[&Case<'_>]) -> Option<Self> {
        let timestamp = fields(cases[place])?.timestamp;
        let last_end = self.spans.iter().filter_map(|(_, end)| *end).max();
        let mut after = self.clone();
        match (cases[place].event.kind, after.spans.last_mut()) {
            (Kind::Start, Some((_, None))) => return None,
            (Kind::Start, _) if last_end.is_some_and(|end| end > timestamp) => return None,
            (Kind::Start, _) => after.spans.push((place, None)),
            (Kind::Stop, Some((start, end @ None))) => {
                if fields(cases[*start])?.timestamp > timestamp {
                    return None;
                }
                *end = Some(timestamp);
            }
            (Kind::Stop, _) => return None,
        }
        Some(after)
    }

    /// The histories in which one of the pending events counts now.
    fn after_pending(&self, cases: &[&Case<'_>]) -> impl Iterator<Item = Self> {
        self.pending.iter().filter_map(move |place| {
            let mut after = self.take(*place, cases)?;
            after.pending.retain(|other| other != place);
            Some(after)
        })
    }
}

fn fields<'a>(case: &'a Case<'_>) -> Option<&'a EventFields> {
    case.fields.as_ref()
}

impl Histories {
    /// Follows the events of a target, in the order in which its client sent them.
    pub(super) fn of(cases: &[&Case<'_>], violations: &mut Vec<Violation>) -> Self {
        let mut histories = Self {
            possible: vec![TargetHistory::default()],
        };
        for (place, case) in cases.iter().enumerate() {
            histories.branch_on_pending(cases);
            match case.outcome {
                KnownOutcome::Accepted => histories.accept(place, cases, violations),
                KnownOutcome::Refused => histories.refuse(place, cases, violations),
                KnownOutcome::Nothing => {
                    for history in &mut histories.possible {
                        history.pending.push(place);
                    }
                }
            }
        }
        histories.branch_on_pending(cases);
        histories
    }

    /// Adds the histories in which events without a definite answer count by now.
    fn branch_on_pending(&mut self, cases: &[&Case<'_>]) {
        let mut place = 0;
        while place < self.possible.len() && self.possible.len() < HISTORIES_MAX {
            let after: Vec<TargetHistory> = self.possible[place].after_pending(cases).collect();
            for history in after {
                if !self.possible.contains(&history) {
                    self.possible.push(history);
                }
            }
            place += 1;
        }
    }

    fn accept(&mut self, place: usize, cases: &[&Case<'_>], violations: &mut Vec<Violation>) {
        let after: Vec<TargetHistory> = self
            .possible
            .iter()
            .filter_map(|history| history.take(place, cases))
            .collect();
        if !after.is_empty() {
            self.possible = after;
            return;
        }
        let event = cases[place].event;
        violations.push(Rule::WrongRefused.broken(&event.name, &event.intent));
        if event.kind == Kind::Start {
            // It was acknowledged, so it is to be in the bill all the same.
            for history in &mut self.possible {
                history.spans.push((place, None));
            }
        }
    }

    fn refuse(&mut self, place: usize, cases: &[&Case<'_>], violations: &mut Vec<Violation>) {
        let refuses = |history: &TargetHistory| history.take(place, cases).is_none();
        if self.possible.iter().any(refuses) {
            self.possible.retain(refuses);
            return;
        }
        let event = cases[place].event;
        violations.push(Rule::RightAccepted.broken(&event.name, &event.intent));
    }

    /// Whether there is more than one.
    pub(super) fn is_uncertain(&self) -> bool {
        self.possible.len() > 1
    }

    /// What is wrong with the spans, by the course that they agree with best.
    pub(super) fn compare(&self, cases: &[&Case<'_>], spans: &Spans<'_>) -> Vec<Violation> {
        let compared = self.possible.iter().map(|history| {
            let mut violations = Vec::new();
            for (place, case) in cases.iter().enumerate() {
                let span = history.spans.iter().find(|(start, _)| *start == place);
                match span {
                    Some((_, end)) => spans.check_span(case, *end, &mut violations),
                    None => spans.check_nothing(case, &mut violations),
                }
            }
            violations
        });
        compared.min_by_key(Vec::len).unwrap_or_default()
    }
}

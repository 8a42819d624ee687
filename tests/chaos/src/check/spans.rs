//! The bill of each span. The verifier compares the span that the API shows, with its proof, and the usages of
//! the ledger with the start and the stop of one possible history.

use std::collections::{HashMap, HashSet};

use sampler_verify::{Granularity, Kind, Policy, SpanCheck, Target, Used, api};

use super::answers::KnownOutcome;
use super::{Case, Rule, Starts, Violation};
use crate::event::EventFields;
use crate::evidence::{Entry, Evidence, tag_in};

/// In the end nothing depends on the time: all spans must be complete, and no usage may have expired.
const POLICY: Policy = Policy {
    now: 0,
    granularity: Some(Granularity::Hour),
    allowance: i64::MAX,
    kept: i64::MAX,
};

/// The spans that the API shows, by the event that started them, and the entries of each.
#[derive(Debug)]
pub(super) struct Spans<'a> {
    by_start: HashMap<&'a str, Vec<&'a api::Span>>,
    entries: HashMap<&'a str, Vec<&'a Entry>>,
}

impl<'a> Spans<'a> {
    /// A span that no start explains breaks a rule, and an entry without a span.
    pub(super) fn new(
        evidence: &'a Evidence,
        starts: &Starts<'_>,
        violations: &mut Vec<Violation>,
    ) -> Self {
        let mut by_start: HashMap<&str, Vec<&api::Span>> = HashMap::new();
        for span in &evidence.shown {
            let tag = tag_in(&span.measured_usage).unwrap_or_default();
            if let Err(rule) = starts.fields(tag) {
                violations.push(rule.broken(&span.id, format!("{span:?}")));
            }
            by_start.entry(tag).or_default().push(span);
        }
        let shown: HashSet<&str> = evidence.shown.iter().map(|span| span.id.as_str()).collect();
        let mut entries: HashMap<&str, Vec<&Entry>> = HashMap::new();
        for entry in &evidence.ledger {
            let span = entry.usage.span.as_str();
            if !shown.contains(span) {
                let detail = format!("{entry:?} is of no span of the API");
                violations.push(Rule::Ledger.broken(entry.id(), detail));
            }
            entries.entry(span).or_default().push(entry);
        }
        Self { by_start, entries }
    }

    fn of(&self, start: &str) -> &[&'a api::Span] {
        self.by_start.get(start).map_or(&[], Vec::as_slice)
    }

    /// Checks the span of a start, which has that end.
    pub(super) fn check_span(
        &self,
        case: &Case<'_>,
        end: Option<i64>,
        violations: &mut Vec<Violation>,
    ) {
        let (Some(fields), name) = (&case.fields, &case.event.name) else {
            return;
        };
        let Some(end) = end else {
            return violations.push(Rule::Incomplete.broken(name, "it was never stopped"));
        };
        match self.of(name) {
            [span] => self.verify(span, name, fields, end, violations),
            [] => violations.push(Rule::Billed.broken(name, "the API shows no span of it")),
            spans => violations.push(Rule::BilledOnce.broken(name, format!("{spans:?}"))),
        }
    }

    fn verify(
        &self,
        span: &api::Span,
        name: &str,
        fields: &EventFields,
        end: i64,
        violations: &mut Vec<Violation>,
    ) {
        let used = Used {
            target: Target::from_ids(fields.target.0.clone()),
            measures: fields.measures.clone(),
            start: fields.timestamp,
            end: Some(end),
            start_id: Some(fields.id.clone()),
            end_id: None,
            line: 0,
        };
        let mut check = SpanCheck::new(span, Some(&used), &POLICY);
        for entry in self.entries.get(span.id.as_str()).into_iter().flatten() {
            // The verifier is not told the target of a usage.
            if entry.target != fields.target {
                violations.push(Rule::TargetKept.broken(name, format!("{entry:?}")));
            }
            check.entry(&as_taken(entry));
        }
        if span.state != "complete" {
            violations.push(Rule::Incomplete.broken(name, format!("it is {}", span.state)));
        }
        // Whether an operator has skipped it is checked elsewhere.
        let is_fault = |kind| !matches!(kind, Kind::Skipped | Kind::Unanswered);
        let findings = check.finish().findings.into_iter();
        for finding in findings.filter(|finding| is_fault(finding.kind)) {
            let detail = format!("{}: {}", finding.kind.name(), finding.detail);
            violations.push(Rule::Verified.broken(name, detail));
        }
    }

    /// Makes sure that an event that started no span has none.
    pub(super) fn check_nothing(&self, case: &Case<'_>, violations: &mut Vec<Violation>) {
        let spans = self.of(&case.event.name);
        if spans.is_empty() {
            return;
        }
        let rule = match case.outcome {
            // The event may be kept without an answer, but then it would be billed to its end.
            KnownOutcome::Refused | KnownOutcome::Nothing => Rule::RefusedNotBilled,
            KnownOutcome::Accepted => Rule::BilledOnce,
        };
        violations.push(rule.broken(&case.event.name, format!("{spans:?}")));
    }
}

/// A usage that Abacus has set aside is a part of its span's totals like any that it took: whether it has set
/// it aside is checked elsewhere. Its status can be that of a resend that was refused.
fn as_taken(entry: &Entry) -> api::Entry {
    let mut usage = entry.usage.clone();
    if usage.state == "set_aside" {
        "accepted".clone_into(&mut usage.state);
        usage.status = None;
    }
    usage
}

//! The report of a verification.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::Target;
use crate::api::Span;
use crate::check::{Amounts, Verdict};
use crate::finding::{Finding, FindingKind};
use crate::history::{Contradiction, Used};
use crate::moment::{InWords, Millis};
use crate::quantity::{Measure, Quantity};

/// How many names of measures are summed up.
const MEASURES_MAX: usize = 1_000;

/// One span, or one usage without a span.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The line of the start event.
    pub line: Option<u64>,
    pub span: Option<String>,
    pub target: Target,
    pub start: Millis,
    pub end: Option<Millis>,
    /// How far the span is.
    pub state: Option<String>,
    #[serde(flatten)]
    pub amounts: Amounts,
    pub findings: Vec<Finding>,
    pub more_findings: usize,
}

/// The sums over all spans.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Totals {
    /// How many spans and usages without a span there are.
    pub spans: usize,
    /// How many of them do not fit.
    pub wrong: usize,
    /// How many fit, with something that is worth knowing.
    pub noted: usize,
    pub usages: u64,
    /// Durations, in ms.
    pub duration: Total,
    /// Quantity times duration of each measure, where all quantities are integers.
    pub measures: BTreeMap<String, Total>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Total {
    /// By the events.
    pub used: i128,
    /// By the API.
    pub billed: i128,
    /// Given up.
    pub skipped: i128,
    /// The part of `skipped` that the upstream may count, because a post had no answer.
    pub unanswered: i128,
    /// Used, and neither billed nor skipped.
    pub difference: i128,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    pub fits: bool,
    pub totals: Totals,
    /// Events that contradict others.
    pub events: Vec<Contradiction>,
    /// All spans, in the order of the file; those without events last.
    pub spans: Vec<Row>,
}

impl Report {
    pub fn new(contradictions: Vec<Contradiction>) -> Self {
        Self {
            events: contradictions,
            ..Self::default()
        }
    }

    pub fn add(&mut self, span: &Span, used: Option<&Used>, verdict: Verdict) {
        let amounts = verdict.amounts;
        self.sum(
            used.map_or(&[], |used| &used.measures),
            &span.measured_usage,
            &amounts,
        );
        self.spans.push(Row {
            line: used.map(|used| used.line),
            span: Some(span.id.clone()),
            target: span.target.clone(),
            start: span.start,
            end: span.end,
            state: Some(span.state.clone()),
            amounts,
            findings: verdict.findings,
            more_findings: verdict.more,
        });
    }

    /// Adds a usage that there is no span for; one that still runs was used until `now`.
    pub fn add_without_span(&mut self, used: &Used, now: Millis) {
        let until = used.end.unwrap_or(now).max(used.start);
        let length = i128::from(until) - i128::from(used.start);
        let amounts = Amounts {
            used: length,
            difference: length,
            ..Amounts::default()
        };
        let (line, start) = (used.line, InWords(used.start));
        let detail = format!("there is no span for the start of line {line} at {start}");
        self.sum(&used.measures, &[], &amounts);
        self.spans.push(Row {
            line: Some(line),
            span: None,
            target: used.target.clone(),
            start: used.start,
            end: used.end,
            state: None,
            amounts,
            findings: vec![Finding::new(FindingKind::EventsWithoutSpan, detail)],
            more_findings: 0,
        });
    }

    /// Puts everything in order, and judges. With `strict`, what is worth knowing is wrong, too.
    #[must_use]
    pub fn finish(mut self, strict: bool) -> Self {
        self.spans
            .sort_by_cached_key(|row| (row.line.unwrap_or(u64::MAX), row.start));
        let totals = &mut self.totals;
        for total in totals.measures.values_mut() {
            total.difference = total.used - total.billed - total.skipped;
        }
        totals.spans = self.spans.len();
        totals.wrong = self.spans.iter().filter(|row| !row.fits()).count();
        totals.noted = self
            .spans
            .iter()
            .filter(|row| row.fits() && !row.findings.is_empty())
            .count();
        let is_enough = !strict || totals.noted == 0;
        self.fits = totals.wrong == 0 && self.events.is_empty() && is_enough;
        self
    }

    fn sum(&mut self, used: &[Measure], billed: &[Measure], amounts: &Amounts) {
        self.totals.usages += amounts.usages;
        let duration = &mut self.totals.duration;
        duration.used += amounts.used;
        duration.billed += amounts.billed;
        duration.skipped += amounts.skipped;
        duration.unanswered += amounts.unanswered;
        duration.difference += amounts.difference;
        for (name, quantity) in integers(used) {
            let total = self.measure(name);
            total.used += quantity.saturating_mul(amounts.used);
        }
        for (name, quantity) in integers(billed) {
            let total = self.measure(name);
            total.billed += quantity.saturating_mul(amounts.billed);
            total.skipped += quantity.saturating_mul(amounts.skipped);
            total.unanswered += quantity.saturating_mul(amounts.unanswered);
        }
    }

    fn measure(&mut self, name: &str) -> &mut Total {
        let measures = &mut self.totals.measures;
        let is_known = measures.contains_key(name) || measures.len() < MEASURES_MAX;
        let name = if is_known { name } else { "(others)" };
        measures.entry(name.to_owned()).or_default()
    }
}

impl Row {
    pub fn fits(&self) -> bool {
        !self.findings.iter().any(|finding| finding.kind.is_wrong())
    }
}

fn integers(measures: &[Measure]) -> impl Iterator<Item = (&str, i128)> {
    measures
        .iter()
        .filter_map(|measure| match measure.quantity {
            Quantity::Integer(quantity) => Some((measure.measure.as_str(), quantity)),
            _ => None,
        })
}

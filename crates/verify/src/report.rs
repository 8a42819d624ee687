//! The report of a verification: findings, the spans that they are about, and sums.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::Target;
use crate::api::Span;
use crate::history::{Contradiction, Used};
use crate::moment::{InWords, Millis};
use crate::quantity::Measure;

/// How many findings of one span are kept.
const FINDINGS_MAX: usize = 50;

/// The kind of a finding, as `docs/verifying.md` explains them. The first group is wrong; the second, from
/// [`FindingKind::Suspended`] on, is worth knowing, and may be in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    EventsWithoutSpan,
    SpanWithoutEvents,
    Differs,
    Gap,
    Overlap,
    WrongUsage,
    Overdue,
    Proof,
    Suspended,
    Skipped,
    Unanswered,
    Expired,
    Behind,
}

impl FindingKind {
    /// Whether something is wrong; it is worth knowing otherwise.
    pub fn is_wrong(self) -> bool {
        self < Self::Suspended
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub kind: FindingKind,
    /// A sentence for people.
    pub detail: String,
}

/// Milliseconds, or these times a quantity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Amounts {
    /// By the events, as far as it is billed by now.
    pub used: i128,
    /// Accepted by the upstream, with what has expired.
    pub billed: i128,
    /// Given up by an operator.
    pub skipped: i128,
    /// What the upstream may count of `skipped` and of what a stop has trimmed, because a post had no answer.
    pub unanswered: i128,
    /// Used, and neither billed nor skipped; negative where too much is billed.
    pub difference: i128,
}

/// One span, or one usage without a span.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// The line of the start event.
    pub line: Option<u64>,
    pub span: Option<String>,
    pub target: Target,
    pub start: Millis,
    pub end: Option<Millis>,
    pub state: Option<String>,
    #[serde(flatten)]
    pub amounts: Amounts,
    /// How many usages were read.
    pub usages: u64,
    /// The part of `billed` that only the span says, because its usages have expired, ms.
    pub expired: i128,
    pub findings: Vec<Finding>,
    /// How many there were beyond those.
    pub more_findings: usize,
    #[serde(skip)]
    used_measures: Vec<Measure>,
    #[serde(skip)]
    billed_measures: Vec<Measure>,
}

impl Row {
    pub(crate) fn new(span: &Span, used: Option<&Used>) -> Self {
        Self {
            line: used.map(|used| used.line),
            span: Some(span.id.clone()),
            target: span.target.clone(),
            start: span.start,
            end: span.end,
            state: Some(span.state.clone()),
            used_measures: used.map(|used| used.measures.clone()).unwrap_or_default(),
            billed_measures: span.measured_usage.clone(),
            ..Self::default()
        }
    }

    /// The row of a span that was removed while it was read.
    pub fn removed(span: &Span, used: Option<&Used>) -> Self {
        let mut row = Self::new(span, used);
        let detail = "the span was removed while it was read";
        row.find(FindingKind::Expired, detail);
        row
    }

    /// The row of a usage without a span; one that still runs was used until `now`.
    pub fn without_span(used: &Used, now: Millis) -> Self {
        let until = used.end.unwrap_or(now).max(used.start);
        let length = i128::from(until) - i128::from(used.start);
        let mut row = Self {
            line: Some(used.line),
            target: used.target.clone(),
            start: used.start,
            end: used.end,
            used_measures: used.measures.clone(),
            ..Self::default()
        };
        (row.amounts.used, row.amounts.difference) = (length, length);
        let (line, start) = (used.line, InWords(used.start));
        let detail = format!("there is no span for the start of line {line} at {start}");
        row.find(FindingKind::EventsWithoutSpan, detail);
        row
    }

    pub(crate) fn find(&mut self, kind: FindingKind, detail: impl Into<String>) {
        if self.findings.len() == FINDINGS_MAX {
            self.more_findings += 1;
            return;
        }
        let detail = detail.into();
        self.findings.push(Finding { kind, detail });
    }

    pub fn fits(&self) -> bool {
        !self.findings.iter().any(|finding| finding.kind.is_wrong())
    }
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Totals {
    /// How many spans and usages without a span there are.
    pub spans: usize,
    /// How many of them do not fit.
    pub wrong: usize,
    /// How many fit, with something that is worth knowing.
    pub noted: usize,
    pub usages: u64,
    pub duration: Amounts,
    /// Quantity times duration of each measure, where the quantities are integers.
    pub measures: BTreeMap<String, Amounts>,
    /// The measures of which a quantity is not whole: they are not added up.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub not_added: BTreeSet<String>,
}

impl Totals {
    fn of(rows: &[Row]) -> Self {
        let mut totals = Self {
            spans: rows.len(),
            ..Self::default()
        };
        for row in rows {
            totals.wrong += usize::from(!row.fits());
            totals.noted += usize::from(row.fits() && !row.findings.is_empty());
            totals.usages += row.usages;
            totals.duration.add(1, row.amounts);
            let mut billed = row.amounts;
            let used = std::mem::take(&mut billed.used);
            let used = Amounts {
                used,
                ..Amounts::default()
            };
            totals.add(&row.used_measures, used);
            totals.add(&row.billed_measures, billed);
        }
        let not_added = &totals.not_added;
        totals.measures.retain(|name, _| !not_added.contains(name));
        totals
    }

    fn add(&mut self, measures: &[Measure], amounts: Amounts) {
        for Measure { measure, quantity } in measures {
            match quantity.as_i64() {
                Some(quantity) => {
                    let total = self.measures.entry(measure.clone()).or_default();
                    total.add(quantity.into(), amounts);
                }
                None => _ = self.not_added.insert(measure.clone()),
            }
        }
    }
}

impl Amounts {
    /// Adds others so many times.
    fn add(&mut self, times: i128, others: Self) {
        self.used += others.used.saturating_mul(times);
        self.billed += others.billed.saturating_mul(times);
        self.skipped += others.skipped.saturating_mul(times);
        self.unanswered += others.unanswered.saturating_mul(times);
        self.difference = self.used - self.billed - self.skipped;
    }
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
    /// Puts everything in order, and judges. With `strict`, what is worth knowing is wrong, too.
    pub fn of(mut spans: Vec<Row>, events: Vec<Contradiction>, strict: bool) -> Self {
        spans.sort_by_key(|row| (row.line.unwrap_or(u64::MAX), row.start));
        let totals = Totals::of(&spans);
        let is_enough = !strict || totals.noted == 0;
        Self {
            fits: totals.wrong == 0 && events.is_empty() && is_enough,
            totals,
            events,
            spans,
        }
    }
}

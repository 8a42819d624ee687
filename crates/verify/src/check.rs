//! Whether each millisecond of one span is billed once.
//!
//! The span is compared with the events first. Its usages are checked one after the other, and what they cover
//! is kept: a span may have any number of them. At the end each millisecond must be covered once, by a usage or
//! by what is excluded.

mod coverage;
mod progress;

use std::collections::HashSet;

use serde::Serialize;

use crate::api::{Entry, Excluded, Interval, Span};
use crate::finding::{Finding, FindingKind};
use crate::history::Used;
use crate::moment::{Granularity, HOUR, InWords, Millis};
use crate::quantity::{self, Measure, Quantity};
use coverage::Coverage;

/// How many findings of one kind about one span are kept. One limit for all would hide a fault behind
/// usages that were skipped.
const FINDINGS_MAX: usize = 20;

/// The answers by which an upstream accepts a usage.
const ACCEPTED: [u16; 4] = [200, 201, 202, 204];

/// The measure that each usage has beside those of its event: for how long, in ms.
const DURATION: &str = "duration";

#[derive(Clone, Copy, Debug)]
pub struct Policy {
    pub now: Millis,
    /// The windows that no usage crosses; those of a month where it is not known, because they hold for
    /// every granularity.
    pub granularity: Option<Granularity>,
    /// How long sampling may take, and clocks may differ, in ms.
    pub allowance: Millis,
    /// For how long a usage is in the ledger at least, in ms.
    pub kept: Millis,
}

impl Policy {
    fn windows(&self) -> Granularity {
        self.granularity.unwrap_or(Granularity::Month)
    }

    /// How late a usage may be that is due at a given time, in ms: the length of its window and an
    /// hour. Where the window is not known, that of a day, which workers have by default.
    fn allowed_delay(&self, due: Millis) -> Millis {
        let windows = self.granularity.unwrap_or(Granularity::Day);
        let last = due.saturating_sub(1);
        let end = windows.boundary_after(last);
        let window = end.saturating_sub(windows.boundary(last));
        window.saturating_add(HOUR).max(self.allowance)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    pub amounts: Amounts,
    /// The findings, in order; at most [`FINDINGS_MAX`] of each kind.
    pub findings: Vec<Finding>,
    /// How many findings there were beyond those.
    pub more: usize,
    /// A usage is in the ledger, and not noted on its span yet.
    is_under_way: bool,
}

/// Milliseconds of one span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Amounts {
    /// How long the usage lasted, as far as it is billed by now.
    pub used: i128,
    /// The amount that was accepted, with that of usages that have expired.
    pub billed: i128,
    /// The amount that an operator skipped.
    pub skipped: i128,
    /// The part of `skipped` that the upstream may count, because a post had no answer.
    pub unanswered: i128,
    /// Used, and neither billed nor skipped; negative where too much is billed.
    pub difference: i128,
    /// How many usages were read.
    pub usages: u64,
    /// The part of `billed` that only the span says, because its usages have expired.
    pub expired: i128,
}

impl Verdict {
    /// A verdict that says nothing but this.
    pub fn of(finding: Finding) -> Self {
        Self {
            amounts: Amounts::default(),
            findings: vec![finding],
            more: 0,
            is_under_way: false,
        }
    }

    pub fn fits(&self) -> bool {
        self.first_wrong().is_none()
    }

    pub fn first_wrong(&self) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.kind.is_wrong())
    }

    /// Whether a later reading may give another verdict: programs continue while one reads.
    pub fn may_settle(&self) -> bool {
        self.is_under_way || !self.fits()
    }
}

/// The check of one span while its usages are read.
#[derive(Debug)]
pub struct SpanCheck<'a> {
    policy: &'a Policy,
    span: &'a Span,
    used: Option<&'a Used>,
    findings: Vec<Finding>,
    more: usize,
    ids: HashSet<String>,
    coverage: Coverage,
    /// The signed durations of the usages.
    billed: i128,
    is_under_way: bool,
}

impl<'a> SpanCheck<'a> {
    /// Begins with what the span says, and what the events say about it.
    pub fn new(span: &'a Span, used: Option<&'a Used>, policy: &'a Policy) -> Self {
        let mut check = Self {
            policy,
            span,
            used,
            findings: Vec::new(),
            more: 0,
            ids: HashSet::new(),
            coverage: Coverage::of(span),
            billed: 0,
            is_under_way: false,
        };
        if let Some(used) = used {
            check.compare(used);
        } else {
            let detail = format!("no event explains the span {}", span.id);
            check.find(FindingKind::SpanWithoutEvents, detail);
        }
        check.check_state();
        check.check_proof();
        check.note_ranges();
        check
    }

    fn find(&mut self, kind: FindingKind, detail: impl Into<String>) {
        self.push(Finding::new(kind, detail));
    }

    fn find_in(&mut self, entry: &Entry, kind: FindingKind, detail: impl Into<String>) {
        self.push(Finding {
            usage: Some(entry.id.clone()),
            ..Finding::new(kind, detail)
        });
    }

    fn push(&mut self, finding: Finding) {
        let of_kind = self.findings.iter();
        let of_kind = of_kind.filter(|other| other.kind == finding.kind);
        if of_kind.count() < FINDINGS_MAX {
            self.findings.push(finding);
        } else {
            self.more += 1;
        }
    }

    fn compare(&mut self, used: &Used) {
        let (span, line) = (self.span, used.line);
        let mut differs = |detail| self.find(FindingKind::Differs, detail);
        if let Some((name, ours, theirs)) = used.target.difference(&span.target) {
            differs(format!(
                "line {line} has the {name} {ours:?}, the span has {theirs:?}"
            ));
        }
        if used.start != span.start {
            let (ours, theirs) = (InWords(used.start), InWords(span.start));
            differs(format!(
                "line {line} starts at {ours}, the span at {theirs}"
            ));
        }
        if let Some(name) = quantity::difference(&used.measures, &span.measured_usage) {
            differs(format!("the measure {name:?} is not what line {line} says"));
        }
        if used.end != span.end {
            let [ours, theirs] = [used.end, span.end].map(|end| match end {
                Some(end) => format!("at {}", InWords(end)),
                None => "not at all".to_owned(),
            });
            differs(format!(
                "by the events it stops {ours}, by the span {theirs}"
            ));
        }
    }

    fn check_state(&mut self) {
        let span = self.span;
        let wrong = match span.state.as_str() {
            "open" if span.end.is_some() => "it has an end",
            "stopped" | "complete" if span.end.is_none() => "it has no end",
            "complete" if span.end != Some(span.sampled_to) => "it is not sampled to its end",
            "open" | "stopped" | "complete" => return,
            "suspended" => {
                let detail = "suspended: needs an action by an operator";
                return self.find(FindingKind::Suspended, detail);
            }
            _ => "the state is unknown",
        };
        let detail = format!("the span is {:?}, but {wrong}", span.state);
        self.find(FindingKind::Proof, detail);
    }

    /// What the span says about itself must fit its ranges.
    fn check_proof(&mut self) {
        let (span, proof) = (self.span, self.span.proof);
        let used = i128::from(span.sampled_to) - i128::from(span.start);
        let ranges = || span.excluded.iter().chain(&span.again);
        let skipped: i128 = ranges().map(|it| it.interval().length()).sum();
        let unanswered = ranges().filter(|it| it.unanswered);
        let unanswered: i128 = unanswered.map(|it| it.interval().length()).sum();
        for (name, says, is) in [
            ("used", proof.used, used),
            ("skipped", proof.skipped, skipped),
            ("unanswered", proof.unanswered, unanswered),
            ("billed", proof.billed, used - skipped),
        ] {
            if i128::from(says) != is {
                let detail = format!("the proof says {name} {says}, the span gives {is}");
                self.find(FindingKind::Proof, detail);
            }
        }
        let difference = proof.difference.filter(|it| *it != 0 && unanswered == 0);
        if let Some(difference) = difference {
            let detail = format!("the proof says that its ledger differs by {difference} ms");
            self.find(FindingKind::Proof, detail);
        }
    }

    /// What does not count is worth knowing.
    fn note_ranges(&mut self) {
        for range in &self.span.excluded {
            let detail = format!("an operator skipped {}", words_of(range));
            if range.unanswered {
                let detail =
                    format!("{detail}; a post had no answer, so the upstream may count it");
                self.find(FindingKind::Unanswered, detail);
            } else {
                self.find(FindingKind::Skipped, detail);
            }
        }
        for range in &self.span.again {
            let detail = format!("{} is sent again", words_of(range));
            self.find(FindingKind::Behind, detail);
        }
    }

    /// Takes the next usage of the ledger.
    pub fn entry(&mut self, entry: &Entry) {
        if !self.ids.insert(entry.id.clone()) {
            return self.find_in(entry, FindingKind::Overlap, "the usage is repeated");
        }
        if entry.span != self.span.id {
            let detail = format!("the usage belongs to the span {}", entry.span);
            self.find_in(entry, FindingKind::WrongUsage, detail);
        }
        self.check_interval(entry);
        self.compare_quantities(entry);
        if let Some(status) = entry.status.filter(|it| !ACCEPTED.contains(it)) {
            let detail = format!("it counts as accepted, but the upstream answered {status}");
            self.find_in(entry, FindingKind::WrongUsage, detail);
        }
        if self.is_planned(entry) {
            let detail = format!("the usage {} is not noted yet", entry.id);
            self.is_under_way = true;
            return self.find(FindingKind::Behind, detail);
        }
        self.billed += i128::from(entry.duration);
        self.coverage.bill(entry.interval);
    }

    /// Whether the usage is the next one of the span: it is recorded before the span says so.
    fn is_planned(&self, entry: &Entry) -> bool {
        let Interval { start, end } = entry.interval;
        self.span.planned.as_ref().is_some_and(|planned| {
            (planned.start, planned.end) == (start, end) && planned.usage_id == entry.id
        })
    }

    /// A usage by itself: duration, timestamp, window.
    fn check_interval(&mut self, entry: &Entry) {
        let Interval { start, end } = entry.interval;
        let (from, to) = (InWords(start), InWords(end));
        let windows = self.policy.windows();
        let length = i128::from(end) - i128::from(start);
        let mut wrong = |detail| self.find_in(entry, FindingKind::WrongUsage, detail);
        if i128::from(entry.duration) != length {
            let duration = entry.duration;
            wrong(format!(
                "its duration is {duration} ms, from {from} to {to} are {length}"
            ));
        }
        if length == 0 {
            return wrong(format!("it covers no time, at {from}"));
        }
        if !(start.min(end)..start.max(end)).contains(&entry.timestamp) {
            let timestamp = InWords(entry.timestamp);
            wrong(format!(
                "its timestamp {timestamp} is not between {from} and {to}"
            ));
        }
        if windows.is_crossed(start, end) {
            let name = windows.name();
            wrong(format!(
                "from {from} to {to} it crosses a boundary between windows of a {name}"
            ));
        }
    }

    /// A usage bills the quantities of its start event, for as long as it says.
    fn compare_quantities(&mut self, entry: &Entry) {
        let of_event = self.used.map(|used| &used.measures);
        let mut ours = of_event.unwrap_or(&self.span.measured_usage).clone();
        ours.push(Measure {
            measure: DURATION.to_owned(),
            quantity: Quantity::Integer(entry.duration.into()),
        });
        let Some(name) = quantity::difference(&ours, &entry.measured_usage) else {
            return;
        };
        let [is, should] = [&entry.measured_usage, &ours].map(|measures| {
            let found = measures.iter().find(|measure| measure.measure == name);
            found.map_or_else(|| "absent".to_owned(), |found| found.quantity.to_string())
        });
        let detail = format!("the measure {name:?} of the usage is {is}, and should be {should}");
        self.find_in(entry, FindingKind::WrongUsage, detail);
    }
}

fn words_of(range: &Excluded) -> String {
    let Interval { start, end } = range.interval();
    let length = range.interval().length();
    let error = range.error.as_ref().map(|error| format!(" ({error})"));
    format!(
        "{length} ms from {} to {}{}",
        InWords(start),
        InWords(end),
        error.unwrap_or_default()
    )
}

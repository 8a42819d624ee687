//! Whether each millisecond of one span is billed once.
//!
//! The span is compared with the events first. Its usages are taken one after the other, in any order, and what they
//! cover is kept. At the end each millisecond must be covered once, by a usage or by what is excluded.

use std::collections::HashSet;

use serde_json::json;

use crate::Target;
use crate::api::{Entry, Span};
use crate::coverage::Coverage;
use crate::history::Used;
use crate::moment::{DAY, Granularity, HOUR, InWords, Millis};
use crate::quantity::{self, Measure};
use crate::report::{FindingKind, Row};

/// The answers by which an upstream accepts a usage.
const ACCEPTED: [u16; 4] = [200, 201, 202, 204];
/// The measure that each usage has beside those of its event: for how long, in ms.
const DURATION: &str = "duration";

#[derive(Clone, Copy, Debug)]
pub struct Policy {
    pub now: Millis,
    /// The windows that no usage crosses. Where they are not known, those of a month hold for every granularity.
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
}

/// The check of one span while its usages are read.
#[derive(Debug)]
pub struct SpanCheck<'a> {
    policy: &'a Policy,
    span: &'a Span,
    used: Option<&'a Used>,
    row: Row,
    ids: HashSet<String>,
    coverage: Coverage,
    /// The measures of a usage; its duration is the last.
    measures: Vec<Measure>,
}

impl<'a> SpanCheck<'a> {
    /// Begins with what the span says, and what the events say about it.
    pub fn new(span: &'a Span, used: Option<&'a Used>, policy: &'a Policy) -> Self {
        let mut row = Row::new(span, used);
        compare(&mut row, span, used);
        check_state(&mut row, span);
        check_proof(&mut row, span);
        let measures = used.map(|used| used.measures.clone());
        let mut measures = measures.unwrap_or_else(|| span.measured_usage.clone());
        measures.push(Measure {
            measure: DURATION.to_owned(),
            quantity: json!(0),
        });
        Self {
            policy,
            span,
            used,
            row,
            ids: HashSet::new(),
            coverage: Coverage::of(span),
            measures,
        }
    }

    /// Takes a usage of the ledger. Nothing but its id is kept of one that follows another without a gap.
    pub fn entry(&mut self, entry: &Entry) {
        if !self.ids.insert(entry.id.clone()) {
            let detail = format!("the usage {} is repeated", entry.id);
            return self.row.find(FindingKind::Overlap, detail);
        }
        for what in [self.fault(entry), self.fault_of_measures(entry)]
            .into_iter()
            .flatten()
        {
            let detail = format!("usage {}: {what}", entry.id);
            self.row.find(FindingKind::WrongUsage, detail);
        }
        self.row.amounts.billed += i128::from(entry.duration);
        self.coverage.bill(entry.interval);
    }

    /// Whose usage it is, what was answered, for how long it is, and when: the first that is wrong.
    fn fault(&self, entry: &Entry) -> Option<String> {
        let (interval, duration, windows) = (entry.interval, entry.duration, self.policy.windows());
        let (first, last) = interval.bounds();
        let refusal = entry.status.filter(|status| !ACCEPTED.contains(status));
        let what = if entry.span != self.span.id {
            format!("it belongs to the span {}", entry.span)
        } else if let Some(status) = refusal {
            format!("the upstream answered {status}, which refuses it")
        } else if i128::from(duration) != interval.length() || duration == 0 {
            format!("its duration is {duration} ms, and its interval {interval}")
        } else if !(first..last).contains(&entry.timestamp) {
            let timestamp = InWords(entry.timestamp);
            format!("its timestamp {timestamp} is not in its {interval}")
        } else if last > windows.window(first).end {
            format!("its {interval} are in two windows ({windows:?})")
        } else {
            return None;
        };
        Some(what)
    }

    /// A usage bills the quantities of its start event, for as long as it says.
    fn fault_of_measures(&mut self, entry: &Entry) -> Option<String> {
        self.measures.last_mut()?.quantity = json!(entry.duration);
        let name = quantity::difference(&self.measures, &entry.measured_usage)?;
        let [should, is] = [&self.measures, &entry.measured_usage].map(|measures| {
            let found = measures.iter().find(|measure| measure.measure == name);
            found.map_or_else(|| "absent".to_owned(), |found| found.quantity.to_string())
        });
        Some(format!("its {name:?} is {is}, and should be {should}"))
    }

    /// Judges the span, once all usages were taken.
    pub fn finish(mut self) -> Row {
        let is_overdue = self.check_progress();
        let settled = self.check_coverage();
        note_ranges(&mut self.row, self.span);
        let (span, now) = (self.span, self.policy.now);
        let used = self.used.map_or(0, |used| {
            // Up to where it is sampled; up to the stop, where that is to be in effect.
            let is_due = |end: &Millis| span.state == "complete" || (is_overdue && *end <= now);
            let until = used.end.filter(is_due).unwrap_or(span.sampled_to);
            i128::from(until) - i128::from(used.start)
        });
        let row = &mut self.row;
        row.usages = self.ids.len() as u64;
        row.amounts.used = used;
        row.amounts.billed += row.expired;
        row.amounts.skipped = i128::from(span.proof.skipped) - settled;
        row.amounts.unanswered = span.proof.unanswered.into();
        row.amounts.difference = used - row.amounts.billed - row.amounts.skipped;
        self.row
    }

    /// Whether sampling is where it should be by now. Returns whether it is overdue.
    fn check_progress(&mut self) -> bool {
        let (Policy { now, allowance, .. }, span) = (*self.policy, self.span);
        let (sampled_to, end) = (span.sampled_to, self.used.map_or(span.end, |used| used.end));
        let billed_to = InWords(sampled_to);
        if sampled_to > now.saturating_add(allowance) {
            let detail = format!("billed to {billed_to}: that is in the future");
            self.row.find(FindingKind::Behind, detail);
        }
        // What is billed beyond the end is to be taken back at once.
        let boundary = self.policy.windows().window(sampled_to).end;
        let due = end.map_or(boundary, |end| end.min(boundary));
        let late = now.saturating_sub(due);
        if end == Some(sampled_to) || late < allowance {
            return false;
        }
        // What a suspended span lacks is known, and waits for an operator. What it has too much is not.
        let is_excused = span.state == "suspended" && end.is_none_or(|end| sampled_to <= end);
        let window = self.policy.granularity.map_or(DAY, Granularity::length);
        let is_overdue = late > (window + HOUR).max(allowance) && !is_excused;
        let kind = [FindingKind::Behind, FindingKind::Overdue][usize::from(is_overdue)];
        let detail = format!("billed to {billed_to}, and due to {}", InWords(due));
        self.row.find(kind, detail);
        is_overdue
    }

    /// Each millisecond up to where sampling is must be covered once, and is judged once. Returns how much counts
    /// although the span says otherwise.
    fn check_coverage(&mut self) -> i128 {
        let oldest = self.policy.now.saturating_sub(self.policy.kept);
        let (row, mut settled) = (&mut self.row, 0);
        for (stretch, kind, times) in self.coverage.stretches(oldest) {
            let length = stretch.length() * i128::from(times);
            match kind {
                FindingKind::Expired => row.expired += length,
                FindingKind::Unanswered => settled += length,
                FindingKind::Gap => row.find(kind, format!("nothing covers {stretch}")),
                _ => row.find(kind, format!("covered twice, or not used: {stretch}")),
            }
        }
        if row.expired != 0 {
            let detail = format!("only the span says that {} ms are billed", row.expired);
            row.find(FindingKind::Expired, detail);
        }
        settled
    }
}

/// What the span says must be what the events say.
fn compare(row: &mut Row, span: &Span, used: Option<&Used>) {
    let Some(used) = used else {
        let detail = format!("no event explains the span {}", span.id);
        return row.find(FindingKind::SpanWithoutEvents, detail);
    };
    let ids = used.target.ids().into_iter().zip(span.target.ids());
    let ids = Target::FIELDS.into_iter().zip(ids);
    let differing = ids.filter_map(|(name, (ours, theirs))| (ours != theirs).then_some(name));
    let start = (used.start != span.start).then_some("start");
    let end = (used.end != span.end).then_some("end");
    let measure = quantity::difference(&used.measures, &span.measured_usage);
    for name in differing.chain(start).chain(end).chain(measure) {
        let detail = format!("line {} says another {name} than the span", used.line);
        row.find(FindingKind::Differs, detail);
    }
}

fn check_state(row: &mut Row, span: &Span) {
    let (state, end, sampled_to) = (span.state.as_str(), span.end, Some(span.sampled_to));
    let fits = match state {
        "open" => end.is_none(),
        "stopped" => end.is_some(),
        "complete" => end == sampled_to,
        _ => state == "suspended",
    };
    if !fits {
        let detail = format!("{state:?} does not fit the end {end:?}, sampled to {sampled_to:?}");
        row.find(FindingKind::Proof, detail);
    }
}

/// What the span says about itself must fit its ranges.
fn check_proof(row: &mut Row, span: &Span) {
    let proof = span.proof;
    let used = i128::from(span.sampled_to) - i128::from(span.start);
    let skipped: i128 = span.ranges().map(|it| it.interval().length()).sum();
    let unanswered = span.ranges().filter(|it| it.unanswered);
    let unanswered: Vec<i128> = unanswered.map(|it| it.whole().length()).collect();
    // Where a range is unanswered, its usage may be in the ledger.
    let difference = proof.difference.filter(|_| unanswered.is_empty());
    for (name, says, is) in [
        ("used", proof.used, used),
        ("skipped", proof.skipped, skipped),
        ("unanswered", proof.unanswered, unanswered.iter().sum()),
        ("billed", proof.billed, used - skipped),
        ("difference", difference.unwrap_or(0), 0),
    ] {
        if i128::from(says) != is {
            let detail = format!("the proof says {name} {says}, the span gives {is}");
            row.find(FindingKind::Proof, detail);
        }
    }
}

/// What does not count, and what waits for an operator, is worth knowing.
fn note_ranges(row: &mut Row, span: &Span) {
    if span.state == "suspended" {
        row.find(FindingKind::Suspended, "needs an action by an operator");
    }
    for range in &span.excluded {
        let mut detail = format!("an operator skipped {}", range.interval());
        let mut kind = FindingKind::Skipped;
        if range.unanswered {
            kind = FindingKind::Unanswered;
            detail += "; a post had no answer, so the upstream may count it";
        }
        row.find(kind, detail);
    }
    for range in &span.again {
        let detail = format!("sent again: {}", range.interval());
        row.find(FindingKind::Behind, detail);
    }
}

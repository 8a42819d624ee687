//! Ledgers as they should be, cut by an implementation that knows fixed windows only.

use sampler_verify::api::{Entry, Excluded, Interval, Proof, Span};
use sampler_verify::moment::{DAY, Millis};
use sampler_verify::quantity::Measure;
use sampler_verify::{FindingKind, Granularity, Policy, Row, SpanCheck, Target, Used};
use serde_json::json;

/// 2026-11-22T13:00:00Z.
pub(crate) const NOW: Millis = 1_795_352_400_000;

/// A span with its usages.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    pub(crate) span: Span,
    pub(crate) entries: Vec<Entry>,
}

pub(crate) fn policy() -> Policy {
    Policy {
        now: NOW,
        granularity: Some(Granularity::Hour),
        allowance: 600_000,
        kept: 32 * DAY,
    }
}

pub(crate) fn measure(name: &str, quantity: Millis) -> Measure {
    Measure {
        measure: name.to_owned(),
        quantity: json!(quantity),
    }
}

pub(crate) fn kinds(row: &Row) -> Vec<FindingKind> {
    row.findings.iter().map(|finding| finding.kind).collect()
}

pub(crate) fn used(start: Millis, end: Option<Millis>) -> Used {
    let target = ["o", "s", "c", "postgres", "large", "db"].map(str::to_owned);
    Used {
        target: Target::from_ids(target),
        measures: vec![measure("memory", 512)],
        start,
        end,
        start_id: Some("started".to_owned()),
        end_id: end.map(|_| "stopped".to_owned()),
        line: 1,
    }
}

/// The bill of a usage by windows of `window` ms. A late stop is billed up to the boundary behind
/// it, and taken back. What continues is billed up to the last boundary before `now`.
pub(crate) fn bill(used: &Used, window: Millis, is_late: bool, now: Millis) -> Ledger {
    let boundary_after = |at: Millis| (at.div_euclid(window) + 1) * window;
    let until = match used.end {
        Some(end) if is_late && end > used.start => boundary_after(end - 1).max(end),
        Some(end) => end,
        None => (now.div_euclid(window) * window).max(used.start),
    };
    let mut intervals = Vec::new();
    let mut at = used.start;
    while at < until {
        let next = boundary_after(at).min(until);
        intervals.push((at, next));
        at = next;
    }
    while used.end.is_some_and(|end| at > end) {
        let next = ((at - 1).div_euclid(window) * window).max(used.end.unwrap());
        intervals.push((at, next));
        at = next;
    }
    ledger(used, &intervals)
}

/// A ledger of these intervals, all accepted.
pub(crate) fn ledger(used: &Used, intervals: &[(Millis, Millis)]) -> Ledger {
    let id = format!("{}-{}", used.target.resource_instance_id, used.start);
    let entries: Vec<Entry> = (0_u128..)
        .zip(intervals)
        .map(|(number, interval)| entry(&id, number, *interval, &used.measures))
        .collect();
    let sampled_to = intervals.last().map_or(used.start, |(_, end)| *end);
    let state = used.end.map_or("open", |_| "complete");
    let span = Span {
        id,
        target: used.target.clone(),
        measured_usage: used.measures.clone(),
        start: used.start,
        end: used.end,
        state: state.to_owned(),
        start_event_id: used.start_id.clone(),
        sampled_to,
        excluded: Vec::new(),
        again: Vec::new(),
        proof: Proof {
            used: sampled_to - used.start,
            billed: sampled_to - used.start,
            skipped: 0,
            unanswered: 0,
            difference: None,
        },
    };
    Ledger { span, entries }
}

/// A usage of a span with these measures.
fn entry(span: &str, number: u128, (start, end): (Millis, Millis), measures: &[Measure]) -> Entry {
    let digits = format!("{number:032x}");
    Entry {
        id: format!("{}-{}", &digits[..8], &digits[8..]),
        span: span.to_owned(),
        interval: Interval { start, end },
        timestamp: (start + end).div_euclid(2),
        duration: end - start,
        status: Some(202),
        measured_usage: posted(measures, end - start),
    }
}

/// What a usage bills: the measures of its start event, and how long.
pub(crate) fn posted(measures: &[Measure], duration: Millis) -> Vec<Measure> {
    let duration = measure("duration", duration);
    measures.iter().cloned().chain([duration]).collect()
}

impl Ledger {
    /// A usage of the span, accepted.
    pub(crate) fn usage(&self, number: u128, interval: (Millis, Millis)) -> Entry {
        entry(&self.span.id, number, interval, &self.span.measured_usage)
    }

    /// An operator skips a usage: the ledger has none of that time, and the span says so.
    pub(crate) fn skip(&mut self, place: usize) {
        let Interval { start, end } = self.entries.remove(place).interval;
        self.span.excluded.push(Excluded {
            start,
            end,
            back_to: None,
            unanswered: false,
        });
        let proof = &mut self.span.proof;
        proof.billed -= end - start;
        proof.skipped += end - start;
    }

    /// The same, and a post of it had no answer.
    pub(crate) fn skip_unanswered(&mut self, place: usize) {
        self.skip(place);
        let range = self.span.excluded.last_mut().unwrap();
        range.unanswered = true;
        self.span.proof.unanswered += range.end - range.start;
    }

    /// An operator sends again what was skipped last.
    pub(crate) fn resend(&mut self) {
        let range = self.span.excluded.pop().unwrap();
        self.span.again.push(range);
    }

    /// Sampling ends after so many usages.
    pub(crate) fn cut_off(&mut self, entries: usize) {
        self.entries.truncate(entries);
        let reached = self.entries.last().unwrap().interval.end;
        let length = reached - self.span.start;
        self.span.sampled_to = reached;
        (self.span.proof.used, self.span.proof.billed) = (length, length);
    }

    pub(crate) fn check(&self, used: &Used) -> Row {
        self.check_by(used, &policy())
    }

    pub(crate) fn check_by(&self, used: &Used, policy: &Policy) -> Row {
        let mut check = SpanCheck::new(&self.span, Some(used), policy);
        for entry in &self.entries {
            check.entry(entry);
        }
        check.finish()
    }
}

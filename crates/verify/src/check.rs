//! Whether each millisecond of one span is billed once.
//!
//! A span's usages are read one after the other, and only sums are kept: a span may have any number
//! of them. The span is compared with the events first, then its usages are checked in their order, then
//! the sums.

mod sums;

use std::collections::HashSet;

use serde::Serialize;

use crate::api::{Entry, Interval, Span};
use crate::finding::{Finding, FindingKind};
use crate::history::Used;
use crate::moment::{Granularity, HOUR, InWords, Millis};
use crate::quantity::{self, Measure, Quantity};
use sums::Sums;

/// How many findings of one kind about one span are kept. One limit for all would hide a fault behind
/// usages that were skipped.
const FINDINGS_MAX: usize = 20;

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
    /// The amount that was accepted. For usages that have expired, the proof says it.
    pub billed: i128,
    /// The amount that an operator skipped.
    pub skipped: i128,
    /// The part of `skipped` that the upstream may count, because a post had no answer.
    pub unanswered: i128,
    /// Used, and neither billed nor skipped; negative where too much is billed.
    pub difference: i128,
    /// How many usages were read that are answered for good.
    pub usages: u64,
    /// How many that were accepted have expired.
    pub expired: u64,
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
    /// How many usages were read that are answered for good.
    read: u64,
    /// Where the last usage ended.
    reached: Option<Millis>,
    sums: Sums,
    /// From where on there are usages, where those before have expired.
    expired_until: Option<Millis>,
    /// The usage that is not accepted. None may follow.
    pending: Option<String>,
    /// The last usage that was accepted or skipped.
    last: Option<(String, Interval, Sums)>,
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
            read: 0,
            reached: None,
            sums: Sums::default(),
            expired_until: None,
            pending: None,
            last: None,
            is_under_way: false,
        };
        if let Some(used) = used {
            check.compare(used);
        } else {
            let detail = format!("no event explains the span {}", span.id);
            check.find(FindingKind::SpanWithoutEvents, detail);
        }
        check.check_state();
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

    /// Takes the next usage of the ledger.
    pub fn entry(&mut self, entry: &Entry) {
        if !self.ids.insert(entry.id.clone()) {
            self.find_in(entry, FindingKind::Overlap, "the usage is repeated");
        }
        if entry.span != self.span.id {
            let detail = format!("the usage belongs to the span {}", entry.span);
            self.find_in(entry, FindingKind::WrongUsage, detail);
        }
        if let Some(pending) = &self.pending {
            let detail = format!("it follows {pending}, which is not accepted");
            self.find_in(entry, FindingKind::WrongUsage, detail);
        }
        self.check_interval(entry);
        self.compare_quantities(entry);
        self.follow(entry);
        self.account(entry);
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

    /// A usage begins where the one before it ended, the first one where the proof begins.
    fn follow(&mut self, entry: &Entry) {
        let from = entry.interval.start;
        let reached = self.reached.unwrap_or(self.span.proof.since);
        if from == reached {
            return;
        }
        if self.reached.is_none() && self.may_have_expired(from) {
            self.expired_until = Some(from);
            return;
        }
        let (begin, before) = (InWords(from), InWords(reached));
        if from > reached {
            let detail =
                format!("it begins at {begin}, and nothing covers the time since {before}");
            self.find_in(entry, FindingKind::Gap, detail);
        } else {
            let detail = format!("it begins at {begin}, and usages had reached {before} before");
            self.find_in(entry, FindingKind::Overlap, detail);
        }
    }

    /// Whether usages that reached up to `moment` can have expired: never before the span is
    /// complete, and no usage is accepted before its interval is over.
    fn may_have_expired(&self, moment: Millis) -> bool {
        let oldest = self.policy.now.saturating_sub(self.policy.kept);
        self.span.state == "complete" && moment <= oldest
    }

    fn account(&mut self, entry: &Entry) {
        let duration = i128::from(entry.duration);
        let mut one = Sums::default();
        match entry.state.as_str() {
            "accepted" | "counted" => {
                (one.billed, one.accepted) = (duration, 1);
                self.check_status(entry);
            }
            "set_aside" => {
                (one.set_aside, one.accepted) = (duration, 1);
                let detail = format!("the upstream set {duration} ms aside: they are not billed");
                self.find_in(entry, FindingKind::Gap, detail);
            }
            "skipped" => {
                one.skipped = duration;
                let mut detail = format!("an operator skipped {duration} ms");
                let mut kind = FindingKind::Skipped;
                if entry.unanswered {
                    (one.unanswered, kind) = (duration, FindingKind::Unanswered);
                    detail += "; a post had no answer, so the upstream may count them";
                }
                self.find_in(entry, kind, detail);
            }
            "planned" | "refused" => return self.note_pending(entry),
            state => {
                let detail = format!("the state {state:?} is unknown");
                return self.find_in(entry, FindingKind::WrongUsage, detail);
            }
        }
        self.sums.add(&one);
        self.read += 1;
        self.reached = Some(entry.interval.end);
        self.last = Some((entry.id.clone(), entry.interval, one));
    }

    fn check_status(&mut self, entry: &Entry) {
        let status = entry.status;
        if let Some(status) = status.filter(|it| !(200..300).contains(it) && *it != 409) {
            let detail = format!("it counts as accepted, but the upstream answered {status}");
            self.find_in(entry, FindingKind::WrongUsage, detail);
        }
    }

    /// A usage that is not accepted is the planned one of the span, and bills nothing yet.
    fn note_pending(&mut self, entry: &Entry) {
        let Interval { start, end } = entry.interval;
        let is_planned = self.span.planned.as_ref().is_some_and(|planned| {
            (planned.start, planned.end) == (start, end) && planned.usage_id == entry.id
        });
        if !is_planned {
            let detail = "it is not accepted, and not what the span has planned";
            self.find_in(entry, FindingKind::WrongUsage, detail);
        } else if entry.state == "refused" {
            let answer = entry.status.map(|status| format!(" with {status}"));
            let answer = answer.unwrap_or_default();
            let detail = format!("the upstream refuses the usage{answer}");
            self.find_in(entry, FindingKind::Suspended, detail);
        }
        self.pending = Some(entry.id.clone());
    }
}

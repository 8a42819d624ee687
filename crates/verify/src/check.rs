//! Whether each millisecond of one span is billed once.
//!
//! A span's usages are read one after the other, and only sums are kept: a span may have any number
//! of them. The first finding is the first thing that does not fit: the span is compared with the
//! events first, then its usages are checked in their order, then the sums.

mod sums;

use std::collections::HashSet;

use serde::Serialize;

use crate::api::{Entry, Interval, Outcome, Span};
use crate::finding::{Finding, FindingKind};
use crate::history::Used;
use crate::moment::{Granularity, HOUR, InWords, Millis};
use crate::quantity::{self, Measure, Quantity};

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
        let window = windows
            .boundary_after(last)
            .saturating_sub(windows.boundary(last));
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
}

/// Milliseconds of one span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Amounts {
    /// How long the usage lasted, as far as it is billed by now; without what the original billed.
    pub used: i128,
    /// The amount that Abacus accepted. For usages that have expired, the proof says it.
    pub billed: i128,
    /// The amount that an operator skipped.
    pub skipped: i128,
    /// The part of `skipped` that the upstream may count, because a post had no answer.
    pub unanswered: i128,
    /// Used, and neither billed nor skipped; negative where too much is billed.
    pub difference: i128,
    /// How many usages were read that are answered for good.
    pub usages: u64,
    /// How many that Abacus accepted have expired.
    pub expired: u64,
}

impl Verdict {
    pub fn fits(&self) -> bool {
        self.first_wrong().is_none()
    }

    pub fn first_wrong(&self) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.kind.is_wrong())
    }

    /// Whether a later reading may give another verdict: programs continue while one reads.
    pub fn may_settle(&self) -> bool {
        let mut findings = self.findings.iter();
        findings.any(|it| it.kind.is_wrong() || it.kind == FindingKind::NotNotedYet)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    billed: i128,
    skipped: i128,
    /// What of `skipped` had a post without an answer.
    unanswered: i128,
    set_aside: i128,
    /// How many Abacus accepted, also where it set them aside later; those that were skipped do not
    /// count.
    accepted: u64,
}

impl Sums {
    fn all(&self) -> i128 {
        self.billed + self.skipped + self.set_aside
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
    ids: HashSet<Id>,
    /// How many usages were read that are answered for good.
    read: u64,
    /// Where the last usage ended.
    reached: Option<Millis>,
    /// Usages before the proof begins, where the original has sampled in between.
    before: Sums,
    /// Usages since the proof begins.
    since: Sums,
    /// Whether a usage that begins where the proof does was read.
    is_since: bool,
    /// From where on there are usages, where those before have expired.
    expired_until: Option<Millis>,
    /// The usage that is not accepted. None may follow.
    pending: Option<String>,
    /// The last usage that was accepted or skipped.
    last: Option<(String, Interval, Sums)>,
}

/// The id of a usage, which is a GUID unless something is wrong.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Id {
    Guid(u128),
    Other(Box<str>),
}

impl Id {
    fn of(text: &str) -> Self {
        let digits = text.replace('-', "");
        match u128::from_str_radix(&digits, 16) {
            Ok(guid) if digits.len() == 32 => Self::Guid(guid),
            _ => Self::Other(text.into()),
        }
    }
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
            before: Sums::default(),
            since: Sums::default(),
            is_since: false,
            expired_until: None,
            pending: None,
            last: None,
        };
        match used {
            Some(used) => check.compare(used),
            None => check.find(
                FindingKind::SpanWithoutEvents,
                format!("no event explains the span {}", span.id),
            ),
        }
        check.check_state();
        check
    }

    fn find(&mut self, kind: FindingKind, detail: impl Into<String>) {
        self.push(Finding::new(kind, detail));
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
        if let Some((name, ours, theirs)) = used.target.difference(&span.target) {
            let detail = format!("line {line} has the {name} {ours:?}, the span has {theirs:?}");
            self.find(FindingKind::Target, detail);
        }
        if used.start != span.start {
            let (ours, theirs) = (InWords(used.start), InWords(span.start));
            let detail = format!("line {line} starts at {ours}, the span at {theirs}");
            self.find(FindingKind::Start, detail);
        }
        if let Some(name) = quantity::difference(&used.measures, &span.measured_usage) {
            let detail = format!("the measure {name:?} is not what line {line} says");
            self.find(FindingKind::Quantities, detail);
        }
        if used.end != span.end {
            let [ours, theirs] = [used.end, span.end].map(|end| match end {
                Some(end) => format!("at {}", InWords(end)),
                None => "not at all".to_owned(),
            });
            let detail = format!("by the events it stops {ours}, by the span {theirs}");
            self.find(FindingKind::End, detail);
        }
    }

    fn check_state(&mut self) {
        let span = self.span;
        let end = span.end;
        let wrong = match span.state.as_str() {
            "open" if end.is_some() => Some("it has an end"),
            "stopped" | "complete" if end.is_none() => Some("it has no end"),
            "complete" if end != Some(span.sampled_to) => Some("it is not sampled to its end"),
            "open" | "stopped" | "complete" => None,
            "suspended" => {
                self.find(
                    FindingKind::Suspended,
                    "suspended: needs an action by an operator",
                );
                None
            }
            _ => Some("the state is unknown"),
        };
        if let Some(why) = wrong {
            self.find(
                FindingKind::State,
                format!("the span is {:?}, but {why}", span.state),
            );
        }
    }

    pub fn entry(&mut self, entry: &Entry) {
        if !self.ids.insert(Id::of(&entry.id)) {
            let detail = "the usage is repeated";
            self.push(Finding::about(&entry.id, FindingKind::UsageTwice, detail));
        }
        if entry.span != self.span.id {
            let detail = format!("the usage belongs to the span {}", entry.span);
            self.push(Finding::about(&entry.id, FindingKind::OtherSpan, detail));
        }
        self.check_interval(entry);
        if let Some(pending) = &self.pending {
            let detail = format!("it follows {pending}, which is not accepted");
            self.push(Finding::about(&entry.id, FindingKind::Planned, detail));
        }
        self.follow(entry);
        self.account(entry);
        self.compare_quantities(entry);
    }

    /// A usage by itself: duration, timestamp, window.
    fn check_interval(&mut self, entry: &Entry) {
        let Interval { start, end } = entry.interval;
        let (from, to) = (InWords(start), InWords(end));
        let (id, windows) = (&entry.id, self.policy.windows());
        let length = i128::from(end) - i128::from(start);
        if i128::from(entry.duration) != length {
            let duration = entry.duration;
            let detail = format!("its duration is {duration} ms, from {from} to {to} are {length}");
            self.push(Finding::about(id, FindingKind::Duration, detail));
        }
        if length == 0 {
            let detail = format!("it covers no time, at {from}");
            self.push(Finding::about(id, FindingKind::EmptyInterval, detail));
            return;
        }
        let is_within = start.min(end) <= entry.timestamp && entry.timestamp < start.max(end);
        if !is_within {
            let timestamp = InWords(entry.timestamp);
            let detail = format!("its timestamp {timestamp} is not between {from} and {to}");
            self.push(Finding::about(id, FindingKind::Timestamp, detail));
        }
        if windows.is_crossed(start, end) {
            let name = windows.name();
            let detail =
                format!("from {from} to {to} it crosses a boundary between windows of a {name}");
            self.push(Finding::about(id, FindingKind::CrossesBoundary, detail));
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
        if let Some(name) = quantity::difference(&ours, &entry.measured_usage) {
            let [is, should] = [&entry.measured_usage, &ours].map(|measures| {
                let found = measures.iter().find(|measure| measure.measure == name);
                found.map_or_else(|| "absent".to_owned(), |found| found.quantity.to_string())
            });
            let detail =
                format!("the measure {name:?} of the usage is {is}, and should be {should}");
            self.push(Finding::about(
                &entry.id,
                FindingKind::UsageQuantities,
                detail,
            ));
        }
    }

    /// A usage begins where the one before it ended, the first one where the span starts.
    fn follow(&mut self, entry: &Entry) {
        let from = entry.interval.start;
        let begins_proof = from == self.span.proof.since && !self.is_since;
        let detail = match self.reached {
            Some(reached) if reached == from => return self.begin_proof_at(from),
            _ if begins_proof => return self.begin_proof_at(from),
            Some(reached) => {
                let (from, reached) = (InWords(from), InWords(reached));
                format!("it begins at {from}, but the usage before it ended at {reached}")
            }
            None if from == self.span.start => return,
            None if self.may_have_expired(from) => {
                self.expired_until = Some(from);
                return;
            }
            None => {
                let (from, since) = (InWords(from), InWords(self.span.proof.since));
                format!("the first usage begins at {from} instead of {since}")
            }
        };
        self.push(Finding::about(&entry.id, FindingKind::NotAdjacent, detail));
    }

    /// The sums begin where the proof begins: usages that were read before are from before the
    /// original Sampler continued the span.
    fn begin_proof_at(&mut self, moment: Millis) {
        if moment != self.span.proof.since || self.is_since {
            return;
        }
        self.is_since = true;
        if moment != self.span.start {
            self.before = std::mem::take(&mut self.since);
            self.expired_until = None;
        }
    }

    /// Whether usages that reached up to `moment` can have expired: never before the span is
    /// complete, and no usage is accepted before its interval is over.
    fn may_have_expired(&self, moment: Millis) -> bool {
        let oldest = self.policy.now.saturating_sub(self.policy.kept);
        self.span.state == "complete" && moment <= oldest
    }

    fn account(&mut self, entry: &Entry) {
        let Some(outcome) = entry.outcome() else {
            let detail = format!("the state {:?} is unknown", entry.state);
            self.push(Finding::about(&entry.id, FindingKind::UnknownState, detail));
            return;
        };
        let duration = i128::from(entry.duration);
        let mut one = Sums::default();
        match outcome {
            Outcome::Pending | Outcome::Refused => return self.note_pending(entry, outcome),
            Outcome::Billed => {
                (one.billed, one.accepted) = (duration, 1);
                self.check_status(entry);
            }
            Outcome::SetAside => {
                (one.set_aside, one.accepted) = (duration, 1);
                let detail = format!("the upstream set {duration} ms aside: they are not billed");
                self.push(Finding::about(&entry.id, FindingKind::SetAside, detail));
            }
            Outcome::Skipped => {
                one.skipped = duration;
                let mut detail = format!("an operator skipped {duration} ms");
                let kind = if entry.unanswered {
                    one.unanswered = duration;
                    detail += "; a post had no answer, so the upstream may count them";
                    FindingKind::Unanswered
                } else {
                    FindingKind::Skipped
                };
                self.push(Finding::about(&entry.id, kind, detail));
            }
        }
        self.since.add(&one);
        self.read += 1;
        self.reached = Some(entry.interval.end);
        self.last = Some((entry.id.clone(), entry.interval, one));
    }

    fn check_status(&mut self, entry: &Entry) {
        let Some(status) = entry.status else { return };
        if !(200..300).contains(&status) && status != 409 {
            let detail = format!("it counts as accepted, but the upstream answered {status}");
            self.push(Finding::about(&entry.id, FindingKind::NotAccepted, detail));
        }
    }

    /// A usage that is not accepted is the planned one of the span, and bills nothing yet.
    fn note_pending(&mut self, entry: &Entry, outcome: Outcome) {
        let Interval { start, end } = entry.interval;
        let is_planned = self.span.planned.as_ref().is_some_and(|planned| {
            (planned.start, planned.end) == (start, end) && planned.usage_id == entry.id
        });
        if !is_planned {
            let detail = "it is not accepted, and not what the span has planned";
            self.push(Finding::about(&entry.id, FindingKind::Planned, detail));
        } else if outcome == Outcome::Refused {
            let answer = entry.status.map(|status| format!(" with {status}"));
            let detail = format!(
                "the upstream refuses the usage{}",
                answer.unwrap_or_default()
            );
            self.push(Finding::about(&entry.id, FindingKind::Refused, detail));
        }
        self.pending = Some(entry.id.clone());
    }
}

impl Sums {
    fn add(&mut self, other: &Self) {
        self.billed += other.billed;
        self.skipped += other.skipped;
        self.unanswered += other.unanswered;
        self.set_aside += other.set_aside;
        self.accepted += other.accepted;
    }

    fn without(&self, other: &Self) -> Self {
        Self {
            billed: self.billed - other.billed,
            skipped: self.skipped - other.skipped,
            unanswered: self.unanswered - other.unanswered,
            set_aside: self.set_aside - other.set_aside,
            accepted: self.accepted.saturating_sub(other.accepted),
        }
    }
}

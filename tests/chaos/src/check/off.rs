//! What is on no bill: usages that operators have skipped, and that Abacus has set aside.
//!
//! The ledger names them, and only what the rest of the evidence bears out is believed: a skip that an
//! operator has asked for, and a document of Abacus with an error.

use std::collections::{HashMap, HashSet};

use super::hours::hour_of;
use super::{Rule, Violation};
use crate::evidence::{Entry, Evidence};
use crate::history::{ActKind, Record};

/// How far the clocks of two workers may be apart, ms, and how long one may take to note what it learnt:
/// Abacus's clock, which they follow, runs fast.
const CLOCKS_APART: i64 = 5 * 60_000;

/// The usages of each span that are on no bill, and the entries of those that are.
#[derive(Debug, Default)]
pub(super) struct OffBill<'a> {
    by_start: HashMap<&'a str, Vec<&'a Entry>>,
    entries: HashMap<&'a str, &'a Entry>,
}

impl<'a> OffBill<'a> {
    /// Goes through the ledger. What nobody has skipped or set aside breaks a rule.
    pub(super) fn new(evidence: &'a Evidence, violations: &mut Vec<Violation>) -> Self {
        let counted: HashSet<&str> = evidence
            .counted
            .iter()
            .map(|usage| usage.dedup_id.as_str())
            .collect();
        let mut off = Self::default();
        let asked = asked(&evidence.records, ActKind::Skip);
        let resent = resent(evidence);
        let is_refused_late = |entry: &Entry| {
            let is_refused = entry.usage.duration < 0 && entry.usage.status == Some(400);
            is_refused && resent.iter().any(|other| entry.is_part_of(other))
        };
        let aside = evidence.aside.iter().map(|aside| aside.dedup_id.as_str());
        let aside: HashSet<&str> = aside.collect();
        for entry in &evidence.ledger {
            let id = entry.id();
            off.entries.insert(id, entry);
            match entry.usage.state.as_str() {
                _ if entry.withheld => {}
                _ if entry.pending => {
                    let detail = format!("{entry:?}");
                    violations.push(Rule::Unsettled.broken(id, detail));
                }
                _ if is_refused_late(entry) => {}
                "skipped" if !asked.contains(id) => {
                    let detail = format!("{entry:?}, and no operator was told that it is");
                    violations.push(Rule::SkippedOnDemand.broken(id, detail));
                }
                "set_aside" if !aside.contains(id) => {
                    let detail = format!("{entry:?}, and Abacus has not set it aside");
                    violations.push(Rule::PutAside.broken(id, detail));
                }
                _ => {}
            }
            if entry.is_off() && !counted.contains(id) {
                off.by_start.entry(entry.tag()).or_default().push(entry);
            }
        }
        check_withheld(evidence, violations);
        off
    }

    /// Whether in that hour something was taken back before anybody knew that what it is taken from is on
    /// no bill.
    pub(super) fn was_unknown(&self, start: &str, hour: i64, taken_back: &[&str]) -> bool {
        let planned = taken_back
            .iter()
            .filter_map(|id| Some(self.entries.get(id)?.planned_at));
        let Some(planned) = planned.max() else {
            return false;
        };
        self.by_start.get(start).into_iter().flatten().any(|entry| {
            let usage = &entry.usage;
            let is_forward = usage.duration > 0 && hour_of(usage.timestamp) == hour;
            let known_at = entry.set_aside_at.map(|at| at.saturating_add(CLOCKS_APART));
            is_forward && known_at.is_some_and(|at| at >= planned)
        })
    }
}

/// What was not posted because it takes back what is on no bill must do just that.
fn check_withheld(evidence: &Evidence, violations: &mut Vec<Violation>) {
    let mut forward: HashMap<&str, Vec<&Entry>> = HashMap::new();
    let entries = || evidence.ledger.iter();
    for entry in entries().filter(|entry| entry.is_off() && entry.usage.duration > 0) {
        forward.entry(entry.tag()).or_default().push(entry);
    }
    for entry in entries().filter(|entry| entry.withheld) {
        let of_span = forward.get(entry.tag());
        let is_right = entry.usage.duration < 0
            && entry.is_off()
            && of_span.is_some_and(|all| all.iter().any(|other| entry.is_part_of(other)));
        if !is_right {
            let detail = format!("{entry:?} takes back nothing that is on no bill");
            violations.push(Rule::Withheld.broken(entry.id(), detail));
        }
    }
}

/// The usages that operators had sent again. What takes one of them back was withheld until then; if Abacus
/// refuses it, it stays off the bill, and is withheld no more.
fn resent(evidence: &Evidence) -> Vec<&Entry> {
    let asked = asked(&evidence.records, ActKind::Resend);
    let resent = evidence.ledger.iter();
    resent
        .filter(|entry| entry.usage.duration > 0 && asked.contains(entry.id()))
        .collect()
}

/// The usages for which that was asked and done, or may have been done.
fn asked(records: &[Record], kind: ActKind) -> HashSet<&str> {
    let acts = records.iter().filter_map(|record| match record {
        Record::Act(act) if act.kind == kind => Some(act),
        _ => None,
    });
    // 4xx says that nothing was done.
    let asked = acts.filter(|act| !act.answer.is_refused());
    asked.filter_map(|act| act.usage.as_deref()).collect()
}

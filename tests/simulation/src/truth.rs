//! What really happened, noted at that moment in the store and in the stand-in, behind all faults.
//! The law is checked at every change, not only at the end.

mod plans;
mod upstream;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

use sampler_domain::{
    CauseId, Change, Entry, EntryState, Resent, Span, SpanId, Target, Timestamp, Usage,
};

use uuid::Uuid;

use super::op::Kind;
use super::posts::Post;
use super::windows::Windows;
use super::world::World;
use crate::calendar::MINUTE;

pub(crate) use plans::{Plan, Plans};

/// All that happened so far.
#[derive(Default)]
pub(crate) struct Truth(Mutex<Facts>);

#[derive(Default)]
pub(crate) struct Facts {
    /// Every interval that was ever planned.
    pub(crate) plans: Plans,
    /// Signed durations that count upstream, by span.
    pub(crate) sums: BTreeMap<SpanId, i64>,
    incomplete: BTreeSet<SpanId>,
    /// What counts in each window of a span.
    pub(crate) windows: Windows,
    /// Every post, by the id of its usage.
    pub(crate) posts: BTreeMap<String, Vec<Post>>,
    /// Every entry of the ledger that was ever written, by the id of its usage.
    pub(crate) entries: BTreeMap<String, Entry>,
    /// Spans that were cleaned up.
    pub(crate) removed: Vec<Span>,
    /// Every start and stop that was kept.
    pub(crate) kept: Vec<KeptEvent>,
    /// Writes that were refused, by what they carry.
    refused: BTreeSet<String>,
    /// Ids of usages that Abacus has refused.
    refused_usages: BTreeSet<String>,
    /// Ids of usages that an operator has skipped.
    asked_to_skip: BTreeSet<String>,
    /// The acts of the resends that spans count.
    resent: BTreeSet<Uuid>,
    /// When entries that have expired were removed last.
    expired_removed_at: Option<Timestamp>,
    /// When the ledger last noted that a usage was set aside.
    pub(crate) aside_at: BTreeMap<String, Timestamp>,
    /// How often it did.
    asides_noted: BTreeMap<String, usize>,
    /// Targets of which another span was inserted between the overlap query of a start and its
    /// insert.
    pub(crate) gaps: BTreeSet<Target>,
}

/// A start or a stop that was kept.
pub(crate) struct KeptEvent {
    pub(crate) span: SpanId,
    pub(crate) kind: Kind,
    /// When the command arrived at the store that kept it, and when it was carried out.
    pub(crate) arrived_at: Timestamp,
    pub(crate) kept_at: Timestamp,
    /// What the write carries.
    write: String,
}

impl Truth {
    pub(crate) fn facts(&self) -> MutexGuard<'_, Facts> {
        self.0.lock().expect("nobody panics with it")
    }

    pub(crate) fn all_complete(&self) -> bool {
        self.facts().incomplete.is_empty()
    }
}

impl Facts {
    /// Whether entries that have expired are to be removed now; then they are.
    fn is_time_to_remove(&mut self, now: Timestamp) -> bool {
        let is_time = |last: Timestamp| now.since(last) >= MINUTE;
        let is_time = self.expired_removed_at.is_none_or(is_time);
        if is_time {
            self.expired_removed_at = Some(now);
        }
        is_time
    }
}

impl World {
    /// A span is new in the store.
    pub(crate) fn note_opened(&self, span: &Span) {
        let mut facts = self.truth.facts();
        facts.sums.insert(span.id.clone(), 0);
        facts.incomplete.insert(span.id.clone());
        drop(facts);
        self.note_plan(span);
    }

    /// A start or stop was kept.
    pub(crate) fn note_kept(
        &self,
        write: String,
        arrived_at: Timestamp,
        span: &Span,
        is_stop: bool,
    ) {
        let kind = if is_stop { Kind::Stop } else { Kind::Start };
        if self.truth.facts().refused.contains(&write) {
            let id = &span.id;
            self.report_violation(format!(
                "a {kind:?} of span {id} was refused, and is kept now"
            ));
        }
        self.truth.facts().kept.push(KeptEvent {
            span: span.id.clone(),
            kind,
            arrived_at,
            kept_at: self.now(),
            write,
        });
    }

    /// A start or stop was refused: nothing was kept of it, nor will be.
    pub(crate) fn note_refused(&self, write: String) {
        let is_kept = self
            .truth
            .facts()
            .kept
            .iter()
            .any(|kept| kept.write == write);
        if is_kept {
            self.report_violation(format!(
                "what {write} asks for is kept, and was refused now"
            ));
        }
        self.truth.facts().refused.insert(write);
    }

    /// A span that was inserted may overlap another one of its target: see
    /// `docs/decisions.md#the-previous-span-is-looked-up-before-the-insert`.
    pub(crate) fn note_gap(&self, target: &Target) {
        self.truth.facts().gaps.insert(target.clone());
    }

    /// A change was made of a span; `before` is the span as the change found it.
    pub(crate) fn note_change(&self, before: &Span, change: &Change, after: &Span) {
        match change {
            Change::Plan { .. } => self.note_plan(after),
            Change::Executed { .. } => self.note_executed(before, after),
            Change::Skipped { .. } => self.note_skipped(before, after),
            Change::Resent { resent, .. } => self.note_resent(resent, after),
            Change::Complete => self.note_complete(after),
            Change::Failed {
                suspension: Some(_),
                ..
            } => self.note_suspended(after),
            Change::NotFound { .. }
            | Change::Postpone { .. }
            | Change::Failed { .. }
            | Change::KeepSuspended { .. }
            | Change::Resume { .. }
            | Change::RequestSkip { .. }
            | Change::SetAside { .. } => {}
        }
    }

    /// A span was suspended: Abacus must have refused its usage.
    fn note_suspended(&self, span: &Span) {
        let planned = span.processing.planned.as_ref();
        let facts = self.truth.facts();
        let is_refused = planned.is_some_and(|it| facts.refused_usages.contains(&it.usage_guid));
        drop(facts);
        if !is_refused {
            let id = &span.id;
            self.report_violation(format!("span {id} is suspended, and was never refused"));
        }
        self.operate_on_span(&span.id);
    }

    /// Abacus has refused a usage.
    pub(crate) fn note_usage_refused(&self, usage: &Usage) {
        let mut facts = self.truth.facts();
        facts.refused_usages.insert(usage.dedup_id.clone());
    }

    /// How many spans are tried for a cause.
    pub(crate) fn count_probes(&self, cause: CauseId) -> usize {
        let kept = self.store.all().into_iter();
        let of_cause = kept.filter(|kept| kept.span.processing.probe == Some(cause));
        of_cause.count()
    }

    /// The usages that are tried for a cause.
    pub(crate) fn probing(&self, cause: CauseId) -> Vec<String> {
        self.store.with(|table| {
            let spans = table.all().map(|kept| &kept.span.processing);
            let probing = spans.filter(|it| it.probe == Some(cause));
            let planned = probing.filter_map(|it| it.planned.as_ref());
            planned.map(|planned| planned.usage_guid.clone()).collect()
        })
    }

    /// A probe has begun, and so many spans were tried before: one more is at the most.
    pub(crate) fn check_probes(&self, cause: CauseId, before: usize) {
        let count = self.count_probes(cause).saturating_sub(before);
        if count > 1 {
            self.report_violation(format!("{count} spans of one cause are probed at once"));
        }
    }

    fn note_plan(&self, span: &Span) {
        let Some(planned) = &span.processing.planned else {
            return;
        };
        let plan = Plan {
            span: span.id.clone(),
            interval: planned.interval,
            accepted: false,
            counted: false,
            was_set_aside: false,
            noted: false,
            skipped: false,
            withheld: planned.withheld.is_some(),
            believed: Vec::new(),
        };
        let guid = &planned.usage_guid;
        let mut facts = self.truth.facts();
        let is_first = facts.plans.insert(guid, plan);
        if planned.interval.duration() < 0 {
            let believed = facts.believed(guid);
            let is_there = facts.plans.change(guid, |plan| plan.believed = believed);
            is_there.expect("it was just planned");
        }
        drop(facts);
        if !is_first {
            let (id, interval) = (&span.id, planned.interval);
            self.report_violation(format!("{interval:?} of span {id} was planned twice"));
        }
    }

    /// An execution was noted.
    fn note_executed(&self, before: &Span, after: &Span) {
        let planned = before
            .processing
            .planned
            .as_ref()
            .expect("an interval was executed");
        let accepted = {
            let mut facts = self.truth.facts();
            let noted = facts.plans.change(&planned.usage_guid, |plan| {
                plan.noted = true;
                plan.accepted || plan.withheld
            });
            noted.expect("it was planned before")
        };
        if !accepted && !planned.interval.is_empty() {
            let (id, interval) = (&before.id, planned.interval);
            self.report_violation(format!(
                "{interval:?} of span {id} is noted as executed, but not counted"
            ));
        }
        self.check_entry(before, after);
        self.note_plan(after);
        self.check_sum(after, after.sampled_to());
        self.note_complete(after);
    }

    /// An operator has skipped the planned usage of a span.
    pub(crate) fn note_asked_to_skip(&self, guid: &str) {
        self.truth.facts().asked_to_skip.insert(guid.to_owned());
    }

    /// Whether a span has noted that this usage is skipped.
    pub(crate) fn was_skipped(&self, guid: &str) -> bool {
        let plans = &self.truth.facts().plans;
        plans.get(guid).is_some_and(|plan| plan.skipped)
    }

    /// A skipped interval was noted.
    fn note_skipped(&self, before: &Span, after: &Span) {
        let planned = before.processing.planned.as_ref();
        let guid = &planned.expect("an interval was skipped").usage_guid;
        let mut facts = self.truth.facts();
        let mut is_asked = facts.asked_to_skip.contains(guid);
        let entry = facts.entries.get(guid).map(|entry| entry.state);
        let withheld = facts.plans.change(guid, |plan| {
            (plan.noted, plan.skipped) = (true, true);
            plan.withheld
        });
        is_asked |= withheld.expect("it was planned before");
        drop(facts);
        let id = &before.id;
        if !is_asked {
            self.report_violation(format!("span {id} was skipped, and nobody asked for that"));
        }
        if entry != Some(EntryState::Skipped) {
            self.report_violation(format!(
                "{guid} of span {id} is noted as skipped, and its entry says {entry:?}"
            ));
        }
        self.check_entry(before, after);
        self.note_plan(after);
        self.check_sum(after, after.sampled_to());
        self.note_complete(after);
    }

    /// Abacus has accepted a usage that was skipped or set aside, and its entry says so.
    pub(crate) fn note_accepted_again(&self, entry: &Entry) {
        let guid = entry.usage_guid.clone();
        let mut facts = self.truth.facts();
        let before = facts.entries.get(&guid).map(|entry| entry.state);
        let plan = facts.plans.get(&guid);
        let is_right = plan.is_some_and(|plan| {
            plan.accepted && (plan.skipped || before == Some(EntryState::SetAside))
        });
        facts.entries.insert(guid.clone(), entry.clone());
        drop(facts);
        if !is_right {
            self.report_violation(format!(
                "{guid} is accepted again, and was not taken, or never skipped or set aside"
            ));
        }
    }

    /// A span counts a usage that was skipped or set aside.
    fn note_resent(&self, resent: &Resent, after: &Span) {
        let guid = &resent.usage_guid;
        let mut facts = self.truth.facts();
        let is_first = facts.resent.insert(resent.act);
        let state = facts.entries.get(guid).map(|entry| entry.state);
        drop(facts);
        let (id, difference) = (&after.id, after.difference());
        if !is_first || state != Some(EntryState::Accepted) || difference != 0 {
            self.report_violation(format!(
                "the totals of span {id} count {guid} again, which is {state:?}: {difference} ms"
            ));
        }
    }

    /// What of a span is noted and does not count, ms: it was skipped, or Abacus has set it aside.
    pub(crate) fn missing_of(&self, span: &SpanId) -> i64 {
        self.truth.facts().plans.missing_of(span)
    }

    /// A noted execution has its entry, and the span says what its executions come to, at any moment.
    fn check_entry(&self, before: &Span, after: &Span) {
        let planned = before.processing.planned.as_ref();
        let planned = planned.filter(|planned| !planned.interval.is_empty());
        let facts = self.truth.facts();
        let has_entry = |guid: &String| facts.entries.contains_key(guid);
        let lacks = planned.filter(|planned| !has_entry(&planned.usage_guid));
        let lacks = lacks.map(|planned| planned.interval);
        drop(facts);
        let id = &after.id;
        if let Some(interval) = lacks {
            self.report_violation(format!(
                "{interval:?} of span {id} is noted as executed, but has no entry"
            ));
        }
        if after.difference() != 0 {
            let difference = after.difference();
            self.report_violation(format!(
                "{difference} ms of span {id} are sampled, but neither billed nor skipped"
            ));
        }
    }

    /// An entry of the ledger was written, for the first time.
    pub(crate) fn note_entry(&self, entry: &Entry) {
        let mut facts = self.truth.facts();
        let plan = facts.plans.get(&entry.usage_guid);
        let problem = match plan {
            // A worker that was frozen for long may write it again after it has expired.
            _ if facts.entries.contains_key(&entry.usage_guid) => None,
            None => Some("was never planned"),
            Some(plan) if plan.interval != entry.interval => Some("was planned otherwise"),
            Some(plan) if plan.span != entry.span => Some("is of another span"),
            Some(plan) if entry.withheld != plan.withheld => Some("was planned otherwise"),
            Some(plan) if plan.withheld => {
                (!entry.is_uncounted() || plan.noted).then_some("takes back what never counted")
            }
            Some(plan) if entry.state == EntryState::Skipped => {
                let is_asked = facts.asked_to_skip.contains(&entry.usage_guid);
                (!is_asked || plan.noted).then_some("was skipped, and nobody asked for that")
            }
            Some(plan) if !plan.accepted => Some("was never taken by Abacus"),
            Some(plan) if plan.noted => Some("was noted before its entry was written"),
            Some(_) => None,
        };
        let guid = entry.usage_guid.clone();
        // Withheld, because what it takes back was.
        if entry.state == EntryState::SetAside {
            facts.asides_noted.entry(guid.clone()).or_insert(1);
        }
        facts.entries.insert(guid.clone(), entry.clone());
        drop(facts);
        if let Some(problem) = problem {
            self.report_violation(format!("the usage {guid} {problem}"));
        }
    }

    /// Removes the entries that have expired, at most once in a minute, as MongoDB does.
    pub(crate) fn remove_expired(&self) {
        let now = self.now();
        if !self.truth.facts().is_time_to_remove(now) {
            return;
        }
        let removed = self.store.with(|table| table.remove_expired(now));
        for entry in removed {
            let kept = self.store.with(|table| table.find(&entry.span).cloned());
            if kept.is_some_and(|span| !span.processing.complete) {
                self.report_violation(format!(
                    "the entry {} expired before its span is complete",
                    entry.usage_guid
                ));
            }
        }
    }

    /// A span may have been completed.
    fn note_complete(&self, after: &Span) {
        if !after.processing.complete {
            return;
        }
        self.truth.facts().incomplete.remove(&after.id);
        match after.end {
            Some(end) => self.check_sum(after, end),
            None => self.report_violation(format!(
                "span {} is complete, but was never stopped",
                after.id
            )),
        }
    }

    /// The law: what counts upstream adds up to `until - start`.
    fn check_sum(&self, span: &Span, until: Timestamp) {
        let sum = self
            .truth
            .facts()
            .sums
            .get(&span.id)
            .copied()
            .unwrap_or_default();
        let due = until.since(span.start) - self.missing_of(&span.id);
        if sum != due {
            self.report_violation(format!(
                "{sum} ms of span {} count upstream, and {due} ms are right",
                span.id
            ));
        }
    }

    /// A span was cleaned up.
    pub(crate) fn note_removed(&self, span: Span) {
        if !span.processing.complete {
            self.report_violation(format!(
                "span {} was removed before it was complete",
                span.id
            ));
        }
        self.truth.facts().removed.push(span);
    }
}

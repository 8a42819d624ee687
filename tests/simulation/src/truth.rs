//! What really happened, noted at that moment in the store and in the stand-in, behind all faults.
//! The law is checked at every change, not only at the end:
//!
//! What the upstream has accepted of a span is what the span says is billed, moment by moment: from its start to where
//! it is sampled, without what is excluded and what is sent again. It may differ in the planned interval, in the
//! first of what is sent again, and in what is flagged. No moment counts twice, nor less than nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

use sampler_domain::{
    CauseId, ChangeKind, Entry, Excluded, Granularity, Interval, Span, SpanId, Target, Timestamp,
    Usage,
};

use super::books::duration;
use super::op::Kind;
use super::setup::MINUTE;
use super::world::World;

/// All that happened so far.
#[derive(Default)]
pub(crate) struct Truth(Mutex<Facts>);

#[derive(Default)]
pub(crate) struct Facts {
    pub(crate) spans: BTreeMap<SpanId, OfSpan>,
    incomplete: BTreeSet<SpanId>,
    /// The span of each usage that was planned or sent again.
    of_usage: BTreeMap<String, SpanId>,
    /// Every usage that the upstream has ever accepted, by its id.
    pub(crate) accepted: BTreeMap<String, Interval>,
    /// Every entry of the ledger that was ever written, by the id of its usage.
    pub(crate) entries: BTreeMap<String, Entry>,
    /// Spans that were cleaned up.
    pub(crate) removed: Vec<Span>,
    /// Every start and stop that was kept.
    pub(crate) kept: Vec<KeptEvent>,
    /// Writes that were refused, by what they carry.
    refused: BTreeSet<String>,
    /// Ids of usages that the upstream has refused.
    refused_usages: BTreeSet<String>,
    /// When entries that have expired were removed last.
    expired_removed_at: Option<Timestamp>,
    /// Targets of which another span was inserted between the overlap query of a start and its
    /// insert.
    pub(crate) gaps: BTreeSet<Target>,
}

/// What the upstream has accepted of one span.
#[derive(Default)]
pub(crate) struct OfSpan {
    /// How often each moment counts.
    accepted: Edges,
    /// The usages that lead forwards, from where to where.
    forward: BTreeMap<Timestamp, Timestamp>,
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

/// A number for each moment, by where it changes and by how much.
#[derive(Clone, Default)]
struct Edges(BTreeMap<Timestamp, i64>);

impl Edges {
    /// Adds to the moments of an interval; of one that leads backwards, the opposite.
    fn add(&mut self, interval: Interval, weight: i64) {
        for (at, by) in [(interval.start, weight), (interval.end, -weight)] {
            let step = self.0.entry(at).or_default();
            *step += by;
            if *step == 0 {
                self.0.remove(&at);
            }
        }
    }

    fn step(&self, at: Timestamp) -> i64 {
        self.0.get(&at).copied().unwrap_or_default()
    }
}

/// What a span says of each moment.
#[derive(Default)]
struct Claim {
    billed: Edges,
    /// Where the upstream may have more, or less.
    open: Vec<Interval>,
}

impl Claim {
    fn of(span: &Span) -> Self {
        let processing = &span.processing;
        let mut claim = Self::default();
        let sampled = Interval {
            start: span.start,
            end: processing.last.end,
        };
        claim.billed.add(sampled, 1);
        for range in &processing.excluded {
            claim.take_out(range, false);
            claim.open(range.unanswered, range.interval);
        }
        for (place, again) in processing.again.iter().enumerate() {
            claim.take_out(&again.range, again.is_way_back);
            let may_count = place == 0 || again.range.unanswered;
            claim.open(may_count, again.range.interval);
        }
        if let Some(planned) = &processing.planned {
            claim.open(true, planned.interval);
        }
        claim
    }

    /// Takes out a range and its way back, or that alone.
    fn take_out(&mut self, range: &Excluded, is_way_back: bool) {
        if !is_way_back {
            self.billed.add(range.interval, -1);
        }
        if let Some(back_to) = range.back_to {
            let way_back = Interval {
                start: range.interval.end,
                end: back_to,
            };
            self.billed.add(way_back, -1);
        }
    }

    fn open(&mut self, is_open: bool, interval: Interval) {
        if is_open {
            self.open.push(interval);
        }
    }

    fn is_open(&self, at: Timestamp) -> bool {
        self.open.iter().any(|it| {
            let (low, high) = (it.start.min(it.end), it.start.max(it.end));
            low <= at && at < high
        })
    }

    /// What is wrong with it, if this is what the upstream has accepted.
    fn compare(&self, accepted: &Edges) -> Option<String> {
        let bounds = self.open.iter().flat_map(|it| [it.start, it.end]);
        let edges = accepted.0.keys().chain(self.billed.0.keys()).copied();
        let bounds: BTreeSet<Timestamp> = bounds.chain(edges).collect();
        let (mut counts, mut claimed) = (0, 0);
        for at in bounds {
            counts += accepted.step(at);
            claimed += self.billed.step(at);
            let is_right = counts == claimed || self.is_open(at);
            if !is_right || !(0..=1).contains(&counts) || !(0..=1).contains(&claimed) {
                return Some(format!(
                    "from {at} it counts {counts} times, and the span says {claimed}"
                ));
            }
        }
        None
    }
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

    /// The span that has planned a usage, or has sent it again.
    pub(crate) fn span_of(&self, usage_guid: &str) -> Option<&SpanId> {
        self.of_usage.get(usage_guid)
    }
}

impl World {
    /// A span is new in the store.
    pub(crate) fn note_opened(&self, span: &Span) {
        let mut facts = self.truth.facts();
        facts.spans.insert(span.id.clone(), OfSpan::default());
        facts.incomplete.insert(span.id.clone());
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
        self.check_law(span);
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

    /// A change was made of a span, by whomever.
    pub(crate) fn note_change(&self, kind: ChangeKind, before: &Span, after: &Span) {
        let id = &after.id;
        if after.processing.version != before.processing.version + 1 {
            self.report_violation(format!("{kind:?} of span {id} leaves the version"));
        }
        if let Some(delivery) = after.in_hand() {
            let mut facts = self.truth.facts();
            facts.of_usage.insert(delivery.usage_guid, id.clone());
        }
        self.count_change(kind);
        match kind {
            ChangeKind::Record | ChangeKind::RecordAgain => self.check_entry(before, kind),
            ChangeKind::Fail if after.suspension().is_some() => self.note_suspended(after),
            _ => {}
        }
        if before.processing.complete != after.processing.complete {
            self.note_complete(after);
        }
        self.check_law(after);
        self.watch(before, after);
    }

    fn count_change(&self, kind: ChangeKind) {
        let what = match kind {
            ChangeKind::Skip => "skips",
            ChangeKind::RecordAgain => "usages sent again",
            ChangeKind::Trim => "trims",
            ChangeKind::Move => "acceptances moved",
            ChangeKind::Flag => "posts flagged later",
            _ => return,
        };
        self.count(what);
    }

    /// The law, for one span.
    pub(crate) fn check_law(&self, span: &Span) {
        let facts = self.truth.facts();
        let Some(of_span) = facts.spans.get(&span.id) else {
            return;
        };
        let wrong = Claim::of(span).compare(&of_span.accepted);
        drop(facts);
        if let Some(wrong) = wrong {
            let (id, processing) = (&span.id, &span.processing);
            self.report_violation(format!("span {id}: {wrong}: {processing:?}"));
        }
    }

    /// A span was suspended: the upstream must have refused its usage.
    fn note_suspended(&self, span: &Span) {
        let planned = span.processing.planned.as_ref();
        let facts = self.truth.facts();
        let is_refused = planned.is_some_and(|it| facts.refused_usages.contains(&it.usage_guid));
        drop(facts);
        if !is_refused {
            let id = &span.id;
            self.report_violation(format!("span {id} is suspended, and was never refused"));
        }
    }

    /// The upstream has refused a usage.
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

    /// Probes have begun, and so many spans were tried before: one more is at the most, and knows its cause.
    pub(crate) fn check_probes(&self, cause: CauseId, before: usize, begun: &[Span]) {
        let count = self.count_probes(cause).saturating_sub(before);
        if count > 1 {
            self.report_violation(format!("{count} spans of one cause are probed at once"));
        }
        for span in begun.iter().filter(|it| it.processing.probe != Some(cause)) {
            let id = &span.id;
            self.report_violation(format!("span {id} is probed, and does not know its cause"));
        }
    }

    /// What was executed has its entry, before that is recorded.
    fn check_entry(&self, before: &Span, kind: ChangeKind) {
        let processing = &before.processing;
        let recorded = match (&processing.planned, kind) {
            (Some(planned), ChangeKind::Record) if planned.interval.is_empty() => None,
            (Some(planned), ChangeKind::Record) => Some(planned.usage_guid.clone()),
            _ => before.next_again().map(|again| again.usage_guid),
        };
        let facts = self.truth.facts();
        let lacking = recorded.filter(|guid| !facts.entries.contains_key(guid));
        drop(facts);
        if let Some(guid) = lacking {
            let id = &before.id;
            self.report_violation(format!("{guid} of span {id} is recorded, but has no entry"));
        }
    }

    /// A usage is about to be posted: what it covers is over.
    pub(crate) fn note_posted(&self, usage: &Usage) {
        let Interval { start, end } = usage.interval;
        if start < end && end > self.latest_now() {
            let guid = &usage.dedup_id;
            self.report_violation(format!("{guid} is posted before its end, {end}"));
        }
    }

    /// Whether the upstream has ever accepted a usage.
    pub(crate) fn was_accepted(&self, usage_guid: &str) -> bool {
        self.truth.facts().accepted.contains_key(usage_guid)
    }

    /// The upstream has accepted a usage: it counts, or is set aside later.
    pub(crate) fn note_accepted(&self, usage: &Usage) {
        let (guid, interval) = (&usage.dedup_id, usage.interval);
        let mut facts = self.truth.facts();
        let facts = &mut *facts;
        let Some(id) = facts.of_usage.get(guid) else {
            return self.report_violation(format!("the usage {guid} was never planned"));
        };
        match facts.accepted.insert(guid.clone(), interval) {
            Some(before) if before == interval => return,
            Some(_) => self.report_violation(format!("{guid} was accepted with another interval")),
            None => {}
        }
        let of_span = facts.spans.entry(id.clone()).or_default();
        of_span.accepted.add(interval, 1);
        let Interval { start, end } = interval;
        let mut is_right = interval.duration() == duration(usage);
        if start < end {
            of_span.forward.insert(start, end);
        } else {
            // What is taken back was billed with one usage: so no window is below zero.
            let billed = of_span.forward.range(..=end).next_back();
            is_right &= billed.is_some_and(|(_, until)| *until >= start);
        }
        is_right &= !crosses(self.setup.scale.coarse, interval);
        if !is_right {
            self.report_violation(format!("{usage:?} does not stand for {interval:?}"));
        }
        self.check_accepted(facts, &id.clone());
    }

    fn check_accepted(&self, facts: &Facts, id: &SpanId) {
        let kept = self.store.with(|table| table.find(id).cloned());
        let gone = facts.removed.iter().find(|span| span.id == *id);
        if let (Some(span), Some(of_span)) = (kept.as_ref().or(gone), facts.spans.get(id))
            && let Some(wrong) = Claim::of(span).compare(&of_span.accepted)
        {
            let processing = &span.processing;
            self.report_violation(format!("span {id}: {wrong}: {processing:?}"));
        }
    }

    /// An entry of the ledger was written, for the first time.
    pub(crate) fn note_entry(&self, entry: &Entry) {
        let mut facts = self.truth.facts();
        let guid = entry.usage_guid.clone();
        let problem = match facts.accepted.get(&guid) {
            None => Some("has an entry, and the upstream has not accepted it"),
            Some(interval) if *interval != entry.interval => Some("was accepted otherwise"),
            Some(_) if facts.of_usage.get(&guid) != Some(&entry.span) => Some("is of another span"),
            Some(_) if crosses(entry.dimension, entry.interval) => Some("crosses a boundary"),
            Some(_) => None,
        };
        // What is inserted again after it has expired says the same.
        facts.entries.insert(guid.clone(), entry.clone());
        drop(facts);
        if let Some(problem) = problem {
            self.report_violation(format!("the usage {guid} {problem}"));
        }
    }

    /// Removes the entries that have expired, at most once in a minute, as MongoDB does.
    pub(crate) fn remove_expired(&self) {
        let now = self.database_now();
        if !self.truth.facts().is_time_to_remove(now) {
            return;
        }
        let removed = self.store.with(|table| table.remove_expired(now));
        for entry in removed {
            let kept_for = self.setup.kept_for(entry.dimension);
            if now.since(entry.acceptance.at) < kept_for {
                self.report_violation(format!(
                    "the entry {} expired before its time",
                    entry.usage_guid
                ));
            }
        }
    }

    /// A span became complete, or is no longer.
    fn note_complete(&self, after: &Span) {
        let (id, processing) = (&after.id, &after.processing);
        let mut facts = self.truth.facts();
        if !processing.complete {
            facts.incomplete.insert(id.clone());
            return;
        }
        facts.incomplete.remove(id);
        drop(facts);
        let is_right = after.end == Some(processing.last.end)
            && processing.again.is_empty()
            && processing.planned.is_none();
        if !is_right {
            let end = after.end;
            self.report_violation(format!(
                "span {id} is complete, its end is {end:?}: {processing:?}"
            ));
        }
    }

    /// A span was cleaned up.
    pub(crate) fn note_removed(&self, span: Span) {
        let id = &span.id;
        if !span.processing.complete {
            self.report_violation(format!("span {id} was removed, and is not complete"));
        }
        let mut facts = self.truth.facts();
        facts.incomplete.remove(id);
        facts.removed.push(span);
    }
}

/// Whether a boundary of this granularity lies within an interval.
fn crosses(granularity: Granularity, interval: Interval) -> bool {
    let Interval { start, end } = interval;
    let boundary = granularity.boundary_after(start.min(end));
    boundary.is_some_and(|boundary| boundary < start.max(end))
}

//! What must hold once everything that was stopped is complete.

use std::collections::{BTreeMap, BTreeSet};

use sampler_domain::{Entry, EntryState, Span, SpanId, Target, Timestamp, Usage};

use super::books::duration;
use super::op::{Event, Kind};
use super::provider::{Reply, Sent};
use super::world::{OTHER_PLAN, World, measures, millis, target};

impl World {
    /// Reports all violations. Returns the length of all spans, removed ones as well, ms.
    pub(crate) fn check(&self) -> i64 {
        let kept = self.store.all().into_iter().map(|kept| kept.span);
        let removed = self.truth.facts().removed.clone();
        let spans: Vec<Span> = kept.chain(removed).collect();
        self.check_sums(&spans);
        self.check_usages(&spans);
        self.check_windows(&spans);
        self.check_overlaps(&spans);
        self.check_events(&spans);
        self.check_refusals(&spans);
        self.check_incomplete(&spans);
        self.check_ledger(&spans);
        self.check_withheld();
        let lengths = spans
            .iter()
            .filter_map(|span| Some(span.end?.since(span.start)));
        lengths.filter(|length| *length > 0).sum()
    }

    /// The law, from what Abacus counts and nothing else: for each span, and for each target.
    fn check_sums(&self, spans: &[Span]) {
        let mut due: BTreeMap<Target, i64> = BTreeMap::new();
        for span in spans {
            let (Some(end), true) = (span.end, span.processing.complete) else {
                self.report_violation(format!("span {} is not complete at the end", span.id));
                continue;
            };
            let length = end.since(span.start) - self.missing_of(&span.id);
            let sum = self.truth.facts().sums.get(&span.id).copied();
            if sum != Some(length) {
                self.report_violation(format!(
                    "{sum:?} ms of span {} count, not {length} ms",
                    span.id
                ));
            }
            *due.entry(span.target.clone()).or_default() += length;
        }
        let mut counted: BTreeMap<Target, i64> = BTreeMap::new();
        for usage in self.abacus.counted() {
            *counted.entry(usage.target.clone()).or_default() += duration(&usage);
        }
        due.retain(|_, sum| *sum != 0);
        counted.retain(|_, sum| *sum != 0);
        if due != counted {
            self.report_violation(format!("by target {counted:?} counts, not {due:?}"));
        }
    }

    /// Entries, totals, how far spans are sampled, and what Abacus counts agree, entry by entry.
    fn check_ledger(&self, spans: &[Span]) {
        let facts = self.truth.facts();
        let by_guid = |usages: Vec<Usage>| -> BTreeMap<String, Usage> {
            let named = usages
                .into_iter()
                .map(|usage| (usage.dedup_id.clone(), usage));
            named.collect()
        };
        let (counted, aside) = (
            by_guid(self.abacus.counted()),
            by_guid(self.abacus.set_aside()),
        );
        for (guid, plan) in facts.plans.iter() {
            let has_entry = facts.entries.contains_key(guid);
            if has_entry != (plan.noted && !plan.interval.is_empty()) {
                let what = if has_entry { "an" } else { "no" };
                self.report_violation(format!("the usage {guid} has {what} entry"));
            }
        }
        for (guid, entry) in &facts.entries {
            let same = |usage: &Usage| {
                let given = entry.measures.as_slice();
                usage.target == entry.target
                    && usage.end == entry.interval.midpoint()
                    && usage.measured_usage[..given.len()] == *given
                    && duration(usage) == entry.interval.duration()
            };
            let is_right = match entry.state {
                EntryState::Skipped => !counted.contains_key(guid),
                EntryState::SetAside if facts.plans.get(guid).is_some_and(|plan| plan.withheld) => {
                    !counted.contains_key(guid)
                }
                EntryState::SetAside => aside.get(guid).is_some_and(same),
                _ if self.may_be_aside(entry) => {
                    let taken = counted.get(guid).or(aside.get(guid));
                    taken.is_some_and(same)
                }
                _ => counted.get(guid).is_some_and(same),
            };
            if !is_right {
                self.report_violation(format!("{entry:?} is not what Abacus counts"));
            }
        }
        let removed: BTreeSet<&SpanId> = facts.removed.iter().map(|span| &span.id).collect();
        for span in spans {
            let totals = &span.processing.totals;
            let is_later = |entry: &&Entry| {
                let first = totals.first_version;
                first.is_some_and(|first| entry.version >= first)
            };
            let of_span = facts.entries.values();
            let of_span = of_span
                .filter(|entry| entry.span == span.id)
                .filter(is_later);
            let of_span: Vec<&Entry> = of_span.collect();
            let counted = totals_of(of_span.iter().copied());
            let (billed, skipped, ..) = counted;
            let told = (
                totals.billed,
                totals.skipped,
                totals.unanswered,
                totals.usages,
            );
            // The totals of a span that is removed learn of no resend.
            let is_resent = |entry: &&Entry| {
                let was_skipped = entry.skipped_at.is_some() && entry.state != EntryState::Skipped;
                was_skipped || entry.resent_at.is_some()
            };
            let is_told = if removed.contains(&span.id) && of_span.iter().any(is_resent) {
                billed + skipped == totals.billed + totals.skipped
            } else {
                counted == told
            };
            if !is_told || span.difference() != 0 {
                self.report_violation(format!("{counted:?} is not what {span:?} adds up"));
            }
        }
    }

    /// What was withheld is sent once the usage counts that it takes back.
    fn check_withheld(&self) {
        let facts = self.truth.facts();
        let kept = self.store.with(|table| {
            let entries = table.entries().map(|kept| &kept.entry);
            let withheld = entries.filter(|entry| entry.withheld && entry.resend.is_none());
            withheld.cloned().collect::<Vec<Entry>>()
        });
        for entry in kept {
            let mut taken_back = facts.entries.values().filter(|other| {
                other.span == entry.span && entry.interval.takes_back(other.interval)
            });
            if !taken_back.any(Entry::is_uncounted) {
                self.report_violation(format!(
                    "{entry:?} is withheld, and what it takes back counts"
                ));
            }
        }
    }

    /// Whether nobody could find out that Abacus has set aside what the ledger says is accepted: nobody asks,
    /// or the `Location` is that of a repeat.
    fn may_be_aside(&self, entry: &Entry) -> bool {
        let location = entry.location.as_ref();
        let has_document =
            self.setup.memory.is_some() || location.is_some_and(|it| self.abacus.has_document(it));
        entry.state == EntryState::Accepted && !(self.setup.confirms && has_document)
    }

    /// Each usage has the target and the measures of its span.
    fn check_usages(&self, spans: &[Span]) {
        let by_id: BTreeMap<&SpanId, &Span> = spans.iter().map(|span| (&span.id, span)).collect();
        let facts = self.truth.facts();
        for usage in self.abacus.counted() {
            let plan = facts.plans.get(&usage.dedup_id);
            let Some((plan, span)) = plan.and_then(|plan| Some((plan, *by_id.get(&plan.span)?)))
            else {
                self.report_violation(format!("the usage {} is of no span", usage.dedup_id));
                continue;
            };
            let (low, high) = (
                plan.interval.start.min(plan.interval.end).as_millis(),
                plan.interval.start.max(plan.interval.end).as_millis(),
            );
            let midpoint = low + (high - low) / 2;
            let given = span.measures.as_slice();
            let fits = usage.target == span.target
                && usage.start == usage.end
                && usage.end.as_millis() == midpoint
                && usage.measured_usage.len() == given.len() + 1
                && usage.measured_usage[..given.len()] == *given
                && duration(&usage) == plan.interval.duration();
            if !fits {
                self.report_violation(format!("{usage:?} does not stand for {:?}", plan.interval));
            }
        }
    }

    /// Each window in which Abacus accumulates has the usage of that window, without what is skipped or set
    /// aside and was not sent again; whatever was taken back: no interval crosses a boundary.
    fn check_windows(&self, spans: &[Span]) {
        let mut counted = self.truth.facts().windows.clone();
        let mut missing: BTreeMap<(SpanId, Timestamp), i64> = BTreeMap::new();
        for plan in self.truth.facts().plans.values() {
            if plan.noted && !plan.counted {
                let window = self.window_of(plan.interval.midpoint());
                let sum = missing.entry((plan.span.clone(), window)).or_default();
                *sum += plan.interval.duration();
            }
        }
        for span in spans {
            let end = span.end.unwrap_or(span.start);
            let mut from = span.start;
            while from < end {
                let boundary = self.setup.scale.coarse.boundary_after(from).unwrap_or(end);
                let until = boundary.min(end);
                let at = (span.id.clone(), self.window_of(from));
                let sum = counted.remove(&at).unwrap_or_default();
                let due = until.since(from) - missing.remove(&at).unwrap_or_default();
                if sum != due {
                    let id = &span.id;
                    self.report_violation(format!(
                        "span {id} has {sum} ms from {from}, not {due} ms"
                    ));
                }
                from = until;
            }
        }
        // Beyond the end, what counts is what is missing of that which was taken back.
        let ours: BTreeSet<&SpanId> = spans.iter().map(|span| &span.id).collect();
        for (at, sum) in missing {
            *counted.entry(at).or_default() += sum;
        }
        counted.retain(|(id, _), sum| *sum != 0 && ours.contains(id));
        if !counted.is_empty() {
            self.report_violation(format!("{counted:?} lies outside of its span"));
        }
    }

    /// No two spans of a target overlap, unless events of the target were in flight at the same
    /// time.
    fn check_overlaps(&self, spans: &[Span]) {
        let mut by_target: BTreeMap<&Target, Vec<&Span>> = BTreeMap::new();
        let gaps = self.truth.facts().gaps.clone();
        let well_behaved: BTreeSet<Target> = (0..self.setup.well_behaved.len())
            .filter(|number| self.setup.well_behaved[*number])
            .flat_map(|number| [number, number + OTHER_PLAN])
            .map(target)
            .collect();
        let counts =
            |span: &&Span| well_behaved.contains(&span.target) || !gaps.contains(&span.target);
        for span in spans.iter().filter(counts) {
            by_target.entry(&span.target).or_default().push(span);
        }
        for of_target in by_target.values_mut() {
            of_target.sort_by_key(|span| (span.start, span.end));
            for pair in of_target.windows(2) {
                if pair[0].end > Some(pair[1].start) {
                    self.report_violation(format!(
                        "span {} overlaps span {}",
                        pair[0].id, pair[1].id
                    ));
                }
            }
        }
    }

    /// A refused event is not kept afterwards: every command that may have carried it was over by
    /// then.
    fn check_refusals(&self, spans: &[Span]) {
        let facts = self.truth.facts();
        let bound = millis(self.setup.answered_within());
        let of_span = |id: &SpanId| spans.iter().find(|span| span.id == *id);
        for one in self.history.all() {
            let replies = one.replies.iter().zip(&one.times);
            let refused = replies.filter(|(reply, _)| matches!(reply, Reply::Refused(_)));
            let halves = one.event.halves();
            for (event, (_, (asked, answered))) in
                refused.flat_map(|refused| halves.iter().map(move |half| (half, refused)))
            {
                let late = facts.kept.iter().filter(|kept| {
                    kept.kind == event.kind
                        && kept.arrived_at.plus(bound) < *asked
                        && kept.kept_at > *answered
                });
                let of_event = |span: &&Span| keeps(span, event);
                for span in late.filter_map(|kept| of_span(&kept.span)).filter(of_event) {
                    let id = &span.id;
                    self.report_violation(format!(
                        "{event} was refused at {answered}, and span {id} has it"
                    ));
                }
            }
        }
    }

    /// What refuses the start of an update is found before its stop is kept. So an update of which the
    /// stop alone was kept was met by a start of its target since it was first sent.
    fn check_incomplete(&self, spans: &[Span]) {
        let facts = self.truth.facts();
        let all = self.history.all();
        let is_incomplete = |one: &&Sent| {
            // A repeat may be too late for the slack, and the start may have been there before.
            let is_other =
                |text: &String| !text.contains("outside-slack") && !text.contains("id-taken");
            let replies = &mut one.replies.iter();
            replies.any(|reply| matches!(reply, Reply::Incomplete(text) if is_other(text)))
        };
        for one in all.iter().filter(is_incomplete) {
            let halves = one.event.halves();
            // What came in between may be the stop, sent by itself.
            if all.iter().any(|other| other.event == halves[0]) {
                continue;
            }
            let sent = all.iter().filter(|other| other.event == one.event);
            let Some((first, _)) = sent.filter_map(|sent| sent.times.first()).min() else {
                continue;
            };
            let of_target: BTreeSet<&SpanId> = spans
                .iter()
                .filter(|span| span.target == target(one.event.target))
                .map(|span| &span.id)
                .collect();
            let is_met = facts.kept.iter().any(|kept| {
                kept.kind == Kind::Start && kept.kept_at >= *first && of_target.contains(&kept.span)
            });
            if !is_met {
                let event = &one.event;
                self.report_violation(format!(
                    "{event} was halved, and nothing came in between: {:?}",
                    one.replies
                ));
            }
        }
    }

    /// Every event is kept as it was answered.
    fn check_events(&self, spans: &[Span]) {
        let mut sent: BTreeMap<Event, Vec<Sent>> = BTreeMap::new();
        let mut halves: BTreeMap<Event, Vec<Sent>> = BTreeMap::new();
        for one in self.history.all() {
            for half in one.event.halves() {
                halves.entry(half).or_default().push(one.clone());
            }
            sent.entry(one.event.clone()).or_default().push(one);
        }
        let explained: usize = halves
            .iter()
            .map(|(half, all)| self.check_half(spans, half, all))
            .sum();
        for (event, all) in &sent {
            let replies = all.iter().flat_map(|one| &one.replies);
            let first_kept = replies.filter(|reply| **reply == Reply::Kept).count();
            // Of two requests with the same update, each may have kept a half.
            if event.id.is_some() && first_kept > event.halves().len() {
                self.report_violation(format!("{event} was said to be new {first_kept} times"));
            }
            let must_succeed = all.iter().filter(|one| one.must_succeed);
            for one in must_succeed.filter(|one| !is_kept(one)) {
                self.report_violation(format!(
                    "{event} is fit, but was answered {:?}",
                    one.replies.last()
                ));
            }
        }
        if explained != spans.len() {
            let count = spans.len();
            self.report_violation(format!(
                "there are {count} spans, but only {explained} were started"
            ));
        }
    }

    /// A start or a stop is kept as it was answered, alone or as a half of updates. Returns how many
    /// spans it has started.
    fn check_half(&self, spans: &[Span], half: &Event, all: &[Sent]) -> usize {
        let kept = spans.iter().filter(|span| keeps(span, half)).count();
        let replies = || all.iter().flat_map(|one| &one.replies);
        let count =
            |wanted: &dyn Fn(&Reply) -> bool| replies().filter(|reply| wanted(reply)).count();
        let unknown = count(&|reply| matches!(reply, Reply::Unknown(_)));
        let accepted = count(&|reply| match reply {
            Reply::Kept | Reply::Replayed => true,
            Reply::Incomplete(_) => half.kind == Kind::Stop,
            Reply::Refused(_) | Reply::NothingKept(_) | Reply::Unknown(_) => false,
        });
        let (least, most) = if half.id.is_some() {
            let least = usize::from(accepted > 0);
            (least, least.max(usize::from(unknown > 0)))
        } else {
            let first_kept = count(&|reply| *reply == Reply::Kept);
            (first_kept, first_kept + unknown)
        };
        if kept < least || kept > most {
            self.report_violation(format!(
                "{half} is kept {kept} times, after {:?}",
                replies().collect::<Vec<_>>()
            ));
        }
        if half.kind == Kind::Start { kept } else { 0 }
    }
}

/// What entries add up to: ms billed, skipped, and skipped without an answer; and how many are billed.
fn totals_of<'a>(entries: impl Iterator<Item = &'a Entry>) -> (i64, i64, i64, u64) {
    let (mut billed, mut skipped, mut unanswered, mut usages) = (0, 0, 0, 0);
    for entry in entries {
        let duration = entry.interval.duration();
        if entry.state == EntryState::Skipped {
            skipped += duration;
            unanswered += if entry.unanswered { duration } else { 0 };
        } else {
            billed += duration;
            usages += 1;
        }
    }
    (billed, skipped, unanswered, usages)
}

/// Whether the span holds exactly this event.
fn keeps(span: &Span, event: &Event) -> bool {
    let text = |id: &Option<sampler_domain::EventId>| id.as_ref().map(ToString::to_string);
    if event.broken || span.target != target(event.target) {
        return false;
    }
    match event.kind {
        Kind::Start => {
            text(&span.start_id) == event.id
                && span.start == event.timestamp
                && span.measures == measures(event.measures)
        }
        Kind::Stop => text(&span.end_id) == event.id && span.end == Some(event.timestamp),
        // Its halves are kept.
        Kind::Update { .. } => false,
    }
}

fn is_kept(sent: &Sent) -> bool {
    matches!(sent.replies.last(), Some(Reply::Kept | Reply::Replayed))
}

//! What must hold once everything that was stopped is complete.

use std::collections::{BTreeMap, BTreeSet};

use sampler_domain::{Interval, Span, SpanId, Target, Usage};

use super::books::duration;
use super::op::{Event, Kind};
use super::provider::{Reply, Sent};
use super::world::{OTHER_PLAN, World, measures, millis, target};

impl World {
    /// Reports all violations. Returns the number of all spans, removed ones as well.
    pub(crate) fn check(&self) -> usize {
        let kept = self.store.all().into_iter().map(|kept| kept.span);
        let removed = self.truth.facts().removed.clone();
        let spans: Vec<Span> = kept.chain(removed).collect();
        self.check_sums(&spans);
        self.check_usages(&spans);
        self.check_ledger(&spans);
        self.check_set_aside();
        self.check_overlaps(&spans);
        self.check_events(&spans);
        self.check_refusals(&spans);
        self.check_incomplete(&spans);
        spans.len()
    }

    /// The law for each span; and for each target, from what the upstream counts and nothing else. What a span
    /// excluded when it was removed stays so.
    fn check_sums(&self, spans: &[Span]) {
        let mut due: BTreeMap<Target, i64> = BTreeMap::new();
        let mut counted: BTreeMap<Target, i64> = BTreeMap::new();
        let mut is_whole = true;
        for span in spans {
            let (Some(end), true) = (span.end, span.processing.complete) else {
                self.report_violation(format!("span {} is not complete at the end", span.id));
                continue;
            };
            self.check_law(span);
            if !span.processing.excluded.is_empty() {
                is_whole = false;
                continue;
            }
            *due.entry(span.target.clone()).or_default() += end.since(span.start);
        }
        let accepted = self.books.counted().into_iter();
        for usage in accepted.chain(self.books.set_aside()) {
            *counted.entry(usage.target.clone()).or_default() += duration(&usage);
        }
        due.retain(|_, sum| *sum != 0);
        counted.retain(|_, sum| *sum != 0);
        if is_whole && due != counted {
            self.report_violation(format!("by target {counted:?} is accepted, not {due:?}"));
        }
    }

    /// Each accepted usage has an entry that says what the upstream has, and no other usage has one.
    fn check_ledger(&self, spans: &[Span]) {
        let excludes = |span: &&Span| !span.processing.excluded.is_empty();
        let with_rest = spans.iter().filter(excludes).map(|span| &span.id);
        let with_rest: BTreeSet<&SpanId> = with_rest.collect();
        let facts = self.truth.facts();
        for guid in facts.accepted.keys() {
            let span = facts.span_of(guid);
            let may_lack = span.is_some_and(|span| with_rest.contains(span));
            if !may_lack && !facts.entries.contains_key(guid) {
                self.report_violation(format!("the usage {guid} is accepted, and has no entry"));
            }
        }
        let all = self.books.counted().into_iter();
        let all = all.chain(self.books.set_aside());
        let all: BTreeMap<String, Usage> = all.map(|it| (it.dedup_id.clone(), it)).collect();
        for (guid, entry) in &facts.entries {
            let given = entry.measures.as_slice();
            let is_right = all.get(guid).is_some_and(|usage| {
                usage.target == entry.target
                    && usage.end == entry.interval.midpoint()
                    && usage.measured_usage[..given.len()] == *given
                    && duration(usage) == entry.interval.duration()
            });
            if !is_right {
                self.report_violation(format!("{entry:?} is not what the upstream has"));
            }
        }
    }

    /// Where usages are watched, none is set aside any more. One that was never accepted is not watched: it is excluded,
    /// and goes with its span.
    fn check_set_aside(&self) {
        for usage in self.books.set_aside() {
            let (guid, facts) = (&usage.dedup_id, self.truth.facts());
            let span = facts
                .span_of(guid)
                .filter(|id| self.store.all().iter().any(|kept| kept.span.id == **id));
            let is_known = span.is_some() || facts.entries.contains_key(guid);
            drop(facts);
            if self.setup.confirms && is_known {
                self.report_violation(format!("{guid} was set aside, and nobody knows"));
            }
        }
    }

    /// Each usage has the target and the measures of its span.
    fn check_usages(&self, spans: &[Span]) {
        let by_id: BTreeMap<&SpanId, &Span> = spans.iter().map(|span| (&span.id, span)).collect();
        let facts = self.truth.facts();
        for usage in self.books.counted() {
            let span = facts.span_of(&usage.dedup_id).and_then(|id| by_id.get(id));
            let Some(span) = span else {
                self.report_violation(format!("the usage {} is of no span", usage.dedup_id));
                continue;
            };
            let Interval { start, end } = usage.interval;
            let (low, high) = (start.min(end).as_millis(), start.max(end).as_millis());
            let given = span.measures.as_slice();
            let fits = usage.target == span.target
                && usage.start == usage.end
                && usage.end.as_millis() == low + (high - low) / 2
                && usage.measured_usage.len() == given.len() + 1
                && usage.measured_usage[..given.len()] == *given
                && duration(&usage) == end.since(start);
            if !fits {
                self.report_violation(format!("{usage:?} does not stand for its interval"));
            }
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
            // What came in between may be the stop, sent by itself or by another update with the same id.
            let is_same_stop =
                |other: &Sent| other.event != one.event && other.event.halves()[0] == halves[0];
            if all.iter().any(is_same_stop) {
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

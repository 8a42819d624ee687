//! The comparison of the spans with a snapshot.
//!
//! Spans that ran at the time of the snapshot, or begin later, come one by one. A span and an instance
//! of the same target belong together. So do a span and an instance that differ in the plan alone, if
//! one of each is left over.
//!
//! A span that has stopped since then ran at that time, so its instance is not new; but nothing can be
//! proposed for it any more. A span that begins later is not listed; but no start is proposed that
//! would run at the same time.

use std::collections::BTreeMap;
use std::io;

use sampler_api::OpenWithoutInstance;
use sampler_domain::{Measures, Span, SpanId, Target, Timestamp};

use super::SnapshotLimits;
use super::digest;
use super::instances::Snapshot;
use super::proposal;
use super::spool::{Spool, Spooled};
use super::starts::Starts;

/// The state of an instance with its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlanState {
    /// No span was found yet.
    Alone,
    /// There is a span, and nothing to propose.
    Agrees,
    /// There is a span with another plan or other measures.
    Differs,
}

/// The state of an instance, whatever its plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    /// No span of it ran.
    Idle,
    /// Spans of it ran. What starts now begins no earlier than the time of the snapshot.
    Ran,
    /// Spans of it began after the time of the snapshot: a proposed start would run beside them.
    Began,
    /// Nothing is to start: spans of it have stopped since, or there was no room to keep their ends.
    Settled,
}

/// What is kept of a span until the answer is written.
#[derive(Debug)]
pub(super) struct SeenSpan {
    pub(super) id: SpanId,
    pub(super) target: Target,
    pub(super) measures: Measures,
    start: Timestamp,
    has_stopped: bool,
}

/// A comparison that has not ended.
pub(crate) struct Comparison {
    snapshot: Snapshot,
    limits: SnapshotLimits,
    /// By the instance's place in the body.
    states: Vec<PlanState>,
    groups: Vec<Group>,
    differs: BTreeMap<u32, SeenSpan>,
    /// Spans of an instance that the snapshot has with other plans, by the group of the instance.
    other_plans: BTreeMap<usize, Vec<SeenSpan>>,
    /// Spans in both, and what they weigh.
    seen: usize,
    seen_weight: usize,
    open: Spool,
    opened: usize,
    /// Whether there was no room for some.
    is_cut: bool,
}

pub(crate) struct Compared {
    pub(super) snapshot: Snapshot,
    /// The open spans without an instance, each as it is shown.
    pub(super) open: Spooled,
    states: Vec<PlanState>,
    pub(super) groups: Vec<Group>,
    pub(super) starts: Starts,
    pub(super) differs: BTreeMap<u32, SeenSpan>,
    pub(super) is_cut: bool,
}

impl SeenSpan {
    /// About the memory of one, in bytes, apart from its texts and its measures.
    const WEIGHT: usize = 384;

    fn weight(&self) -> usize {
        let ids: usize = self
            .target
            .fields()
            .into_iter()
            .map(|(_, id)| id.as_str().len())
            .sum();
        Self::WEIGHT + ids + self.measures.weight()
    }
}

impl From<Span> for SeenSpan {
    fn from(span: Span) -> Self {
        Self {
            id: span.id,
            target: span.target,
            measures: span.measures,
            start: span.start,
            has_stopped: span.end.is_some(),
        }
    }
}

impl Comparison {
    pub(crate) fn new(snapshot: Snapshot, limits: SnapshotLimits) -> Self {
        let count = snapshot.instances.count();
        Self {
            snapshot,
            limits,
            states: vec![PlanState::Alone; count],
            groups: vec![Group::Idle; count],
            differs: BTreeMap::new(),
            other_plans: BTreeMap::new(),
            seen: 0,
            seen_weight: 0,
            open: Spool::new(),
            opened: 0,
            is_cut: false,
        }
    }

    /// Takes a span that ran at the time of the snapshot, or starts later.
    pub(crate) fn add(&mut self, span: Span) -> io::Result<()> {
        let instances = &self.snapshot.instances;
        let key = digest::of_instance(&span.target);
        let Some(group) = instances.group(key) else {
            let is_shown = span.start <= self.snapshot.at;
            let shown = is_shown.then(|| SeenSpan::from(span));
            return self.add_open(shown.as_slice()).map(|_| ());
        };
        if span.start > self.snapshot.at {
            if self.groups[group] != Group::Settled {
                self.groups[group] = Group::Began;
            }
            return Ok(());
        }
        if self.groups[group] == Group::Idle {
            self.groups[group] = Group::Ran;
        }
        match instances.find(key, &span.target) {
            Some(found) => {
                let differs = span.end.is_none() && found.differs(&span.measures);
                if differs && let Some(span) = self.keep(span) {
                    set(&mut self.states, found.index, PlanState::Differs);
                    self.differs.insert(found.index, span);
                } else {
                    set(&mut self.states, found.index, PlanState::Agrees);
                }
            }
            None => match self.keep(span) {
                // Most groups have one such span: room for more would be counted nowhere.
                Some(span) => {
                    let spans = self.other_plans.entry(group);
                    spans.or_insert_with(|| Vec::with_capacity(1)).push(span);
                }
                // Neither it nor its instance is shown.
                None => self.groups[group] = Group::Settled,
            },
        }
        Ok(())
    }

    /// What is kept of a span, if there is room.
    fn keep(&mut self, span: Span) -> Option<SeenSpan> {
        let span = SeenSpan::from(span);
        let weight = self.seen_weight + span.weight();
        if self.seen == self.limits.differing || weight > self.limits.differing_memory {
            self.is_cut = true;
            return None;
        }
        self.seen += 1;
        self.seen_weight = weight;
        Some(span)
    }

    /// Shows those of the spans that are open, if there is room for all. Returns whether there was.
    fn add_open(&mut self, spans: &[SeenSpan]) -> io::Result<bool> {
        let open = spans.iter().filter(|span| !span.has_stopped);
        let count = open.clone().count();
        let is_full =
            self.opened + count > self.limits.open || self.open.memory() > self.limits.open_memory;
        if is_full && count > 0 {
            self.is_cut = true;
            return Ok(false);
        }
        self.opened += count;
        for span in open {
            self.open.write(&OpenWithoutInstance {
                span: span.id.to_string(),
                target: span.target.clone().into(),
                start: span.start,
                proposal: proposal::stop(&span.target, self.snapshot.at),
            })?;
        }
        Ok(true)
    }

    /// All spans have come. No start is dated before `floor`.
    pub(crate) fn finish(mut self, floor: Timestamp) -> io::Result<Compared> {
        for (group, spans) in std::mem::take(&mut self.other_plans) {
            if self.groups[group] != Group::Settled {
                self.add_other_plans(group, spans)?;
            }
        }
        Ok(Compared {
            starts: Starts::new(self.snapshot.at, floor, self.limits.ends),
            snapshot: self.snapshot,
            open: self.open.finish()?,
            states: self.states,
            groups: self.groups,
            differs: self.differs,
            is_cut: self.is_cut,
        })
    }

    /// Takes the spans of an instance with plans that the snapshot does not know.
    fn add_other_plans(&mut self, group: usize, mut spans: Vec<SeenSpan>) -> io::Result<()> {
        let left: Vec<u32> = self
            .snapshot
            .instances
            .of_group(group)
            .filter(|index| state(&self.states, *index) == Some(PlanState::Alone))
            .take(2)
            .collect();
        let has_stopped = spans.iter().any(|span| span.has_stopped);
        let may_go_on = self.groups[group] == Group::Ran && !has_stopped;
        if let ([index], 1, true) = (left.as_slice(), spans.len(), may_go_on) {
            set(&mut self.states, *index, PlanState::Differs);
            self.differs.extend(spans.pop().map(|span| (*index, span)));
            return Ok(());
        }
        let are_shown = self.add_open(&spans)?;
        // The start of an instance that runs with another plan would bill that time twice.
        if has_stopped || !are_shown {
            self.groups[group] = Group::Settled;
        }
        Ok(())
    }
}

impl Compared {
    pub(super) fn is_alone(&self, index: u32) -> bool {
        state(&self.states, index) == Some(PlanState::Alone)
    }

    pub(super) fn has_alone(&self) -> bool {
        self.states.contains(&PlanState::Alone)
    }

    /// There is a span of an instance, after all.
    pub(super) fn settle(&mut self, index: u32) {
        if self.is_alone(index) {
            set(&mut self.states, index, PlanState::Agrees);
        }
    }
}

fn state(states: &[PlanState], index: u32) -> Option<PlanState> {
    states.get(usize::try_from(index).ok()?).copied()
}

fn set(states: &mut [PlanState], index: u32, state: PlanState) {
    let place = usize::try_from(index).ok();
    if let Some(kept) = place.and_then(|place| states.get_mut(place)) {
        *kept = state;
    }
}

//! The comparison of the spans with a snapshot.
//!
//! Spans that ran at the moment of the snapshot come one by one. A span and an instance of the same
//! target belong together. Of one instance with another plan, a span and an instance that are left over
//! belong together, too, if there is but one of each.
//!
//! A span that has stopped since then ran at that moment, so its instance is not new; but nothing
//! can be proposed for it any more.

use std::collections::BTreeMap;
use std::io;

use sampler_domain::Span;
use serde::Serialize;

use super::digest;
use super::instances::Snapshot;
use super::proposal::Proposal;
use super::spool::{Spool, Spooled};

/// Instances that differ, or of which spans with other plans run. Their spans are in memory.
const SPANS_MAX: usize = 20_000;

/// The state of an instance in the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No span was found yet.
    Alone,
    /// There is a span, and nothing to propose.
    Agrees,
    /// There is a span with another plan or other measures.
    Differs,
}

/// A comparison that goes on.
pub(crate) struct Comparison {
    snapshot: Snapshot,
    /// By the instance's place in the body.
    states: Vec<State>,
    differs: BTreeMap<u32, Span>,
    /// Spans of an instance of which the snapshot knows other plans, by that instance.
    other_plans: BTreeMap<u128, Vec<Span>>,
    others: usize,
    open: Spool,
    /// Whether there was no room for some.
    is_cut: bool,
}

/// The result of the comparison.
pub(crate) struct Compared {
    pub(super) snapshot: Snapshot,
    /// The open spans without an instance, each as it is shown.
    pub(super) open: Spooled,
    states: Vec<State>,
    pub(super) differs: BTreeMap<u32, Span>,
    pub(super) is_cut: bool,
}

/// An open span without an instance, as it is shown.
#[derive(Serialize)]
struct OpenSpan<'a> {
    span: String,
    target: &'a sampler_domain::Target,
    start: sampler_domain::Timestamp,
    proposal: Proposal<'a>,
}

impl Comparison {
    pub(crate) fn new(snapshot: Snapshot) -> Self {
        Self {
            states: vec![State::Alone; snapshot.instances.count()],
            snapshot,
            differs: BTreeMap::new(),
            other_plans: BTreeMap::new(),
            others: 0,
            open: Spool::new(),
            is_cut: false,
        }
    }

    /// Takes a span that ran at the moment of the snapshot.
    pub(crate) fn add(&mut self, span: Span) -> io::Result<()> {
        let instances = &self.snapshot.instances;
        let key = digest::of_instance(&span.target);
        if let Some(found) = instances.find(key, &span.target) {
            let differs = span.end.is_none() && found.differs(&span.measures);
            self.pair(found.index, span, differs);
        } else if instances.range(key).is_empty() {
            self.add_open(&span)?;
        } else if self.others < SPANS_MAX {
            self.others += 1;
            self.other_plans.entry(key).or_default().push(span);
        } else {
            // Neither it nor its instance is shown.
            self.is_cut = true;
            let range = instances.range(key);
            let indices: Vec<u32> = instances.indices(range).collect();
            for index in indices {
                self.settle(index);
            }
        }
        Ok(())
    }

    fn pair(&mut self, index: u32, span: Span, differs: bool) {
        if !differs {
            return self.settle(index);
        }
        if self.differs.len() == SPANS_MAX {
            self.is_cut = true;
            return self.settle(index);
        }
        self.set(index, State::Differs);
        self.differs.insert(index, span);
    }

    fn settle(&mut self, index: u32) {
        if self.state(index) == Some(State::Alone) {
            self.set(index, State::Agrees);
        }
    }

    fn state(&self, index: u32) -> Option<State> {
        self.states.get(usize::try_from(index).ok()?).copied()
    }

    fn set(&mut self, index: u32, state: State) {
        let place = usize::try_from(index).ok();
        if let Some(kept) = place.and_then(|place| self.states.get_mut(place)) {
            *kept = state;
        }
    }

    fn add_open(&mut self, span: &Span) -> io::Result<()> {
        if span.end.is_some() {
            return Ok(());
        }
        self.open.write(&OpenSpan {
            span: span.id.to_string(),
            target: &span.target,
            start: span.start,
            proposal: Proposal::stop(&span.target, self.snapshot.at),
        })
    }

    /// All spans have come.
    pub(crate) fn finish(mut self) -> io::Result<Compared> {
        for (key, spans) in std::mem::take(&mut self.other_plans) {
            self.add_other_plans(key, spans)?;
        }
        Ok(Compared {
            snapshot: self.snapshot,
            open: self.open.finish()?,
            states: self.states,
            differs: self.differs,
            is_cut: self.is_cut,
        })
    }

    /// Takes the spans of an instance with plans that the snapshot does not know.
    fn add_other_plans(&mut self, key: u128, mut spans: Vec<Span>) -> io::Result<()> {
        let instances = &self.snapshot.instances;
        let left = instances.indices(instances.range(key));
        let left: Vec<u32> = left
            .filter(|index| self.state(*index) == Some(State::Alone))
            .collect();
        let has_stopped = spans.iter().any(|span| span.end.is_some());
        match (left.as_slice(), spans.len()) {
            ([index], 1) if !has_stopped => {
                let span = spans.remove(0);
                self.pair(*index, span, true);
            }
            _ => {
                // The start of an instance that ran with another plan would bill that time twice.
                if has_stopped {
                    for index in left {
                        self.settle(index);
                    }
                }
                spans.iter().try_for_each(|span| self.add_open(span))?;
            }
        }
        Ok(())
    }
}

impl Compared {
    /// Whether there is no span of an instance.
    pub(super) fn is_alone(&self, index: u32) -> bool {
        let place = usize::try_from(index).ok();
        place.and_then(|place| self.states.get(place)) == Some(&State::Alone)
    }

    /// Whether there is an instance without a span.
    pub(super) fn has_alone(&self) -> bool {
        self.states.contains(&State::Alone)
    }
}

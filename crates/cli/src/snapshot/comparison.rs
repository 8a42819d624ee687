//! The comparison of the spans of a resource with the instances that really run.
//!
//! A span and an instance of the same target belong together. So do a span and an instance that differ
//! in the plan alone, if one of each is left over. A span that has stopped since then ran at that time,
//! so its instance is not new. A span that begins later is not listed, but no start is proposed that
//! would run beside it.
//!
//! The provider says since when an instance runs, whatever its plan. Some of that time may be in spans
//! that have ended: a start from before their end would bill that time twice. So where an instance has
//! no span, its earlier spans are read, too.

use std::collections::HashMap;

use sampler_api::Target;
use sampler_verify::moment::Millis;
use serde::Deserialize;

use super::proposal::{Difference, Found};
use crate::event::{Measured, are_equal};

/// An instance that runs, as its provider knows it.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub(crate) target: Target,
    /// Since when it runs for this customer, under any plan.
    pub(crate) since: Option<Millis>,
    /// Measures that the provider does not name are not compared.
    pub(crate) measured_usage: Option<Vec<Measured>>,
}

/// A span of the API, as far as it matters here.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct SpanSeen {
    pub(crate) id: String,
    pub(crate) target: Target,
    pub(crate) measured_usage: Vec<Measured>,
    pub(crate) start: Millis,
    pub(crate) end: Option<Millis>,
}

/// What distinguishes an instance and its customer, whatever the plan.
pub(crate) type Key = [String; 4];

/// The instances of one key, whose plans differ.
#[derive(Debug)]
struct Group {
    state: GroupState,
    /// The places of its instances.
    places: Vec<usize>,
    /// Spans of it with plans that the provider does not know.
    other_plans: Vec<SpanSeen>,
    /// When its last span ended, of those that ended before.
    ended: Option<Millis>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GroupState {
    /// No span of it ran.
    Idle,
    /// Spans of it ran. What starts now begins no earlier than the time of the snapshot.
    Ran,
    /// Nothing is to start: a span of it began since then, or has stopped since then.
    Settled,
}

#[derive(Debug)]
enum InstanceState {
    /// No span was found yet.
    Alone,
    /// There is a span, and nothing to propose.
    Agrees,
    /// There is a span with another plan or other measures.
    Differs(Box<SpanSeen>),
}

/// A comparison that has not ended.
#[derive(Debug)]
pub(crate) struct Comparison {
    at: Millis,
    /// No start is dated earlier: it would be refused.
    floor: Millis,
    instances: Vec<Instance>,
    states: Vec<InstanceState>,
    groups: Vec<Group>,
    by_key: HashMap<Key, usize>,
    open: Vec<SpanSeen>,
}

impl Comparison {
    /// Compares with the instances that ran at a time. The spans that ran then, or begin later, come next.
    pub(crate) fn new(at: Millis, floor: Millis, instances: Vec<Instance>) -> Self {
        let mut groups: Vec<Group> = Vec::new();
        let mut by_key = HashMap::new();
        for (place, instance) in instances.iter().enumerate() {
            let group = *by_key.entry(key_of(&instance.target)).or_insert_with(|| {
                groups.push(Group::new());
                groups.len() - 1
            });
            groups[group].places.push(place);
        }
        Self {
            at,
            floor: floor.min(at),
            states: instances.iter().map(|_| InstanceState::Alone).collect(),
            instances,
            groups,
            by_key,
            open: Vec::new(),
        }
    }

    /// Takes a span that ran at the time of the snapshot, or begins later.
    pub(crate) fn add(&mut self, span: SpanSeen) {
        let Some(group) = self.by_key.get(&key_of(&span.target)).copied() else {
            if span.start <= self.at && span.end.is_none() {
                self.open.push(span);
            }
            return;
        };
        if span.start > self.at {
            self.groups[group].state = GroupState::Settled;
            return;
        }
        if self.groups[group].state == GroupState::Idle {
            self.groups[group].state = GroupState::Ran;
        }
        let Some(place) = self.place_of(group, &span.target) else {
            self.groups[group].other_plans.push(span);
            return;
        };
        let expected = self.instances[place].measured_usage.as_deref();
        let differs = expected.is_some_and(|it| !are_equal(it, &span.measured_usage));
        self.states[place] = match span.end {
            None if differs => InstanceState::Differs(Box::new(span)),
            _ => InstanceState::Agrees,
        };
    }

    /// All of these have come. Returns the time whose spans decide from when instances without a span
    /// start; none where no start depends on any.
    pub(crate) fn before(&mut self) -> Option<(Millis, Millis)> {
        for group in 0..self.groups.len() {
            self.join_other_plans(group);
        }
        let idle = self.groups.iter().filter(|it| it.state == GroupState::Idle);
        let places = idle.flat_map(|group| &group.places);
        let earliest = places
            .filter_map(|place| self.instances[*place].since)
            .min()?;
        let from = earliest.max(self.floor);
        (from < self.at).then_some((from, self.at))
    }

    /// Joins a span and an instance that differ in the plan alone, if one of each is left over.
    fn join_other_plans(&mut self, group: usize) {
        let group = &mut self.groups[group];
        let mut spans = std::mem::take(&mut group.other_plans);
        let states = &self.states;
        let is_alone = |place: &&usize| matches!(states[**place], InstanceState::Alone);
        let left: Vec<usize> = group.places.iter().filter(is_alone).copied().collect();
        let has_stopped = spans.iter().any(|span| span.end.is_some());
        let may_go_on = group.state == GroupState::Ran && !has_stopped;
        if let ([place], 1, true) = (left.as_slice(), spans.len(), may_go_on)
            && let Some(span) = spans.pop()
        {
            self.states[*place] = InstanceState::Differs(Box::new(span));
            return;
        }
        if has_stopped {
            group.state = GroupState::Settled;
        }
        self.open
            .extend(spans.into_iter().filter(|it| it.end.is_none()));
    }

    /// Takes a span that ran in the time before.
    pub(crate) fn add_before(&mut self, span: &SpanSeen) {
        let Some(group) = self.by_key.get(&key_of(&span.target)).copied() else {
            return;
        };
        let place = self.place_of(group, &span.target);
        let group = &mut self.groups[group];
        let Some(end) = span.end.filter(|end| *end <= self.at) else {
            // It ran at the time of the snapshot. Its start came meanwhile, if it was not seen before.
            if let Some(state) = place.map(|place| &mut self.states[place])
                && matches!(state, InstanceState::Alone)
            {
                *state = InstanceState::Agrees;
            }
            if group.state == GroupState::Idle {
                group.state = GroupState::Settled;
            }
            return;
        };
        // A span of no length may have been started by the very event that would be proposed, and that
        // would be taken for a repeat.
        let end = end.saturating_add(i64::from(end == span.start));
        group.ended = group.ended.max(Some(end));
    }

    pub(crate) fn finish(self) -> Difference {
        let mut difference = Difference::of(self.at, self.instances.len());
        for span in &self.open {
            difference
                .open_without_instance
                .push(Found::gone(span, self.at));
        }
        for (place, (instance, state)) in self.instances.iter().zip(&self.states).enumerate() {
            match state {
                InstanceState::Agrees => {}
                InstanceState::Differs(span) => {
                    let found = Found::changed(span, instance, self.at);
                    difference.differs.push(found);
                }
                InstanceState::Alone => {
                    let start = self.start_of(place).map(|at| Found::new(instance, at));
                    difference.instance_without_span.extend(start);
                }
            }
        }
        difference
    }

    /// From when the start of an instance without a span is proposed; none where it is not.
    fn start_of(&self, place: usize) -> Option<Millis> {
        let instance = &self.instances[place];
        let group = &self.groups[self.by_key[&key_of(&instance.target)]];
        match (group.state, instance.since) {
            (GroupState::Settled, _) => None,
            (GroupState::Idle, Some(since)) => {
                let since = since.max(group.ended.unwrap_or(since));
                Some(since.max(self.floor).min(self.at))
            }
            (GroupState::Idle, None) | (GroupState::Ran, _) => Some(self.at),
        }
    }

    /// The place of the instance of a group that has the plan of a target.
    fn place_of(&self, group: usize, target: &Target) -> Option<usize> {
        let mut places = self.groups[group].places.iter().copied();
        places.find(|place| self.instances[*place].target.plan_id == target.plan_id)
    }
}

impl Group {
    fn new() -> Self {
        Self {
            state: GroupState::Idle,
            places: Vec::new(),
            other_plans: Vec::new(),
            ended: None,
        }
    }
}

pub(crate) fn key_of(target: &Target) -> Key {
    [
        target.organization_id.clone(),
        target.space_id.clone(),
        target.consumer_id.clone(),
        target.resource_instance_id.clone(),
    ]
}

#[cfg(test)]
#[path = "comparison_tests.rs"]
mod tests;

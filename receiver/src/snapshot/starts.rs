//! The times of proposed starts.
//!
//! The provider says since when an instance runs, whatever its plan. Some of that time may be in spans
//! that have ended, under this plan or another one: a start from before their end would bill that time
//! twice, or be refused. So where an instance has no span, its earlier spans are read, too.

use std::collections::BTreeMap;

use sampler_domain::{Span, Timestamp};

use super::comparison::{Compared, Group};
use super::digest;
use super::instance::Instance;

/// What decides about the times of starts.
pub(super) struct Starts {
    at: Timestamp,
    /// An event that is dated earlier may be refused before it is applied.
    floor: Timestamp,
    /// When the last span of an instance ended, by its group.
    ends: BTreeMap<usize, Timestamp>,
    ends_max: usize,
}

impl Starts {
    pub(super) fn new(at: Timestamp, floor: Timestamp, ends_max: usize) -> Self {
        Self {
            at,
            floor: floor.min(at),
            ends: BTreeMap::new(),
            ends_max,
        }
    }

    /// Takes the end of a span of a group. Returns whether there was room.
    fn add(&mut self, group: usize, end: Timestamp) -> bool {
        if self.ends.len() == self.ends_max && !self.ends.contains_key(&group) {
            return false;
        }
        let latest = self.ends.entry(group).or_insert(end);
        *latest = end.max(*latest);
        true
    }

    /// The start of an instance that runs since then.
    fn behind(&self, group: usize, since: Timestamp) -> Timestamp {
        let end = self.ends.get(&group).copied().unwrap_or(Timestamp::MIN);
        since.max(end).max(self.floor).min(self.at)
    }
}

impl Compared {
    /// The time whose spans decide from when instances without a span start; none where no start
    /// depends on any.
    pub(crate) fn before(&self) -> Option<(Timestamp, Timestamp)> {
        let all = self.snapshot.instances.grouped();
        let are_idle = all.filter(|(group, index, _)| {
            self.groups[*group] == Group::Idle && self.is_alone(*index)
        });
        let earliest = are_idle.map(|(.., since)| since).min()?;
        let Starts { at, floor, .. } = self.starts;
        let from = earliest.max(floor);
        (from < at).then_some((from, at))
    }

    /// Takes a span that ran in that time.
    pub(crate) fn add_before(&mut self, span: &Span) {
        let key = digest::of_instance(&span.target);
        let instances = &self.snapshot.instances;
        let Some(group) = instances.group(key) else {
            return;
        };
        let Some(end) = span.end.filter(|end| *end <= self.starts.at) else {
            // It ran at the time of the snapshot. Its start came meanwhile, if it was not seen before.
            if let Some(found) = instances.find(key, &span.target) {
                self.settle(found.index);
            }
            if self.groups[group] == Group::Idle {
                self.groups[group] = Group::Settled;
            }
            return;
        };
        // A span of no length may have been started by the very event that would be proposed, and
        // that would be taken for a repeat.
        let end = end.plus(i64::from(end == span.start));
        if self.groups[group] == Group::Idle && !self.starts.add(group, end) {
            self.groups[group] = Group::Settled;
            self.is_cut = true;
        }
    }

    /// From when the start of an instance is to be proposed; none where it is not.
    pub(super) fn start_of(&self, index: u32, instance: &Instance) -> Option<Timestamp> {
        if !self.is_alone(index) {
            return None;
        }
        let at = self.starts.at;
        let group = self
            .snapshot
            .instances
            .group(digest::of_instance(&instance.target))?;
        match (self.groups[group], instance.since) {
            (Group::Began | Group::Settled, _) => None,
            (Group::Idle, Some(since)) => Some(self.starts.behind(group, since)),
            (Group::Idle, None) | (Group::Ran, _) => Some(at),
        }
    }
}

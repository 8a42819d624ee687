//! All instances of a snapshot, in bounded memory: digests to find them by, and records to write the
//! answer from.

use std::io;
use std::num::NonZeroU64;

use sampler_domain::{Id, Measures, Target, Timestamp};

use super::digest;
use super::instance::{self, Instance, Kept};
use super::spool::{Spool, Spooled};

/// The record of an instance while spans are compared. Records are in the order of their fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Record {
    instance: u128,
    plan: u64,
    /// Its place in the body.
    index: u32,
    /// Since when it runs. Where the provider does not say, it is the end of time: no span from before
    /// is looked for.
    since: Timestamp,
    /// None where the provider does not say.
    measures: Option<NonZeroU64>,
}

impl Record {
    fn has_target_of(&self, other: &Self) -> bool {
        self.instance == other.instance && self.plan == other.plan
    }
}

/// There are up to a million records, so the size of one matters.
const _: () = assert!(size_of::<Record>() <= 48);

/// Instances that are being read.
#[derive(Debug)]
pub(super) struct Gathering {
    records: Vec<Record>,
    spool: Spool,
}

/// A snapshot that has arrived.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) resource: Id,
    /// The time that it describes.
    pub(crate) at: Timestamp,
    pub(super) instances: Instances,
}

/// Instances, to be found by what they are.
#[derive(Debug)]
pub(super) struct Instances {
    records: Vec<Record>,
    kept: Spooled,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct FoundInstance {
    /// Its place in the body.
    pub(super) index: u32,
    measures: Option<NonZeroU64>,
}

/// The place of an instance whose target is in the list already.
pub(super) struct Twice(pub(super) u32);

impl Gathering {
    pub(super) fn new() -> Self {
        Self {
            records: Vec::new(),
            spool: Spool::new(),
        }
    }

    pub(super) fn add(&mut self, index: usize, instance: &Instance) -> io::Result<()> {
        let index = u32::try_from(index).map_err(io::Error::other)?;
        self.records.push(Record {
            instance: digest::of_instance(&instance.target),
            plan: digest::of_plan(&instance.target),
            index,
            since: instance.since.unwrap_or(Timestamp::MAX),
            measures: instance.measures.as_ref().map(digest::of_measures),
        });
        self.spool.write(&Kept::from(instance))
    }

    /// Bytes of memory that all of them take.
    pub(super) fn memory(&self) -> usize {
        self.records.len() * size_of::<Record>() + self.spool.memory()
    }

    /// All instances; or up to `max` of those whose target is in the list twice.
    pub(super) fn finish(mut self, max: usize) -> io::Result<Result<Instances, Vec<Twice>>> {
        self.records.sort_unstable();
        let mut twice: Vec<u32> = self
            .records
            .windows(2)
            .filter(|pair| pair[0].has_target_of(&pair[1]))
            .map(|pair| pair[1].index)
            .take(max)
            .collect();
        twice.sort_unstable();
        if !twice.is_empty() {
            return Ok(Err(twice.into_iter().map(Twice).collect()));
        }
        Ok(Ok(Instances {
            records: self.records,
            kept: self.spool.finish()?,
        }))
    }
}

impl Instances {
    pub(super) fn count(&self) -> usize {
        self.records.len()
    }

    /// The group of an instance: all its plans. Its number is the place of its first record; there is
    /// none where the snapshot does not know the instance.
    pub(super) fn group(&self, key: u128) -> Option<usize> {
        let first = self.records.partition_point(|record| record.instance < key);
        let record = self.records.get(first)?;
        (record.instance == key).then_some(first)
    }

    /// The places in the body of a group.
    pub(super) fn of_group(&self, group: usize) -> impl Iterator<Item = u32> {
        let records = self.records.get(group..).unwrap_or_default();
        let key = records.first().map(|record| record.instance);
        let of_group = records
            .iter()
            .take_while(move |record| Some(record.instance) == key);
        of_group.map(|record| record.index)
    }

    /// All of them: their groups, their places in the body, and since when they run.
    pub(super) fn grouped(&self) -> impl Iterator<Item = (usize, u32, Timestamp)> {
        let (mut group, mut key) = (0, None);
        self.records.iter().enumerate().map(move |(place, record)| {
            if key != Some(record.instance) {
                (group, key) = (place, Some(record.instance));
            }
            (group, record.index, record.since)
        })
    }

    /// The one of a target with its plan.
    pub(super) fn find(&self, key: u128, target: &Target) -> Option<FoundInstance> {
        let wanted = (key, digest::of_plan(target));
        let place = self
            .records
            .binary_search_by_key(&wanted, |record| (record.instance, record.plan))
            .ok()?;
        let Record {
            index, measures, ..
        } = *self.records.get(place)?;
        Some(FoundInstance { index, measures })
    }

    /// All of them, in the order of the body.
    pub(super) fn read(&self, resource: &Id) -> impl Iterator<Item = io::Result<(u32, Instance)>> {
        (0..).zip(self.kept.read()).map(|(index, line)| {
            let instance = instance::kept(&line?, resource);
            Ok((index, instance.ok_or(io::ErrorKind::InvalidData)?))
        })
    }
}

impl FoundInstance {
    /// Whether the provider says that other measures are used.
    pub(super) fn differs(self, measures: &Measures) -> bool {
        let seen = self.measures;
        seen.is_some_and(|seen| seen != digest::of_measures(measures))
    }
}

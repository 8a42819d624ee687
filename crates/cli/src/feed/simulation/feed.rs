//! The feed, with its real rules and its real state on a disk, and everything that can go wrong around it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;

use sampler_api::SnapshotReport;
use sampler_verify::moment::Millis;
use url::Url;

use super::receiver::Receiver;
use super::world::{Foundation, readable};
use super::{Faults, Numbers};
use crate::feed::hole::{Hole, Listed, Open};
use crate::feed::mapping::Mapping;
use crate::feed::rules::{Batch, Cursor, Mark, Refused, Step, Unknown};
use crate::feed::store::Store;
use crate::feed::usage_event::{Quantities, Record, UsageEvent};
use crate::journal::journal_of;

/// A feed, and how often each fault has happened to it.
pub(super) struct Feed {
    faults: Faults,
    folder: tempfile::TempDir,
    pub(super) store: Store,
    mapping: Mapping,
    pub(super) kills: u64,
    pub(super) cut_writes: u64,
    pub(super) cut_folds: u64,
    pub(super) lost_answers: u64,
    pub(super) cut_answers: u64,
    pub(super) holes: u64,
    /// What earlier states have told, before they were lost.
    told: Vec<Unknown>,
}

fn platform() -> Url {
    Url::parse("https://api.example.com").unwrap()
}

fn open(folder: &tempfile::TempDir) -> Store {
    Store::open(&folder.path().join("feed.json"), &platform(), false).unwrap()
}

impl Feed {
    pub(super) fn new(faults: Faults) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self {
            faults,
            store: open(&folder),
            folder,
            mapping: Mapping::default(),
            kills: 0,
            cut_writes: 0,
            cut_folds: 0,
            lost_answers: 0,
            cut_answers: 0,
            holes: 0,
            told: Vec::new(),
        }
    }

    /// Everything that it has said nobody recorded.
    pub(super) fn unknown(&self) -> Vec<Unknown> {
        let (untold, count) = self.store.untold(usize::MAX).unwrap();
        assert_eq!(untold.len() as u64, count);
        self.told.iter().cloned().chain(untold).collect()
    }

    fn end(&mut self) {
        let folder = self.folder.path().join("other");
        let other = Store::open(&folder, &platform(), true).unwrap();
        drop(std::mem::replace(&mut self.store, other));
    }

    /// Killed, and started again.
    fn kill(&mut self) {
        self.kills += 1;
        self.end();
        self.store = open(&self.folder);
    }

    /// The disk with the state is lost.
    pub(super) fn lose(&mut self) {
        self.told = self.unknown();
        self.end();
        self.folder = tempfile::tempdir().unwrap();
        self.store = open(&self.folder);
    }

    /// Killed within the last write to the journal: its line is cut short.
    fn cut_write(&mut self, numbers: &mut Numbers) {
        self.end();
        let journal = journal_of(&self.folder.path().join("feed.json"));
        let text = fs::read(&journal).unwrap();
        let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
        if let Some(last) = lines.last() {
            self.cut_writes += 1;
            let cut = 1 + numbers.below(last.len() as u64) as usize;
            fs::write(&journal, &text[..text.len() - cut]).unwrap();
        }
        self.store = open(&self.folder);
    }

    /// Killed between the new document and the empty journal.
    fn cut_fold(&mut self) {
        self.cut_folds += 1;
        let journal = journal_of(&self.folder.path().join("feed.json"));
        let before = fs::read(&journal).unwrap();
        self.store.fold().unwrap();
        self.end();
        fs::write(&journal, before).unwrap();
        self.store = open(&self.folder);
    }

    /// Sends a step, as often as it takes. Returns whether it counts: one whose note was cut was never sent.
    fn send(&mut self, step: Step, receiver: &mut Receiver, numbers: &mut Numbers) -> bool {
        self.store.begin(step).unwrap();
        if self.faults.disk && numbers.is_one_of(6) {
            self.cut_write(numbers);
            if self.store.pending().is_none() {
                return false;
            }
        }
        // Nothing pending: the kill came after the answers were noted.
        while let Some(step) = self.store.pending().cloned() {
            let mut until = step.events.len();
            if self.faults.kills && numbers.is_one_of(4) {
                until = numbers.below(until as u64 + 1) as usize;
            }
            let is_killed = self.faults.kills && numbers.is_one_of(8);
            let mut refused = Vec::new();
            for (index, event) in step.events[..until].iter().enumerate() {
                if !receiver.take(&event.body) {
                    let (status, is_open) = (422, false);
                    refused.push(Refused {
                        index,
                        status,
                        is_open,
                    });
                }
            }
            if until < step.events.len() || is_killed {
                self.kill();
                continue;
            }
            if self.faults.answers && numbers.is_one_of(4) {
                self.lost_answers += 1;
                continue;
            }
            self.store.finish(refused).unwrap();
            if self.faults.disk && numbers.is_one_of(6) {
                self.cut_write(numbers);
            }
        }
        if self.faults.disk && numbers.is_one_of(6) {
            self.cut_fold();
        }
        true
    }

    pub(super) fn mark(&self) -> Option<Mark> {
        self.store.state.cursors.get(&Record::Apps)?.mark.clone()
    }

    pub(super) fn round(
        &mut self,
        world: &Foundation,
        receiver: &mut Receiver,
        numbers: &mut Numbers,
        now: Millis,
    ) {
        loop {
            let cursor = self.store.state.cursors.get(&Record::Apps).cloned();
            let mark = cursor.as_ref().and_then(|cursor| cursor.mark.as_ref());
            let events = world.after(mark, now);
            let (Some(cursor), Some(events)) = (&cursor, events) else {
                self.holes += 1;
                let all = world.after(None, now).unwrap();
                let mark = all[..readable(&all, now)].last().map(Mark::from);
                self.fill(world, mark, receiver, numbers, now);
                continue;
            };
            // The platform is asked again after an answer that never came.
            if self.faults.answers && numbers.is_one_of(4) {
                self.lost_answers += 1;
                continue;
            }
            if !cursor.has_more {
                self.read(&events[..readable(&events, now)], receiver, numbers);
            }
            if cursor.is_complete {
                return;
            }
            self.fill(world, self.mark(), receiver, numbers, now);
        }
    }

    fn read(&mut self, events: &[UsageEvent], receiver: &mut Receiver, numbers: &mut Numbers) {
        let mut rest = events;
        while !rest.is_empty() {
            let mut batch = Batch::new(&self.store.state, &self.mapping);
            let count = rest.len().min(1 + numbers.below(200) as usize);
            for event in &rest[..count] {
                batch.add(Record::Apps, event);
            }
            let step = batch.step;
            if self.send(step, receiver, numbers) {
                rest = &rest[count..];
            }
        }
    }

    fn fill(
        &mut self,
        world: &Foundation,
        mark: Option<Mark>,
        receiver: &mut Receiver,
        numbers: &mut Numbers,
        now: Millis,
    ) {
        let running = world.listed(now);
        let running = running
            .iter()
            .map(|(key, quantities)| (Foundation::running(key, *quantities), 1));
        let listed = Listed {
            running: running.collect(),
            unplaced: HashSet::new(),
            organizations: HashSet::from(["o".to_owned()]),
        };
        let left = world.after(mark.as_ref(), now).unwrap();
        let left: HashSet<String> = left
            .iter()
            .filter_map(|event| event.subject().map(str::to_owned))
            .collect();
        let open = Open {
            spans: open_at(receiver),
            ..Open::default()
        };
        let hole = Hole {
            record: Record::Apps,
            state: &self.store.state,
            mapping: &self.mapping,
            at: now / 1_000 * 1_000,
            mark,
            listed: &listed,
            left: &left,
            open: &open,
        };
        let bodies: BTreeMap<String, String> = hole.snapshots();
        let bodies = bodies.into_values();
        let answers: Vec<SnapshotReport> = bodies.map(|body| receiver.compare(&body)).collect();
        self.cut_answers += answers.iter().filter(|answer| answer.more).count() as u64;
        let filled = hole.filled(&answers);
        assert!(!filled.is_cut && filled.others.is_empty());
        let step = filled.step;
        self.send(step, receiver, numbers);
    }

    /// Whether all is read up to the last event that is old enough.
    pub(super) fn is_complete(&self) -> bool {
        let cursor: Option<&Cursor> = self.store.state.cursors.get(&Record::Apps);
        cursor.is_some_and(|cursor| cursor.is_complete)
    }
}

fn open_at(receiver: &Receiver) -> HashMap<String, (Millis, Option<Quantities>)> {
    let spans = receiver.spans.iter();
    let open = spans.filter_map(|(key, spans)| {
        let (start, measures, end) = spans.last()?;
        let quantities = Quantities {
            memory_mb: measures[0]["quantity"].as_i64(),
            instances: measures[1]["quantity"].as_i64()?,
        };
        end.is_none()
            .then_some((key.clone(), (*start, Some(quantities))))
    });
    open.collect()
}

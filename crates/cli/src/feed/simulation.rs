//! A foundation, its feed and a receiver in virtual time: 100,000 usage events with late inserts, clocks
//! that differ, repeats, kills at every step and a reseed, against an oracle that only knows what was done.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "its numbers are small"
)]

mod receiver;

use std::collections::{BTreeMap, HashSet};

use sampler_api::SnapshotReport;
use sampler_verify::moment::Millis;
use url::Url;

use super::hole::{Hole, Listed};
use super::mapping::Mapping;
use super::rules::{Batch, Bound, Fate, Mark, Refused, Step};
use super::store::Store;
use super::usage_event::{Kind, Quantities, Record, Running, Says, UsageEvent, old_enough};
use receiver::Receiver;

const EVENTS: usize = 100_000;
const PROCESSES: u64 = 400;
const MIN_AGE: Millis = 300_000;
/// How far the clocks of API servers differ, in ms, and how late a row is seen after its insert.
const SKEW: i64 = 3_000;
const LATE_MAX: Millis = 60_000;

/// Numbers from a seed (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn is_one_of(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// A row, and when it is seen.
struct Row {
    event: UsageEvent,
    seen_at: Millis,
}

/// What really happened to a process: how much of it ran from when on, as the platform has told it.
type History = Vec<(Millis, Option<Quantities>)>;

#[derive(Default)]
struct Foundation {
    rows: Vec<Row>,
    runs: BTreeMap<String, Quantities>,
    truth: BTreeMap<String, History>,
    ids: u64,
}

impl Foundation {
    fn running(key: &str, quantities: Quantities) -> Running {
        Running {
            kind: Kind::Process { r#type: None },
            guid: key.to_owned(),
            organization_id: "o".to_owned(),
            space_id: "s".to_owned(),
            consumer_id: format!("app:{key}"),
            quantities,
        }
    }

    fn act(&mut self, numbers: &mut Numbers, now: Millis) {
        let key = format!("p-{}", numbers.below(PROCESSES));
        let before = self.runs.get(&key).copied();
        let quantities = Quantities::of(64 + numbers.below(8) as i64, numbers.below(4) as i64);
        let next = match before {
            Some(_) if numbers.is_one_of(2) => None,
            _ => Some(quantities),
        };
        match next {
            Some(quantities) => self.runs.insert(key.clone(), quantities),
            None => self.runs.remove(&key),
        };
        // Each API server writes by its own clock, in whole seconds.
        let skew = numbers.below(2 * SKEW as u64) as i64 - SKEW;
        let at = (now + skew) / 1_000 * 1_000;
        if next != before {
            let history = self.truth.entry(key.clone()).or_default();
            let last = history.last().map_or(at, |(last, _)| *last);
            history.push((at.max(last), next));
        }
        let late = numbers.is_one_of(5);
        let delay = if late {
            numbers.below(LATE_MAX as u64)
        } else {
            0
        };
        self.ids += 1;
        let guid = format!("event-{}", self.ids);
        self.insert(
            &guid,
            &key,
            next,
            before.is_some(),
            (at, now + delay as i64),
        );
        if numbers.is_one_of(50) {
            self.insert(&guid, &key, next, before.is_some(), (at, now + LATE_MAX));
        }
    }

    fn insert(
        &mut self,
        guid: &str,
        key: &str,
        runs: Option<Quantities>,
        is_change: bool,
        (at, seen_at): (Millis, Millis),
    ) {
        let says = match runs {
            Some(quantities) => Says::Runs {
                running: Box::new(Self::running(key, quantities)),
                is_change,
            },
            None => Says::Ended(key.to_owned()),
        };
        let event = UsageEvent {
            guid: guid.to_owned(),
            created_at: at.to_string(),
            at,
            state: if runs.is_some() { "STARTED" } else { "STOPPED" }.to_owned(),
            says,
        };
        self.rows.push(Row { event, seen_at });
    }

    fn purge(&mut self, now: Millis) {
        self.rows.clear();
        for (key, quantities) in self.runs.clone() {
            self.insert(
                &key,
                &key,
                Some(quantities),
                true,
                (now / 1_000 * 1_000, now),
            );
        }
    }

    fn position(&self, mark: &Mark) -> Option<usize> {
        let mut marks = self
            .rows
            .iter()
            .map(|row| (&row.event.guid, &row.event.created_at));
        marks.rposition(|found| found == (&mark.guid, &mark.created_at))
    }

    /// What is listed: a change that is not committed is in no list. Every process has a row, because
    /// the rows begin with a reseed.
    fn listed(&self, now: Millis) -> BTreeMap<String, Quantities> {
        let mut running = BTreeMap::new();
        for row in self.rows.iter().filter(|row| row.seen_at <= now) {
            match &row.event.says {
                Says::Runs { running: it, .. } => {
                    _ = running.insert(it.guid.clone(), it.quantities);
                }
                Says::Ended(key) => _ = running.remove(key),
                Says::Nothing => {}
            }
        }
        running
    }

    /// The events after a mark that are seen; none if the mark is gone.
    fn after(&self, mark: Option<&Mark>, now: Millis) -> Option<Vec<UsageEvent>> {
        let begin = match mark {
            None => 0,
            Some(mark) => self.position(mark)? + 1,
        };
        let rows = self.rows[begin..].iter();
        let seen = rows.filter(|row| row.seen_at <= now);
        Some(seen.map(|row| row.event.clone()).collect())
    }
}

/// The feed, with its real state on the disk.
struct Feed {
    folder: tempfile::TempDir,
    store: Store,
    mapping: Mapping,
    kills: u64,
    unknown: Vec<(String, Bound)>,
    holes: u64,
}

impl Feed {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self {
            store: open(&folder),
            folder,
            mapping: Mapping::default(),
            kills: 0,
            unknown: Vec::new(),
            holes: 0,
        }
    }

    /// Killed, and started again.
    fn kill(&mut self) {
        self.kills += 1;
        let folder = self.folder.path().join("other");
        drop(std::mem::replace(
            &mut self.store,
            Store::open(&folder, &platform(), true).unwrap(),
        ));
        self.store = open(&self.folder);
    }

    fn send(&mut self, step: Step, receiver: &mut Receiver, numbers: &mut Numbers, now: Millis) {
        self.store.begin(step).unwrap();
        loop {
            // Nothing pending: the kill came after the answers were noted.
            let Some(step) = self.store.pending().cloned() else {
                return;
            };
            let mut until = step.events.len();
            if numbers.is_one_of(20) {
                until = numbers.below(until as u64 + 1) as usize;
            }
            let is_killed = numbers.is_one_of(20);
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
            let unknown = step
                .events
                .iter()
                .filter_map(|event| event.unknown.as_ref());
            let unknown = unknown.map(|it| (it.target.resource_instance_id.clone(), it.what));
            self.unknown.extend(unknown);
            self.store.finish(refused, now).unwrap();
        }
    }

    fn round(
        &mut self,
        world: &Foundation,
        receiver: &mut Receiver,
        numbers: &mut Numbers,
        now: Millis,
    ) {
        let cursor = self.store.state.cursors.get(&Record::Apps).cloned();
        let mark = cursor.as_ref().and_then(|cursor| cursor.mark.as_ref());
        let events = world.after(mark, now);
        let (Some(_), Some(events)) = (&cursor, events) else {
            return self.fill(world, receiver, numbers, now);
        };
        let mut rest = &events[..old_enough(&events, now - MIN_AGE)];
        while !rest.is_empty() {
            let mut batch = Batch::new(&self.store.state, &self.mapping);
            let count = rest.len().min(1 + numbers.below(200) as usize);
            for event in &rest[..count] {
                batch.add(Record::Apps, event);
            }
            let step = batch.step;
            self.send(step, receiver, numbers, now);
            rest = &rest[count..];
        }
    }

    fn fill(
        &mut self,
        world: &Foundation,
        receiver: &mut Receiver,
        numbers: &mut Numbers,
        now: Millis,
    ) {
        self.holes += 1;
        let all = world.after(None, now).unwrap();
        let old = old_enough(&all, now - MIN_AGE);
        let mark = all[..old].last().map(Mark::from);
        let running = world.listed(now);
        let running = running
            .iter()
            .map(|(key, quantities)| (Foundation::running(key, *quantities), 1));
        let listed = Listed {
            running: running.collect(),
            unplaced: HashSet::new(),
            organizations: HashSet::from(["o".to_owned()]),
        };
        let left = all[old..].iter().filter_map(UsageEvent::subject);
        let left: HashSet<String> = left.map(str::to_owned).collect();
        let hole = Hole {
            record: Record::Apps,
            state: &self.store.state,
            mapping: &self.mapping,
            at: now / 1_000 * 1_000,
            mark,
            listed: &listed,
            left: &left,
        };
        let bodies = hole.snapshots().into_values();
        let answers: Vec<SnapshotReport> = bodies.map(|body| receiver.compare(&body)).collect();
        let step = hole.step(&answers);
        self.send(step, receiver, numbers, now);
    }
}

fn platform() -> Url {
    Url::parse("https://api.example.com").unwrap()
}

fn open(folder: &tempfile::TempDir) -> Store {
    Store::open(&folder.path().join("feed.json"), &platform(), false).unwrap()
}

/// Memory times ms, by process, of what the receiver has.
fn billed(receiver: &Receiver, key: &str, until: Millis) -> i64 {
    let spans = receiver.spans.get(key).into_iter().flatten();
    spans
        .map(|(start, measures, end)| {
            measures[0]["quantity"].as_i64().unwrap() * (end.unwrap_or(until) - start)
        })
        .sum()
}

/// The same of what was done.
fn used(history: &History, until: Millis) -> i64 {
    let ends = history.iter().skip(1).map(|(at, _)| *at).chain([until]);
    let pairs = history.iter().zip(ends);
    pairs
        .map(|((at, quantities), end)| {
            let memory = quantities.and_then(|it| it.memory_mb).unwrap_or(0);
            memory * (end - at)
        })
        .sum()
}

#[test]
fn a_hundred_thousand_events_are_billed_as_they_happened() {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let (mut world, mut receiver, mut feed) =
        (Foundation::default(), Receiver::default(), Feed::new());
    let mut now = 1_795_000_000_000;
    // The first run meets an empty platform, so everything after it is recorded.
    feed.round(&world, &mut receiver, &mut numbers, now);
    // What the reseed has taken before it was read.
    let mut lost: HashSet<String> = HashSet::new();
    for number in 0..EVENTS {
        now += 50 + numbers.below(2_000) as i64;
        world.act(&mut numbers, now);
        if numbers.is_one_of(200) {
            feed.round(&world, &mut receiver, &mut numbers, now);
        }
        if number == EVENTS / 2 {
            let cursor = feed.store.state.cursors[&Record::Apps].clone();
            let mark = cursor.mark.as_ref().unwrap();
            let begin = world.position(mark).unwrap() + 1;
            let unread = world.rows[begin..].iter();
            lost.extend(unread.filter_map(|row| row.event.subject().map(str::to_owned)));
            world.purge(now);
        }
        // Old rows are pruned, but not the last.
        if world.rows.len() > 20_000 {
            world.rows.drain(..10_000);
        }
    }
    now += 2 * MIN_AGE;
    feed.round(&world, &mut receiver, &mut numbers, now);
    assert_eq!(feed.holes, 2);
    assert!(feed.kills > 100, "{}", feed.kills);
    assert_eq!(receiver.refused, 0, "what is dated right is not refused");
    assert!(!lost.is_empty() && lost.len() < PROCESSES as usize);
    for (key, history) in &world.truth {
        let is_open = receiver.spans[key]
            .last()
            .is_some_and(|span| span.2.is_none());
        assert_eq!(is_open, world.runs.contains_key(key), "{key}");
        let fate = feed.store.state.fates.get(key);
        assert_eq!(matches!(fate, Some(Fate::Started(_))), is_open, "{key}");
        if !lost.contains(key) {
            assert_eq!(billed(&receiver, key, now), used(history, now), "{key}");
        }
    }
    for (key, _) in &feed.unknown {
        assert!(lost.contains(key), "{key} is recorded");
    }
    assert_eq!(feed.store.state.tracked().count(), world.runs.len());
}

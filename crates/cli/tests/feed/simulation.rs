//! The real feed, with its state on a disk, between a foundation and a receiver in virtual time, with
//! everything that can go wrong. An oracle that only knows what was done judges what is billed.
//! `docs/feed.md` has the command that runs this at length.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "its numbers are small"
)]

mod oracle;
mod outside;
mod world;

use std::fs;
use std::rc::Rc;

use sampler_verify::moment::Millis;
use url::Url;

use super::follow::{Feed, How};
use super::report::Report;
use super::state::{Mark, Unknown};
use super::store::Store;
use super::usage_event::Record;
use crate::failure::Failure;
use crate::show::table;
use oracle::{Gap, Oracle};
use outside::{KILLED, Simulated};
use world::BEGIN;

/// How many events the foundation of the last run has; those of the others have a tenth.
const EVENTS_VARIABLE: &str = "SAMPLER_FEED_EVENTS";
const EVENTS: usize = 6_000;
const MIN_AGE: Millis = 300_000;
/// How often what was not read is lost, in a run with such faults.
const LOSSES: usize = 4;

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

/// What goes wrong.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fault")]
struct Faults {
    /// Rows are seen after rows that were inserted later.
    late: bool,
    /// Each API server has a clock of its own.
    clocks: bool,
    /// Rows are listed twice.
    repeats: bool,
    /// The platform notes what runs, also behind its stop.
    notes: bool,
    /// Answers of both APIs are lost.
    answers: bool,
    /// The feed is killed before and after anything that it does outside.
    kills: bool,
    /// It is killed within a write to its disk.
    disk: bool,
    /// Rows are pruned, with the cursor.
    prunes: bool,
    /// The record is purged and reseeded, twice in a row.
    purges: bool,
    /// The state is lost.
    loses: bool,
}

/// How often each fault has happened that is not the platform's.
#[derive(Default)]
struct Counts {
    kills: u64,
    cut_writes: u64,
    prunings: u64,
    purges: u64,
    losses: u64,
}

/// A run, and everything about it.
struct Run {
    faults: Faults,
    outside: Rc<Simulated>,
    folder: tempfile::TempDir,
    /// Always there, but while it is replaced.
    feed: Option<Feed<Rc<Simulated>>>,
    gaps: Vec<Gap>,
    /// What earlier states have told, before they were lost.
    told: Vec<Unknown>,
    counts: Counts,
}

fn platform() -> Url {
    Url::parse("https://api.example.com").unwrap()
}

fn open(folder: &tempfile::TempDir, outside: &Rc<Simulated>) -> Feed<Rc<Simulated>> {
    let how = How {
        records: vec![Record::Apps],
        min_age: MIN_AGE,
        is_once: true,
        is_dry: false,
    };
    let store = Store::open(&folder.path().join("feed.json"), &platform(), false).unwrap();
    Feed::new(how, Rc::clone(outside), store, Report::default())
}

impl Run {
    async fn new(faults: Faults) -> Self {
        let outside = Rc::new(Simulated::new(faults));
        let folder = tempfile::tempdir().unwrap();
        let mut run = Self {
            faults,
            feed: Some(open(&folder, &outside)),
            outside,
            folder,
            gaps: Vec::new(),
            told: Vec::new(),
            counts: Counts::default(),
        };
        // The first run meets an empty platform, so everything after it is recorded.
        run.round().await;
        run
    }

    fn store(&self) -> &Store {
        &self.feed.as_ref().unwrap().store
    }

    fn mark(&self) -> Option<Mark> {
        self.store().state(Record::Apps).mark().cloned()
    }

    /// Everything that the feed has said nobody recorded.
    fn unknown(&self) -> Vec<Unknown> {
        let told = self.told.iter().chain(self.store().unknown());
        told.cloned().collect()
    }

    /// Reads everything that is old enough, killed and without answers as often as it happens.
    async fn round(&mut self) {
        loop {
            match self.feed.as_mut().unwrap().round().await {
                Ok(()) => return,
                Err(Failure::Interrupted(why)) if why == KILLED => self.kill(),
                Err(Failure::Unanswered(_)) => {}
                Err(failure) => panic!("{failure}"),
            }
        }
    }

    /// Killed, and started again.
    fn kill(&mut self) {
        self.counts.kills += 1;
        self.feed = None;
        if self.faults.disk && self.outside.is_one_of(2) {
            self.counts.cut_writes += 1;
            let written = fs::read(self.folder.path().join("feed.json")).unwrap_or_default();
            let cut = &written[..written.len() / 2];
            fs::write(self.folder.path().join("feed.json.new"), cut).unwrap();
        }
        self.feed = Some(open(&self.folder, &self.outside));
    }

    /// The disk with the state is lost.
    fn lose_state(&mut self) {
        self.told = self.unknown();
        self.feed = None;
        self.folder = tempfile::tempdir().unwrap();
        self.feed = Some(open(&self.folder, &self.outside));
    }

    async fn all(mut self, events: usize) -> Self {
        let every = events / (LOSSES + 1);
        for number in 1..=events {
            self.outside.act();
            if self.outside.is_one_of(60) {
                self.round().await;
            }
            if number % every == 0 && number / every <= LOSSES {
                self.lose(number / every).await;
            }
            // Rows that are read are pruned, too; they are the oldest.
            if self.outside.world.borrow().rows.len() > 20_000 {
                self.read_all().await;
                self.outside.world.borrow_mut().prune(10_000);
            }
        }
        self.read_all().await;
        self
    }

    /// Nothing happens until everything is old enough to be read.
    async fn read_all(&mut self) {
        self.outside.pass(2 * MIN_AGE);
        self.round().await;
    }

    /// Loses what was not read, in one way after the other.
    async fn lose(&mut self, turn: usize) {
        let ways = [self.faults.prunes, self.faults.purges, self.faults.loses];
        let ways: Vec<usize> = (0..3).filter(|way| ways[*way]).collect();
        let Some(way) = ways.get(turn % ways.len().max(1)) else {
            return;
        };
        self.round().await;
        let from = self.mark().and_then(|mark| mark.at());
        let from = from.unwrap_or(BEGIN) - MIN_AGE;
        // The feed is down meanwhile.
        for _ in 0..400 {
            self.outside.act();
        }
        match way {
            0 => {
                self.counts.prunings += 1;
                let mark = self.mark().unwrap();
                let mut world = self.outside.world.borrow_mut();
                let read = world.position(&mark).unwrap() + 1;
                world.prune(read + 100);
            }
            1 => {
                self.counts.purges += 2;
                self.outside.purge();
                self.read_all().await;
                // Its cursor is a seed now, and the next purge brings the same GUID again.
                self.outside.act();
                self.outside.purge();
            }
            _ => {
                self.counts.losses += 1;
                self.lose_state();
            }
        }
        let until = self.outside.time();
        self.round().await;
        self.gaps.push(Gap { from, until });
    }

    /// How often each fault has happened.
    fn happened(&self) -> [u64; 10] {
        let (world, counts) = (self.outside.world.borrow(), &self.counts);
        [
            world.late,
            world.skewed,
            world.repeated,
            world.noted,
            self.outside.lost_answers.get(),
            counts.kills,
            counts.cut_writes,
            counts.prunings,
            counts.purges,
            counts.losses,
        ]
    }

    fn row(&self, name: &str) -> [String; 9] {
        let (world, receiver) = (self.outside.world.borrow(), self.outside.receiver.borrow());
        let happened: u64 = self.happened().iter().sum();
        let judged = Oracle::new(self).judge(&world, &receiver);
        assert_eq!(
            receiver.refused, 0,
            "{name}: what is dated right is not refused"
        );
        [
            name.to_owned(),
            happened.to_string(),
            world.ids.to_string(),
            receiver.taken.to_string(),
            receiver.repeated.to_string(),
            self.unknown().len().to_string(),
            judged.compared.to_string(),
            judged.listed.to_string(),
            judged.unseen.to_string(),
        ]
    }
}

/// A name, and what goes wrong.
type Fault = (&'static str, fn(&mut Faults));

/// What goes wrong in a run of its own, and all of it in the last run.
const ONE_AT_A_TIME: [Fault; 12] = [
    ("none", |_| {}),
    ("a row is seen late", |faults| faults.late = true),
    ("clocks differ", |faults| faults.clocks = true),
    ("a row comes twice", |faults| faults.repeats = true),
    ("what runs is noted", |faults| faults.notes = true),
    ("an answer is lost", |faults| faults.answers = true),
    ("killed anywhere", |faults| faults.kills = true),
    ("killed within a write", |faults| {
        (faults.kills, faults.disk) = (true, true);
    }),
    ("the cursor is pruned", |faults| faults.prunes = true),
    ("purged and reseeded", |faults| faults.purges = true),
    ("the state is lost", |faults| faults.loses = true),
    ("what is noted is pruned", |faults| {
        (faults.notes, faults.prunes) = (true, true);
    }),
];

#[tokio::test]
async fn events_are_billed_as_they_happened_through_every_fault() {
    let given = std::env::var(EVENTS_VARIABLE);
    let events = given.map_or(EVENTS, |given| given.parse().expect("a number of events"));
    let mut rows: Vec<[String; 9]> = Vec::new();
    let mut every = Faults::default();
    for (name, add) in ONE_AT_A_TIME {
        let mut faults = Faults::default();
        add(&mut faults);
        add(&mut every);
        let run = Run::new(faults).await;
        let row = run.all((events / 10).max(1_500)).await.row(name);
        let must_happen = name != "none";
        assert_eq!(row[1] != "0", must_happen, "{name}");
        rows.push(row);
    }
    let run = Run::new(every).await.all(events).await;
    let happened = run.happened();
    assert!(happened.iter().all(|count| *count > 0), "{happened:?}");
    rows.push(run.row("all of these"));
    let header = [
        "fault",
        "happened",
        "events",
        "sent",
        "of these again",
        "bounds listed",
        "ms compared",
        "ms within bounds",
        "ms nobody can see",
    ];
    println!("\n{}", table(header, rows.into_iter(), &[0]));
    println!("lost without being listed: 0 ms; billed twice: 0 ms");
}

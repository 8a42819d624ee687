//! A foundation, its feed and a receiver in virtual time, with everything that can go wrong between them,
//! against an oracle that only knows what was done. `docs/feed.md` has the command that runs it at length.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "its numbers are small"
)]

mod feed;
mod oracle;
mod receiver;
mod world;

use sampler_verify::moment::Millis;

use crate::table::table;
use feed::Feed;
use oracle::{Gap, Oracle};
use receiver::Receiver;
use world::{BEGIN, Foundation};

/// How many events the foundation of the last run has; those of the others have a tenth.
const EVENTS_VARIABLE: &str = "SAMPLER_FEED_EVENTS";
const EVENTS: usize = 6_000;
const MIN_AGE: Millis = 300_000;
/// How often what was not read is lost, in a run with such faults.
const LOSSES: usize = 4;
/// How many differences an answer of the receiver names, where it does not name all.
const NAMED: usize = 5;

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
    /// Answers of both APIs are lost.
    answers: bool,
    /// The feed is killed between any two of its steps.
    kills: bool,
    /// It is killed within a write to its disk.
    disk: bool,
    /// Rows are pruned, with the cursor.
    prunes: bool,
    /// The record is purged and reseeded, twice in a row.
    purges: bool,
    /// The state is lost.
    loses: bool,
    /// The receiver does not name all differences at once.
    cut: bool,
}

/// A run, and everything about it.
struct Run {
    faults: Faults,
    numbers: Numbers,
    now: Millis,
    world: Foundation,
    receiver: Receiver,
    feed: Feed,
    gaps: Vec<Gap>,
    prunings: u64,
    purges: u64,
    losses: u64,
}

impl Run {
    fn new(faults: Faults) -> Self {
        let receiver = Receiver {
            most: faults.cut.then_some(NAMED),
            ..Receiver::default()
        };
        let mut run = Self {
            faults,
            numbers: Numbers(0x9e37_79b9_7f4a_7c15),
            now: BEGIN,
            world: Foundation::new(faults),
            receiver,
            feed: Feed::new(faults),
            gaps: Vec::new(),
            prunings: 0,
            purges: 0,
            losses: 0,
        };
        // The first run meets an empty platform, so everything after it is recorded.
        run.round();
        run
    }

    fn round(&mut self) {
        let (world, receiver) = (&self.world, &mut self.receiver);
        self.feed
            .round(world, receiver, &mut self.numbers, self.now);
    }

    fn all(mut self, events: usize) -> Self {
        let every = events / (LOSSES + 1);
        for number in 1..=events {
            self.now += 50 + self.numbers.below(2_000) as i64;
            self.world.act(&mut self.numbers, self.now);
            if self.numbers.is_one_of(200) {
                self.round();
            }
            if number % every == 0 && number / every <= LOSSES {
                self.lose(number / every);
            }
            // Rows that are read are pruned, too; they are the oldest.
            if self.world.rows.len() > 20_000 {
                self.read_all();
                self.world.prune(10_000);
            }
        }
        self.read_all();
        self
    }

    /// Nothing happens until everything is old enough to be read.
    fn read_all(&mut self) {
        self.now += 2 * MIN_AGE;
        self.round();
    }

    /// Loses what was not read, in one way after the other.
    fn lose(&mut self, turn: usize) {
        let ways = [self.faults.prunes, self.faults.purges, self.faults.loses];
        let ways: Vec<usize> = (0..3).filter(|way| ways[*way]).collect();
        let Some(way) = ways.get(turn % ways.len().max(1)) else {
            return;
        };
        self.round();
        let from = self.feed.mark().and_then(|mark| mark.at());
        let from = from.unwrap_or(BEGIN) - MIN_AGE;
        // The feed is down meanwhile.
        for _ in 0..400 {
            self.now += 50 + self.numbers.below(2_000) as i64;
            self.world.act(&mut self.numbers, self.now);
        }
        match way {
            0 => {
                self.prunings += 1;
                let mark = self.feed.mark().unwrap();
                let read = self.world.position(&mark).unwrap() + 1;
                self.world.prune(read + 100);
            }
            1 => {
                self.purges += 2;
                self.world.purge(self.now);
                self.now += 2 * MIN_AGE;
                self.round();
                // Its cursor is a seed now, and the next purge brings the same GUID again.
                self.now += 1_000;
                self.world.act(&mut self.numbers, self.now);
                self.world.purge(self.now);
            }
            _ => {
                self.losses += 1;
                self.feed.lose();
            }
        }
        let until = self.now;
        self.round();
        self.gaps.push(Gap { from, until });
    }

    /// How often each fault has happened.
    fn happened(&self) -> [u64; 11] {
        let (world, feed) = (&self.world, &self.feed);
        [
            world.late,
            world.skewed,
            world.repeated,
            feed.lost_answers,
            feed.kills,
            feed.cut_writes,
            feed.cut_folds,
            self.prunings,
            self.purges,
            self.losses,
            feed.cut_answers,
        ]
    }

    fn row(&self, name: &str) -> [String; 9] {
        let (world, feed, receiver) = (&self.world, &self.feed, &self.receiver);
        let happened: u64 = self.happened().iter().sum();
        assert!(feed.holes > 0, "the first run has no past");
        let judged = Oracle::new(self).judge();
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
            feed.unknown().len().to_string(),
            judged.compared.to_string(),
            judged.listed.to_string(),
            judged.unseen.to_string(),
        ]
    }
}

/// A name, and what goes wrong.
type Fault = (&'static str, fn(&mut Faults));

/// What goes wrong in a run of its own, and all of it in the last run.
const ONE_AT_A_TIME: [Fault; 11] = [
    ("none", |_| {}),
    ("a row is seen late", |faults| faults.late = true),
    ("clocks differ", |faults| faults.clocks = true),
    ("a row comes twice", |faults| faults.repeats = true),
    ("an answer is lost", |faults| faults.answers = true),
    ("killed between two steps", |faults| faults.kills = true),
    ("killed within a write", |faults| faults.disk = true),
    ("the cursor is pruned", |faults| faults.prunes = true),
    ("purged and reseeded", |faults| faults.purges = true),
    ("the state is lost", |faults| faults.loses = true),
    ("and not all is named", |faults| {
        (faults.loses, faults.cut) = (true, true);
    }),
];

#[test]
fn events_are_billed_as_they_happened_through_every_fault() {
    let given = std::env::var(EVENTS_VARIABLE);
    let events = given.map_or(EVENTS, |given| given.parse().expect("a number of events"));
    let mut rows: Vec<[String; 9]> = Vec::new();
    let mut every = Faults::default();
    for (name, add) in ONE_AT_A_TIME {
        let mut faults = Faults::default();
        add(&mut faults);
        add(&mut every);
        let row = Run::new(faults).all((events / 10).max(2_500)).row(name);
        let must_happen = name != "none";
        assert_eq!(row[1] != "0", must_happen, "{name}");
        rows.push(row);
    }
    let run = Run::new(every).all(events);
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

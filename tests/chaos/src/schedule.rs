//! The schedule of faults, which follows from the seed alone. Which server is the primary, and how
//! long an election takes, does not.

use std::time::Duration;

use crate::fleet::ProgramId;
use crate::proxy::Link;
use sampler_testkit::abacus::FaultKind;
use sampler_testkit::rng::Rng;

/// A lane of faults. Faults of one lane come one after the other, those of different lanes at the
/// same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// The servers of the database, and the links to them.
    Database,
    /// The receivers and workers.
    Programs,
    Abacus,
    /// What Abacus says to the usages of some.
    Usages,
}

/// A fault of one part of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The primary is killed, and started again.
    KillPrimary,
    /// A secondary is killed, and started again.
    KillSecondary,
    /// The primary and a secondary are killed, so that there is no majority.
    KillMajority,
    /// The primary is frozen for longer than an election takes.
    FreezePrimary,
    /// The primary steps down.
    StepDown,
    /// Both secondaries stop copying what the primary writes, so that its majority falls behind.
    SecondariesLag,
    /// Commands of that kind fail on the primary, with this chance in percent.
    Commands(Commands, Failure, u8),
    /// The programs' links to the primary are like that; the servers see each other.
    ProgramsToPrimary(Link),
    /// All links to the primary are like that, so that another is elected.
    AllToPrimary(Link),
    /// The programs' links to all servers are like that.
    ProgramsToAll(Link),
    /// A program is killed, and started again.
    Kill(ProgramId),
    /// A program is asked to stop, and started again.
    Restart(ProgramId),
    /// A program is frozen for a while.
    Freeze(ProgramId),
    /// All workers are killed at once.
    KillAllWorkers,
    /// Abacus has this fault, for this percentage of usages.
    Abacus(FaultKind, u8),
    AbacusAway,
    /// Abacus refuses the usages of this plan: their spans are suspended.
    RefusedPlan(&'static str),
    /// Abacus sets some usages aside after it has accepted them.
    SetAside,
}

/// Which commands fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commands {
    Writes,
    Reads,
    /// Both.
    All,
}

/// How commands fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The connection is closed instead.
    Close,
    /// They are not done, because the database refuses them: not an error of the moment.
    Refused,
    /// They are not done, and this error is answered.
    Code(i32),
    /// They are done, and this error of the write concern is answered.
    WriteConcern(i32),
    /// They are carried out after this many ms.
    Block(i32),
}

/// A fault with its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// When it begins, from the beginning of the run.
    pub at: Duration,
    /// How long it lasts.
    pub lasts: Duration,
    pub fault: Fault,
}

/// Only a run of this length has usages that are set aside: it takes five minutes until that is noticed.
const SET_ASIDES_FROM: Duration = Duration::from_mins(5);

/// A fault, and how long it lasts at least and at most, ms.
type FaultTemplate = (Fault, i64, i64);

impl Lane {
    /// All lanes.
    pub const ALL: [Self; 4] = [Self::Database, Self::Programs, Self::Abacus, Self::Usages];

    /// The faults of this lane that follow from a seed, in order, for a run of that length.
    pub fn plan(self, seed: u64, length: Duration) -> Vec<Planned> {
        let mut rng = Rng::new(seed, 10 + self as u64);
        let mut plan = Vec::new();
        let mut at = Duration::from_millis(rng.between(500, 2_500).unsigned_abs());
        // The essentials come first, so that a short run meets them. No fault comes twice before all
        // have come once.
        let mut pool = self.essentials();
        rng.shuffle(&mut pool);
        while at < length {
            let Some((fault, low, high)) = pool.pop() else {
                pool = self.pool(length);
                rng.shuffle(&mut pool);
                continue;
            };
            let lasts = Duration::from_millis(rng.between(low, high).unsigned_abs());
            let lasts = lasts.min(length.saturating_sub(at));
            plan.push(Planned { at, lasts, fault });
            at += lasts + Duration::from_millis(rng.between(300, 3_000).unsigned_abs());
        }
        plan
    }

    fn essentials(self) -> Vec<FaultTemplate> {
        use Commands::{All, Writes};
        use ProgramId::{Receiver, Worker};
        let commands = |which, failure, percent| Fault::Commands(which, failure, percent);
        match self {
            Self::Database => vec![
                (Fault::KillPrimary, 2_000, 5_000),
                (Fault::FreezePrimary, 5_000, 8_000),
                (commands(Writes, Failure::Close, 40), 2_000, 4_000),
                (Fault::ProgramsToPrimary(Link::WithoutReplies), 1_000, 3_000),
                (commands(All, Failure::Code(91), 30), 2_000, 4_000),
                (commands(Writes, Failure::Refused, 30), 1_500, 3_000),
            ],
            Self::Programs => vec![
                (Fault::Kill(Receiver(0)), 500, 3_000),
                (Fault::Kill(Worker(0)), 500, 3_000),
                (Fault::Kill(Receiver(1)), 500, 3_000),
                (Fault::Kill(Worker(1)), 500, 3_000),
            ],
            Self::Abacus => vec![
                (Fault::Abacus(FaultKind::LoseAnswer, 60), 2_000, 5_000),
                (Fault::Abacus(status(429), 100), 1_000, 3_000),
                (Fault::AbacusAway, 2_000, 5_000),
                (Fault::Abacus(delay(800), 100), 2_000, 5_000),
            ],
            Self::Usages => vec![(Fault::RefusedPlan("large"), 10_000, 14_000)],
        }
    }

    fn pool(self, length: Duration) -> Vec<FaultTemplate> {
        match self {
            Self::Database => database_pool(),
            Self::Programs => programs_pool(),
            Self::Abacus => abacus_pool(),
            Self::Usages if length >= SET_ASIDES_FROM => {
                let mut pool = usages_pool();
                pool.push((Fault::SetAside, 2_000, 5_000));
                pool
            }
            Self::Usages => usages_pool(),
        }
    }
}

fn database_pool() -> Vec<FaultTemplate> {
    use Failure::{Block, Close, Code, Refused, WriteConcern};
    use Fault::{AllToPrimary, ProgramsToAll, ProgramsToPrimary};
    use Link::{Cut, Held, WithoutReplies};
    let mut pool = vec![
        (Fault::KillPrimary, 1_000, 12_000),
        (Fault::KillSecondary, 1_000, 6_000),
        (Fault::KillMajority, 2_000, 8_000),
        (Fault::FreezePrimary, 5_000, 10_000),
        // Beyond what the programs wait for an answer, and their drivers for a sign of life.
        (Fault::FreezePrimary, 16_000, 22_000),
        (Fault::StepDown, 500, 2_000),
        (Fault::SecondariesLag, 8_000, 14_000),
        (ProgramsToPrimary(Cut), 1_000, 8_000),
        (ProgramsToPrimary(Held), 3_000, 12_000),
        (ProgramsToPrimary(WithoutReplies), 1_000, 4_000),
        (AllToPrimary(Cut), 4_000, 10_000),
        (AllToPrimary(Held), 6_000, 14_000),
        (ProgramsToAll(Cut), 1_000, 6_000),
    ];
    let commands = [
        (Commands::Writes, Close, 30),
        (Commands::Writes, Close, 100),
        (Commands::Reads, Close, 50),
        (Commands::Writes, Refused, 40),
        // Shutting down, stepping down, no longer primary, interrupted, too slow, unreachable.
        (Commands::All, Code(91), 30),
        (Commands::All, Code(189), 30),
        (Commands::Writes, Code(10_107), 60),
        (Commands::All, Code(11_602), 30),
        (Commands::Reads, Code(50), 50),
        (Commands::Writes, Code(6), 50),
        // The write is done; whether a majority has it is not known.
        (Commands::Writes, WriteConcern(64), 60),
        (Commands::Writes, WriteConcern(91), 60),
        (Commands::All, Block(700), 50),
        (Commands::Writes, Block(6_000), 20),
    ];
    let template =
        |(commands, failure, percent)| (Fault::Commands(commands, failure, percent), 1_500, 4_000);
    pool.extend(commands.map(template));
    pool
}

fn programs_pool() -> Vec<FaultTemplate> {
    use ProgramId::{Receiver, Worker};
    vec![
        (Fault::Kill(Receiver(0)), 200, 3_000),
        (Fault::Kill(Receiver(1)), 200, 3_000),
        (Fault::Kill(Worker(0)), 200, 3_000),
        (Fault::Kill(Worker(1)), 200, 3_000),
        (Fault::Kill(Worker(2)), 200, 3_000),
        (Fault::KillAllWorkers, 500, 4_000),
        (Fault::Restart(Receiver(0)), 100, 500),
        (Fault::Restart(Worker(1)), 100, 500),
        (Fault::Freeze(Receiver(1)), 1_000, 4_000),
        (Fault::Freeze(Worker(2)), 2_000, 8_000),
        // Beyond the time after which the others take its spans over.
        (Fault::Freeze(Worker(0)), 22_000, 26_000),
    ]
}

fn abacus_pool() -> Vec<FaultTemplate> {
    let faults = [
        (FaultKind::LoseAnswer, 30),
        (FaultKind::LoseAnswer, 100),
        (delay(200), 100),
        (delay(1_500), 50),
        (status(429), 20),
        (status(429), 100),
        (status(500), 50),
        (status(503), 100),
        (FaultKind::CloseBefore, 50),
        (FaultKind::Hang, 20),
    ];
    let mut pool: Vec<FaultTemplate> = faults
        .map(|(kind, percent)| (Fault::Abacus(kind, percent), 1_500, 6_000))
        .to_vec();
    pool.push((Fault::AbacusAway, 1_500, 6_000));
    pool
}

fn usages_pool() -> Vec<FaultTemplate> {
    vec![
        (Fault::RefusedPlan("large"), 6_000, 14_000),
        (Fault::RefusedPlan("small"), 6_000, 14_000),
    ]
}

/// An answer of that status; a 429 asks to come again after a second.
fn status(status: u16) -> FaultKind {
    let retry_after = (status == 429).then(|| "1".to_owned());
    FaultKind::Status {
        status,
        retry_after,
    }
}

fn delay(millis: u64) -> FaultKind {
    FaultKind::Delay(Duration::from_millis(millis))
}

impl Fault {
    /// The name of the kind, for the counts.
    pub fn kind(&self) -> String {
        let text = format!("{self:?}");
        let end = text.find(|letter: char| !letter.is_alphanumeric());
        text[..end.unwrap_or(text.len())].to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_gives_the_same_faults_again_and_another_others() {
        let length = Duration::from_mins(3);
        for lane in Lane::ALL {
            assert_eq!(lane.plan(7, length), lane.plan(7, length));
            assert_ne!(lane.plan(7, length), lane.plan(8, length));
        }
    }

    #[test]
    fn a_long_run_meets_everything() {
        let length = Duration::from_mins(10);
        let faults = Lane::ALL.into_iter().flat_map(|lane| lane.plan(1, length));
        let kinds: BTreeSet<String> = faults.map(|planned| planned.fault.kind()).collect();
        assert_eq!(kinds.len(), 18, "{kinds:?}");
    }
}

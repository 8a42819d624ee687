//! How much is measured.

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::load::Timing;

/// The parts that can be run alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Starts and stops, beside what they are compared with.
    Receiver,
    /// A client that floods the receiver, and a quiet one beside it.
    Fairness,
    /// Batches beside single events, and a quiet client beside batches.
    Batches,
    /// Intervals a second, and catching up.
    Worker,
    /// All open spans due at once.
    Midnight,
    /// What the ledger costs: the worker with and without it.
    Ledger,
    /// Intervals a second into a receiver of CloudEvents, beside Abacus.
    Upstreams,
    /// Both programs beside those of another commit.
    Against,
}

/// How much is measured.
#[derive(Args, Clone, Debug)]
pub(crate) struct ScaleArguments {
    /// In about three minutes.
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// With a million spans, where the default has a hundred thousand.
    #[arg(long)]
    full: bool,
    /// As little as there can be: whether it works, not how fast.
    #[arg(long, hide = true, conflicts_with_all = ["quick", "full"])]
    smoke: bool,
    /// Only this part; may be repeated.
    #[arg(long, value_enum)]
    only: Vec<Part>,
    /// Compares the programs with those of another commit, and measures nothing else.
    #[arg(long, value_name = "COMMIT")]
    against: Option<String>,
    /// How often each run of events is made; the one in the middle counts.
    #[arg(long)]
    rounds: Option<usize>,
}

/// The sizes of all runs.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    /// What it is called.
    pub(crate) name: &'static str,
    /// What is run.
    pub(crate) parts: Vec<Part>,
    /// Numbers of connections to the receiver.
    pub(crate) connections: Vec<usize>,
    /// How long each run of events takes.
    pub(crate) timing: Timing,
    /// How often each is made; the one in the middle counts.
    pub(crate) rounds: usize,
    /// Numbers of workers.
    pub(crate) workers: Vec<usize>,
    /// How long Abacus takes to answer.
    pub(crate) answers: Vec<Duration>,
    /// How long each run of workers takes.
    pub(crate) worker_timing: Timing,
    /// Spans to catch up, and days of hours that each is behind.
    pub(crate) catch_up: (u64, u64),
    /// Spans that are due at midnight.
    pub(crate) midnight: u64,
    /// Connections of a client that floods the receiver.
    pub(crate) flood: Vec<usize>,
    /// Events of a batch.
    pub(crate) batch: usize,
    /// Spans that are due at a midnight with the ledger, and at one without.
    pub(crate) ledger_midnight: u64,
    /// Starts, and as many stops, of each round beside another commit, and spans that are sampled in it.
    pub(crate) against: u64,
    pub(crate) against_spans: u64,
}

impl ScaleArguments {
    /// The sizes that the arguments stand for.
    pub(crate) fn scale(&self) -> Scale {
        let mut scale = match (self.smoke, self.quick, self.full) {
            (true, _, _) => smoke(),
            (_, true, _) => quick(),
            (_, _, true) => Scale {
                name: "full",
                midnight: 1_000_000,
                ledger_midnight: 200_000,
                ..usual()
            },
            _ => usual(),
        };
        if self.against.is_some() {
            scale.parts = vec![Part::Against];
        } else if self.only.is_empty() {
            scale.parts.retain(|part| *part != Part::Against);
        } else {
            scale.parts.retain(|part| self.only.contains(part));
        }
        if let Some(rounds) = self.rounds {
            scale.rounds = rounds;
        }
        scale
    }
}

fn usual() -> Scale {
    let millis = Duration::from_millis;
    Scale {
        name: "default",
        parts: Part::value_variants().to_vec(),
        connections: vec![1, 16, 64, 256, 1024],
        timing: Timing::millis(500, 2_000),
        rounds: 3,
        workers: vec![1, 2, 4],
        answers: [0, 20, 200].map(millis).to_vec(),
        worker_timing: Timing::millis(3_000, 8_000),
        catch_up: (1_000, 30),
        midnight: 100_000,
        flood: vec![30, 100, 300, 1_000, 3_000],
        batch: 500,
        ledger_midnight: 50_000,
        against: 60_000,
        against_spans: 5_000,
    }
}

fn quick() -> Scale {
    let millis = Duration::from_millis;
    Scale {
        name: "quick",
        connections: vec![1, 64, 256],
        timing: Timing::millis(500, 1_500),
        rounds: 1,
        workers: vec![1, 2],
        answers: [0, 20].map(millis).to_vec(),
        worker_timing: Timing::millis(2_000, 4_000),
        catch_up: (1_000, 1),
        midnight: 20_000,
        flood: vec![30, 300, 3_000],
        against: 30_000,
        against_spans: 2_000,
        ledger_midnight: 10_000,
        ..usual()
    }
}

fn smoke() -> Scale {
    Scale {
        name: "smoke",
        connections: vec![2],
        timing: Timing::millis(100, 1_000),
        rounds: 1,
        workers: vec![1],
        answers: vec![Duration::ZERO],
        worker_timing: Timing::millis(100, 1_000),
        catch_up: (5, 1),
        midnight: 100,
        flood: vec![5],
        batch: 10,
        ledger_midnight: 100,
        ..usual()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        scale: ScaleArguments,
    }

    fn scale(arguments: &str) -> Scale {
        let words = std::iter::once("bench").chain(arguments.split_whitespace());
        Cli::try_parse_from(words).unwrap().scale.scale()
    }

    #[test]
    fn a_size_and_parts_can_be_chosen() {
        let chosen = scale("--full --only worker --only ledger --rounds 5");
        assert_eq!(chosen.parts, [Part::Worker, Part::Ledger]);
        assert_eq!((chosen.midnight, chosen.rounds), (1_000_000, 5));
        assert_eq!(scale("--against HEAD").parts, [Part::Against]);
        assert!(!scale("").parts.contains(&Part::Against));
    }
}

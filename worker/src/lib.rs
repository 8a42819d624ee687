//! The worker: looks for spans that are due, drives each through its due intervals, and posts
//! their usages to Abacus (sections 5 and 6.3 to 6.6 of the paper).
//!
//! Any number of workers share one store, and any of them may die at any instruction: what counts
//! is kept on the spans alone, and each change of a span requires that it still is as it was read.
//! See `docs/architecture.md` for the picture.

mod beat;
mod drive;
mod gate;
mod housekeeping;
mod process;
mod search;
mod turn;

pub mod settings;
pub mod shadow;
mod share;
mod time;

use std::sync::Arc;

use sampler_abacus::{Collector, Pace};
use sampler_domain::{Policy, Timestamp};
use sampler_service::environment::{Clock, Random};
use sampler_settings::worker::{AbacusSettings, CleanupSettings, ProcessingSettings};
use sampler_store::{Membership, Upkeep, Work};
use std::time::Duration;

pub use beat::{Beat, NoBeat};
use gate::Gate;
use share::Share;
pub use time::Time;
use tokio_util::sync::CancellationToken;
use turn::Waiting;

/// How the worker goes about it.
#[derive(Clone, Debug)]
pub struct Options {
    /// Who this worker is among all; no two may share a name.
    pub name: String,
    /// How spans are sampled.
    pub policy: Policy,
    /// How usages are delivered.
    pub abacus: AbacusSettings,
    /// How due spans are found and driven.
    pub processing: ProcessingSettings,
    /// How complete spans are removed.
    pub cleanup: CleanupSettings,
    /// How often clocks are compared with Abacus while nothing is posted.
    pub clock_interval: Duration,
}

/// What the worker works with.
#[derive(Clone)]
pub struct Parts {
    /// Where the spans are that are due.
    pub work: Arc<dyn Work>,
    /// Where they are looked after.
    pub upkeep: Arc<dyn Upkeep>,
    /// Where the workers are known.
    pub membership: Arc<dyn Membership>,
    /// Where the usages go.
    pub collector: Arc<dyn Collector>,
    /// The clock of this machine.
    pub clock: Arc<dyn Clock>,
    /// Chance, for waits.
    pub random: Arc<dyn Random>,
    /// Told of each sign of progress of the processing loop.
    pub processing: Arc<dyn Beat>,
    /// Told of each sign of progress of the clean-up loop.
    pub cleanup: Arc<dyn Beat>,
}

/// A worker; run it until it is told to stop.
pub struct Worker {
    parts: Parts,
    options: Options,
    /// Closed while Abacus takes nothing from anybody.
    gate: Gate,
    /// The partitions that this worker looks after.
    share: Share,
    /// What time it is for all that is decided.
    time: Arc<Time>,
    /// The found spans that wait for a slot.
    waiting: Waiting,
    /// Take nothing new on.
    stop: CancellationToken,
}

impl Worker {
    /// A worker that takes nothing new on once `stop` is cancelled.
    pub fn new(parts: Parts, options: Options, stop: CancellationToken) -> Arc<Self> {
        let gate = Gate::new(options.abacus.concurrency);
        let pace = Pace {
            usual: options.clock_interval,
        };
        let time = Time::new(Arc::clone(&parts.clock), pace);
        Arc::new(Self {
            parts,
            options,
            gate,
            share: Share::default(),
            time,
            waiting: Waiting::default(),
            stop,
        })
    }

    /// Runs all loops; returns when what was in flight at the stop has been finished.
    pub async fn run(self: &Arc<Self>) {
        tokio::join!(
            self.keep_registered(),
            self.keep_time(),
            self.process(),
            self.clean_up(),
            self.adopt(),
        );
        self.leave().await;
    }

    /// What this worker takes for the time, and what it knows of Abacus's clock.
    pub fn time(&self) -> Arc<Time> {
        Arc::clone(&self.time)
    }

    /// What time it is for all that is decided: never later than Abacus has it, as far as that is
    /// beyond doubt. It puts aside usages that lie after its today, and what it has put aside is
    /// not billed.
    fn now(&self) -> Timestamp {
        self.time.now()
    }

    /// Pauses; ends early when the worker is told to stop.
    async fn pause(&self, length: Duration) {
        self.stop
            .run_until_cancelled(tokio::time::sleep(length))
            .await;
    }
}

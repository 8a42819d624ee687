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
use sampler_domain::{Backoff, Policy, Timestamp};
use sampler_service::environment::{Clock, Random};
use sampler_store::SpanStore;
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
    /// How long a span waits after a failure.
    pub backoff: Backoff,
    /// How long into a month Abacus takes usages for the one before, ms.
    pub month_slack: i64,
    /// Usages in flight at the most; fewer where Abacus does not bear so many.
    pub posts: usize,
    /// Spans that are driven at once, at the most: more than usages in flight, because a span
    /// waits for the store as well.
    pub spans: usize,
    /// Spans looked up at once, at the most.
    pub process_batch: usize,
    /// The pause after a look that found nothing new.
    pub process_interval: Duration,
    /// Spans removed at once, at the most.
    pub cleanup_batch: usize,
    /// The pause after a clean-up that found less than a batch.
    pub cleanup_interval: Duration,
    /// How long complete spans are kept after their end, ms.
    pub retention: i64,
    /// The pause between two looks for what an original Sampler wrote.
    pub adopt_interval: Duration,
    /// The pause between two heartbeats.
    pub heartbeat_interval: Duration,
    /// How often clocks are compared with Abacus while nothing is posted.
    pub clock_interval: Duration,
}

/// What the worker works with.
#[derive(Clone)]
pub struct Parts {
    /// Where the spans are.
    pub store: Arc<dyn SpanStore>,
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
    /// The found spans that wait for a slot.
    waiting: Waiting,
    /// What time it is for all that is decided.
    time: Arc<Time>,
    /// Take nothing new on.
    stop: CancellationToken,
}

impl Worker {
    /// A worker that takes nothing new on once `stop` is cancelled.
    pub fn new(parts: Parts, options: Options, stop: CancellationToken) -> Arc<Self> {
        let gate = Gate::new(options.posts);
        let pace = Pace {
            usual: options.clock_interval,
        };
        let time = Time::new(Arc::clone(&parts.clock), pace);
        Arc::new(Self {
            parts,
            options,
            gate,
            share: Share::default(),
            waiting: Waiting::default(),
            time,
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

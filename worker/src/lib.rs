//! The worker: finds spans that are due, drives each through its due intervals, and posts their
//! usages to the upstream (sections 5 and 6.3 to 6.6 of the paper).
//!
//! Any number of workers share one store, and any of them may die at any instruction. All state is in
//! the store, and each change of a span requires that the span is still as it was read. See
//! `docs/architecture.md`.
//!
//! A span passes `process` (the loop), `search`, `drive`, `lookup` and `deliver`; `suspension` serves what was
//! refused, `watch` what was accepted and may not count. `ownership` says which spans are this worker's,
//! `control` and `distress` whether it may sample, `upstream_limit` how many posts at once, `troubles` what
//! it keeps in mind of spans that the store failed on; `rate` and `backlog` measure, `upkeep` cleans up.

mod backlog;
mod clock_offset;
mod control;
mod deliver;
mod distress;
mod drive;
mod lookup;
mod metrics;
mod ownership;
mod periods;
mod process;
mod progress;
mod rate;
mod search;
mod suspension;
mod trace;
mod troubles;
mod upkeep;
mod upstream_limit;
mod watch;

pub mod settings;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use sampler_domain::{CauseId, RunId, Terms, Timestamp};
use sampler_service::environment::{Clock, Random};
use sampler_service::telemetry::error_chain;
use sampler_settings::Settings;
use sampler_steering::{DatabaseClock, Steering};
use sampler_store::{Ledger, Limiter, Operating, Work};
use sampler_upstream::{Promises, Upstream};
use tokio_util::sync::CancellationToken;

use clock_offset::ClockOffset;
use distress::Distress;
use lookup::lookups_max;
use ownership::OwnedPartitions;
pub use periods::Periods;
pub use progress::{IgnoreProgress, ReportProgress};
use rate::RateMeter;
use troubles::Troubles;
use upstream_limit::UpstreamLimit;

/// The least time between two lines of the log about one cause.
const SUSPENSION_LOG_INTERVAL: Duration = Duration::from_mins(1);

#[derive(Clone, Debug)]
pub struct Options {
    /// The name of this worker; no two workers may have the same.
    pub name: String,
    pub settings: Settings,
    pub periods: Periods,
}

#[derive(Clone)]
pub struct Parts {
    pub work: Arc<dyn Work>,
    /// The ledger, for the entries of usages.
    pub ledger: Arc<dyn Ledger>,
    pub operating: Arc<dyn Operating>,
    /// What takes the usages.
    pub upstream: Arc<dyn Upstream>,
    /// The clock of this machine. It shows whether the machine has slept.
    pub clock: Arc<dyn Clock>,
    /// Randomness, for waits and for the id of the run.
    pub random: Arc<dyn Random>,
    pub processing_progress: Arc<dyn ReportProgress>,
    pub cleanup_progress: Arc<dyn ReportProgress>,
}

pub struct Worker {
    parts: Parts,
    name: String,
    settings: Settings,
    terms: Terms,
    periods: Periods,
    promises: Promises,
    post_limit: UpstreamLimit,
    lookup_limit: UpstreamLimit,
    /// The limit of the questions whether usages count.
    watch_limit: UpstreamLimit,
    ownership: OwnedPartitions,
    clock: Arc<DatabaseClock>,
    offset: ClockOffset,
    /// Whether a due span that was found waits for a permit.
    spans_wait: AtomicBool,
    /// The control and the backlog, as this worker has read them last.
    steering: Arc<Steering>,
    /// Whether the database keeps up.
    distress: Distress,
    rate: RateMeter,
    /// Limits how often the log tells of a cause.
    suspensions: Limiter<CauseId>,
    troubles: Troubles,
    /// Cancelled when the worker should take on nothing new.
    stop: CancellationToken,
}

impl Worker {
    /// A worker that takes nothing new on once `stop` is cancelled. Each is a run of its own.
    pub fn new(parts: Parts, options: Options, stop: CancellationToken) -> Arc<Self> {
        let Options {
            name,
            settings,
            periods,
        } = options;
        let promises = parts.upstream.promises();
        let terms = Terms {
            run: RunId(parts.random.uuid_v4()),
            policy: settings.sampling.policy(),
            contract: promises.contract,
            suspend_after: u32::try_from(settings.suspension.after).unwrap_or(u32::MAX),
        };
        Arc::new(Self {
            name,
            terms,
            periods,
            promises,
            post_limit: UpstreamLimit::new(settings.delivery.concurrency),
            lookup_limit: UpstreamLimit::new(lookups_max(settings.processing.concurrency)),
            watch_limit: UpstreamLimit::new(watch::CONCURRENCY),
            ownership: OwnedPartitions::default(),
            clock: DatabaseClock::new(Arc::clone(&parts.clock)),
            offset: ClockOffset::default(),
            spans_wait: AtomicBool::default(),
            steering: Steering::new(Arc::clone(&parts.operating)),
            distress: Distress::default(),
            rate: RateMeter::default(),
            suspensions: Limiter::new(1, SUSPENSION_LOG_INTERVAL),
            troubles: Troubles::default(),
            settings,
            parts,
            stop,
        })
    }

    /// Runs all loops. After the stop it finishes what is in flight, and returns.
    pub async fn run(self: &Arc<Self>) {
        tokio::join!(
            self.send_heartbeats(),
            self.process(),
            self.keep_watching(),
            self.keep_probing(),
            self.clean_up(),
            self.steering.follow(self.periods.steering, &self.stop),
            self.keep_backlog_counted(),
            self.keep_controller(),
        );
        self.leave().await;
    }

    /// The backlog and the control, as this worker has read them last.
    pub fn steering(&self) -> Arc<Steering> {
        Arc::clone(&self.steering)
    }

    /// The time by which this worker decides: the database's, as heartbeats tell it.
    pub fn clock(&self) -> Arc<DatabaseClock> {
        Arc::clone(&self.clock)
    }

    /// Whether the clocks of the database and of the upstream differ.
    pub fn clocks_differ(&self) -> bool {
        self.offset.disagrees()
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Waits until the time is known; false if the worker shuts down before. Nothing is decided by time
    /// before the first heartbeat.
    async fn wait_until_ready(&self) -> bool {
        while !self.stop.is_cancelled() && !self.clock.is_sure() {
            self.sleep(self.periods.paused).await;
        }
        !self.stop.is_cancelled()
    }

    /// Sleeps; ends early on shutdown.
    async fn sleep(&self, length: Duration) {
        self.stop
            .run_until_cancelled(tokio::time::sleep(length))
            .await;
    }
}

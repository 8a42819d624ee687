//! The worker: finds spans that are due, drives each through its due intervals, and posts their
//! usages to the upstream (sections 5 and 6.3 to 6.6 of the paper).
//!
//! Any number of workers share one store, and any of them may die at any instruction. All state is in
//! the store, and each change of a span requires that the span is still as it was read. See
//! `docs/architecture.md`.
//!
//! A span passes `process` (the loop), `search`, `drive`, `lookup`, `deliver` and `turn`; `suspension` and
//! `resend` serve what was refused, `confirm` checks what was accepted. `ownership` says which
//! spans are this worker's, `upstream_time` what time it is, `control` and `distress` whether it may sample,
//! `upstream_limit` how many posts at once, `store_failures` how long a span pauses on which the store fails;
//! `rate` and `backlog` measure, `upkeep` cleans up.

mod backlog;
mod confirm;
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
mod resend;
mod search;
mod store_failures;
mod suspension;
mod trace;
mod turn;
mod upkeep;
mod upstream_limit;
mod upstream_time;

pub mod settings;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use sampler_domain::{Policy, Timestamp};
use sampler_service::environment::{Clock, Random};
use sampler_service::telemetry::error_chain;
use sampler_settings::WorkerSettings;
use sampler_steering::Steering;
use sampler_store::{Causes, Ledger, Operating, Work};
use sampler_upstream::{Pace, Promises, Upstream};

use confirm::Asking;
use distress::Distress;
use lookup::lookups_max;
use ownership::OwnedPartitions;
pub use periods::Periods;
pub use progress::{IgnoreProgress, ReportProgress};
use rate::RateMeter;
use store_failures::StoreFailures;
use suspension::RegisteredCauses;
use tokio_util::sync::CancellationToken;
use upstream_limit::UpstreamLimit;
pub use upstream_time::UpstreamTime;

#[derive(Clone, Debug)]
pub struct Options {
    /// The name of this worker; no two workers may have the same.
    pub name: String,
    pub settings: WorkerSettings,
    pub periods: Periods,
}

#[derive(Clone)]
pub struct Parts {
    pub work: Arc<dyn Work>,
    /// The ledger, for the entries of usages.
    pub ledger: Arc<dyn Ledger>,
    /// The store of the causes under which spans are suspended.
    pub causes: Arc<dyn Causes>,
    pub operating: Arc<dyn Operating>,
    /// What takes the usages.
    pub upstream: Arc<dyn Upstream>,
    pub clock: Arc<dyn Clock>,
    /// Randomness, for waits.
    pub random: Arc<dyn Random>,
    pub processing_progress: Arc<dyn ReportProgress>,
    pub cleanup_progress: Arc<dyn ReportProgress>,
}

pub struct Worker {
    parts: Parts,
    name: String,
    settings: WorkerSettings,
    policy: Policy,
    periods: Periods,
    promises: Promises,
    post_limit: UpstreamLimit,
    lookup_limit: UpstreamLimit,
    /// The questions to the upstream about usages.
    asking: Asking,
    ownership: OwnedPartitions,
    time: Arc<UpstreamTime>,
    /// Whether a due span that was found waits for a permit.
    spans_wait: AtomicBool,
    /// The control and the backlog, as this worker has read them last.
    steering: Arc<Steering>,
    /// Whether the database keeps up.
    distress: Distress,
    rate: RateMeter,
    registered_causes: RegisteredCauses,
    /// The spans that the store has failed on.
    store_failures: StoreFailures,
    /// Cancelled when the worker should take on nothing new.
    stop: CancellationToken,
}

impl Worker {
    /// A worker that takes nothing new on once `stop` is cancelled.
    pub fn new(parts: Parts, options: Options, stop: CancellationToken) -> Arc<Self> {
        let Options {
            name,
            settings,
            periods,
        } = options;
        let post_limit = UpstreamLimit::new(settings.delivery.concurrency);
        let lookup_limit = UpstreamLimit::new(lookups_max(settings.processing.concurrency));
        let promises = parts.upstream.promises();
        let pace = Pace {
            usual: periods.clock,
        };
        let time = UpstreamTime::new(Arc::clone(&parts.clock), pace);
        let steering = Steering::new(Arc::clone(&parts.operating));
        Arc::new(Self {
            parts,
            name,
            policy: settings.sampling.policy(),
            settings,
            periods,
            promises,
            post_limit,
            lookup_limit,
            asking: Asking::default(),
            ownership: OwnedPartitions::default(),
            time,
            spans_wait: AtomicBool::default(),
            steering,
            distress: Distress::default(),
            rate: RateMeter::default(),
            registered_causes: RegisteredCauses::default(),
            store_failures: StoreFailures::default(),
            stop,
        })
    }

    /// Runs all loops. After the stop it finishes what is in flight, and returns.
    pub async fn run(self: &Arc<Self>) {
        tokio::join!(
            self.send_heartbeats(),
            self.keep_clock_estimate(),
            self.process(),
            self.clean_up(),
            self.keep_causes(),
            self.keep_resending(),
            self.confirm(),
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

    /// The time by which this worker decides.
    pub fn time(&self) -> Arc<UpstreamTime> {
        Arc::clone(&self.time)
    }

    /// The time by which everything is decided. As far as the estimate is right, it is never later
    /// than Abacus's: Abacus sets aside usages that are after its today, and never bills them.
    fn now(&self) -> Timestamp {
        self.time.now()
    }

    /// Sleeps; ends early on shutdown.
    async fn sleep(&self, length: Duration) {
        self.stop
            .run_until_cancelled(tokio::time::sleep(length))
            .await;
    }
}

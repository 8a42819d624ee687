//! A stand-in for Abacus: the collector of usages and the provisioning of plans.
//!
//! It says 202 before it has judged, as the real one does: repeats do not count, usages of tomorrow are set
//! aside afterwards, and only a `GET` on the `Location` tells (under that of a repeat there never is
//! anything). Faults can be ordered, and everything it was sent and what it counts can be asked for.

mod fault;
mod server;
mod state;
mod usage;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::net::TcpListener;

pub use fault::{Fault, FaultKind};
pub use state::{Counted, Post};
pub use usage::{Measure, Usage};

use crate::now_millis;
use crate::serving::{Serving, listen};
use server::router;
use state::State;

/// What the stand-in keeps of what it is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// Every post and every usage.
    #[default]
    Everything,
    /// Only their number. Bodies are not parsed: this is for benchmarks.
    Count,
}

/// A clock, in ms since epoch.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// How the stand-in is to behave when no fault is ordered.
#[derive(Clone)]
pub struct Options {
    /// What it takes for the present.
    pub clock: Clock,
    pub keep: Keep,
    /// How long the document of a usage is not found after its post.
    pub confirms_after: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            clock: Arc::new(now_millis),
            keep: Keep::default(),
            confirms_after: Duration::ZERO,
        }
    }
}

/// A running stand-in. It goes when this value goes.
pub struct StandInAbacus {
    shared: Arc<Shared>,
    serving: Serving,
}

/// What the stand-in and its connections share.
struct Shared {
    clock: Clock,
    address: SocketAddr,
    state: Mutex<State>,
}

impl Shared {
    /// A test that has panicked while it held the lock has said all there is to say.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When an answer is said to be given, ms since epoch.
    fn date(&self) -> i64 {
        now_millis() + self.state().dates_ahead
    }
}

impl StandInAbacus {
    /// Starts serving on the runtime that is running.
    pub async fn start(options: Options) -> Result<Self> {
        Self::start_on(listen().await?.0, options)
    }

    /// Starts serving on a listener that is there.
    pub fn start_on(listener: TcpListener, options: Options) -> Result<Self> {
        let address = listener.local_addr().context("the address")?;
        let clock = Arc::clone(&options.clock);
        let state = Mutex::new(State::new(options));
        let shared = Arc::new(Shared {
            clock,
            address,
            state,
        });
        let serving = Serving::start(listener, router(Arc::clone(&shared)))?;
        Ok(Self { shared, serving })
    }

    /// Where it is: the `COLLECTOR_URL` and the `PROVISIONING_URL` of the programs.
    pub fn base_url(&self) -> String {
        self.serving.base_url()
    }

    /// Adds a fault.
    pub fn fault(&self, fault: Fault) {
        self.shared.state().faults.add(fault);
    }

    /// Everything goes well again. Requests that hang already hang on.
    pub fn clear_faults(&self) {
        self.shared.state().faults.clear();
    }

    /// Ends the faults of that name; others go on.
    pub fn end_faults(&self, name: &str) {
        self.shared.state().faults.end(name);
    }

    /// Closes all connections, and refuses new ones until [`StandInAbacus::come_back`].
    pub async fn go_away(&self) {
        self.serving.go_away().await;
    }

    /// Serves again after [`StandInAbacus::go_away`], on the same port.
    pub async fn come_back(&self) -> Result<()> {
        self.serving.come_back().await
    }

    /// From now on dates its answers by a clock that is ahead by this many ms, or behind.
    pub fn date_answers(&self, ahead: i64) {
        self.shared.state().dates_ahead = ahead;
    }

    /// From now on tokens must pass this check.
    pub fn check_tokens(&self, check: impl Fn(&str) -> bool + Send + Sync + 'static) {
        self.shared.state().token_check = Some(Box::new(check));
    }

    /// Every post of a usage, in the order they came.
    pub fn posts(&self) -> Vec<Post> {
        self.shared.state().posts.clone()
    }

    /// How often the document of a usage was asked for.
    pub fn questions(&self) -> usize {
        self.shared.state().questions
    }

    /// How many posts of usages there were.
    pub fn post_count(&self) -> u64 {
        self.shared.state().post_count
    }

    /// The usages that count, in the order they came, each once.
    pub fn counted(&self) -> Vec<Counted> {
        self.shared.state().counted().collect()
    }

    /// How many usages count.
    pub fn counted_count(&self) -> u64 {
        self.shared.state().counted_count
    }

    /// The usages that were set aside, and why.
    pub fn put_aside(&self) -> Vec<(Arc<Usage>, String)> {
        self.shared.state().put_aside()
    }

    /// The sum of the durations that count, for each key.
    pub fn duration_sum_by<K: Ord>(&self, key: impl Fn(&Usage) -> K) -> BTreeMap<K, i128> {
        let mut sums = BTreeMap::new();
        for counted in self.counted() {
            *sums.entry(key(&counted.usage)).or_default() += counted.usage.duration();
        }
        sums
    }
}

//! The stand-in as a test sees it.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::fault::Fault;
use super::schema::Usage;
use super::server::serve;
use super::state::{Counted, Mapping, Post, State, Tokens};
use super::sums::{Amounts, add_amounts};
use super::{Clock, Options};
use crate::now_millis;

/// How answers are dated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dates {
    /// By the clock of the machine.
    #[default]
    Right,
    /// By a clock that is ahead by this many ms, or behind.
    Off(i64),
    /// By a clock that was behind by `behind` ms at `since` (ms since epoch) and runs `times` as fast as
    /// that of the machine, until it is right.
    Fast {
        /// When it was set.
        since: i64,
        /// How far it was behind then, ms.
        behind: i64,
        /// How fast it runs.
        times: i64,
    },
    Missing,
}

impl Dates {
    /// What an answer at `now`, ms since epoch, is dated.
    fn at(self, now: i64) -> Option<i64> {
        match self {
            Self::Right => Some(now),
            Self::Off(ahead) => Some(now + ahead),
            Self::Fast {
                since,
                behind,
                times,
            } => Some(now.min(since - behind + (now - since) * times)),
            Self::Missing => None,
        }
    }
}

/// A running stand-in. It goes when this value goes.
#[derive(Debug)]
pub struct StandInAbacus {
    shared: Arc<Shared>,
    address: SocketAddr,
    serving: Mutex<Option<JoinHandle<()>>>,
}

/// What the stand-in and its connections share.
pub(super) struct Shared {
    pub(super) clock: Clock,
    pub(super) address: SocketAddr,
    dates: Mutex<Dates>,
    state: Mutex<State>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// A test that has panicked while it held the lock has said all there is to say.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When an answer is said to be given, ms since epoch.
    pub(super) fn date(&self) -> Option<i64> {
        let dates = *self.dates.lock().unwrap_or_else(PoisonError::into_inner);
        dates.at(now_millis())
    }
}

impl StandInAbacus {
    /// Starts serving on the runtime that is running.
    pub async fn start(options: Options) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", options.port)).await;
        let listener = listener.with_context(|| format!("listening on port {}", options.port))?;
        Self::start_on(listener, options)
    }

    /// Starts serving on a listener that is there.
    pub fn start_on(listener: TcpListener, options: Options) -> Result<Self> {
        let address = listener.local_addr().context("the address")?;
        let clock = Arc::clone(&options.clock);
        let state = Mutex::new(State::new(options));
        let shared = Arc::new(Shared {
            clock,
            address,
            dates: Mutex::default(),
            state,
        });
        let serving = tokio::spawn(serve(listener, Arc::clone(&shared)));
        Ok(Self {
            shared,
            address,
            serving: Mutex::new(Some(serving)),
        })
    }

    /// Where it is: the `COLLECTOR_URL` and the `PROVISIONING_URL` of the programs.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
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
        let serving = self
            .serving
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(serving) = serving {
            serving.abort();
            let _ = serving.await;
        }
    }

    /// Serves again after [`StandInAbacus::go_away`], on the same port.
    pub async fn come_back(&self) -> Result<()> {
        self.go_away().await;
        let listener = TcpListener::bind(self.address)
            .await
            .context("taking the port again")?;
        let serving = tokio::spawn(serve(listener, Arc::clone(&self.shared)));
        *self.serving.lock().unwrap_or_else(PoisonError::into_inner) = Some(serving);
        Ok(())
    }

    /// Dates its answers so from now on.
    pub fn date_answers(&self, dates: Dates) {
        *self
            .shared
            .dates
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = dates;
    }

    /// Changes the token it wants to see.
    pub fn set_bearer(&self, bearer: Option<String>) {
        self.shared.state().options.bearer = bearer;
    }

    /// From now on tokens must pass this check.
    pub fn check_tokens(&self, check: impl Fn(&str) -> bool + Send + Sync + 'static) {
        self.shared.state().tokens = Tokens(Some(Box::new(check)));
    }

    /// Every post of a usage, in the order they came.
    pub fn posts(&self) -> Vec<Post> {
        self.shared.state().posts()
    }

    /// The `Authorization` header of each question for the document of a usage.
    pub fn questions(&self) -> Vec<Option<String>> {
        self.shared.state().questions()
    }

    /// How many posts of usages there were.
    pub fn post_count(&self) -> u64 {
        self.shared.state().post_count()
    }

    /// The usages that count, in the order they came, each once.
    pub fn counted(&self) -> Vec<Counted> {
        self.shared.state().counted().collect()
    }

    /// How many usages count.
    pub fn counted_count(&self) -> u64 {
        self.shared.state().counted_count()
    }

    /// The usages that were set aside, and why.
    pub fn put_aside(&self) -> Vec<(Arc<Usage>, String)> {
        self.shared.state().put_aside()
    }

    pub fn mappings(&self) -> Vec<Mapping> {
        self.shared.state().mappings()
    }

    /// The sum of the durations that count, for each key.
    pub fn duration_sum_by<K: Ord>(&self, key: impl Fn(&Usage) -> K) -> BTreeMap<K, i128> {
        let mut sums = BTreeMap::new();
        for counted in self.counted() {
            *sums.entry(key(&counted.usage)).or_default() += counted.usage.duration();
        }
        sums
    }

    /// For each key the sum of the durations (under `duration`) and, for each measure of integer
    /// quantities, the sum of duration times quantity, over what counts.
    pub fn amounts_by<K: Ord>(&self, key: impl Fn(&Usage) -> K) -> BTreeMap<K, Amounts> {
        let mut sums: BTreeMap<K, Amounts> = BTreeMap::new();
        for counted in self.counted() {
            add_amounts(sums.entry(key(&counted.usage)).or_default(), &counted.usage);
        }
        sums
    }

    /// The amounts over all that counts.
    pub fn amounts(&self) -> Amounts {
        self.amounts_by(|_| ()).remove(&()).unwrap_or_default()
    }

    /// The amounts for each day (UTC, in days since epoch).
    pub fn amounts_per_day(&self) -> BTreeMap<i64, Amounts> {
        self.amounts_by(Usage::day)
    }
}

impl Drop for StandInAbacus {
    fn drop(&mut self) {
        let serving = self
            .serving
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(serving) = serving {
            serving.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fast_clock_catches_up_and_is_right_from_then_on() {
        let dates = Dates::Fast {
            since: 1_000,
            behind: 700,
            times: 8,
        };
        assert_eq!(dates.at(1_000), Some(300));
        assert_eq!(dates.at(1_010), Some(380));
        assert_eq!(dates.at(1_100), Some(1_100));
        assert_eq!(dates.at(5_000), Some(5_000));
    }
}

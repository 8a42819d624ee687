//! The stand-in as a test sees it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use hyper::server::conn::http1;
use tokio::net::TcpListener;

use super::fault::Fault;
use super::schema::Usage;
use super::server::answer;
use super::state::{Counted, Post, State};
use super::{Clock, Options};
use crate::now_millis;
use crate::serving::Serving;

/// How answers are dated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dates {
    /// By the clock of the machine.
    #[default]
    Right,
    /// By a clock that is ahead by this many ms, or behind.
    Off(i64),
    Missing,
}

impl Dates {
    /// What an answer at `now`, ms since epoch, is dated.
    fn at(self, now: i64) -> Option<i64> {
        match self {
            Self::Right => Some(now),
            Self::Off(ahead) => Some(now + ahead),
            Self::Missing => None,
        }
    }
}

/// A running stand-in. It goes when this value goes.
pub struct StandInAbacus {
    shared: Arc<Shared>,
    serving: Serving,
}

/// What the stand-in and its connections share.
pub(super) struct Shared {
    pub(super) clock: Clock,
    pub(super) address: SocketAddr,
    dates: Mutex<Dates>,
    state: Mutex<State>,
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
        let listener = TcpListener::bind("127.0.0.1:0").await;
        Self::start_on(listener.context("listening")?, options)
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
        let seen = Arc::clone(&shared);
        let mut connections = http1::Builder::new();
        connections.auto_date_header(false);
        let serving = Serving::start(listener, connections, move |request| {
            answer(Arc::clone(&seen), request)
        })?;
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

    /// Dates its answers so from now on.
    pub fn date_answers(&self, dates: Dates) {
        *self
            .shared
            .dates
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = dates;
    }

    /// From now on tokens must pass this check.
    pub fn check_tokens(&self, check: impl Fn(&str) -> bool + Send + Sync + 'static) {
        self.shared.state().token_check = Some(Box::new(check));
    }

    /// Every post of a usage, in the order they came.
    pub fn posts(&self) -> Vec<Post> {
        self.shared.state().posts()
    }

    /// How often the document of a usage was asked for.
    pub fn questions(&self) -> usize {
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

    /// The sum of the durations that count, for each key.
    pub fn duration_sum_by<K: Ord>(&self, key: impl Fn(&Usage) -> K) -> BTreeMap<K, i128> {
        let mut sums = BTreeMap::new();
        for counted in self.counted() {
            *sums.entry(key(&counted.usage)).or_default() += counted.usage.duration();
        }
        sums
    }
}

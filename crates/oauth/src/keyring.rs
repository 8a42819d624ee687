//! The keys that are in force: configured for good, or fetched from a token server, kept, and
//! fetched again at a bounded rate.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedMutexGuard, Semaphore};
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use crate::algorithm::Algorithm;
use crate::discovery::Discoverer;
use crate::http::fetch;
use crate::keys::Keys;

/// How long finding the token server and fetching its keys may take together.
const FETCH_LIMIT: Duration = Duration::from_secs(10);

/// How many requests may wait for keys at once; more are answered without.
const WAITING_MAX: usize = 64;

/// How often keys are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Between two fetches at the least, however many tokens name unknown keys.
    pub at_least: Duration,
    /// Between two fetches that nobody has asked for, so that a key that was withdrawn goes.
    pub at_most: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            at_least: Duration::from_secs(10),
            at_most: Duration::from_mins(5),
        }
    }
}

/// What came of asking for newer keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refreshed {
    /// The keys are those of this moment.
    Now,
    /// They were fetched a moment ago, and are not fetched again so soon; or they never are.
    Lately,
    /// The token server cannot be asked. The keys are those from before, if there were any.
    Failed,
}

/// The keys in force.
#[derive(Debug)]
pub struct Keyring {
    keys: Mutex<Option<Arc<Keys>>>,
    source: Option<Source>,
}

/// Where newer keys come from.
#[derive(Debug)]
struct Source {
    discoverer: Discoverer,
    algorithm: Algorithm,
    pace: Pace,
    /// The one fetch that may be under way, and what came of the last.
    last: Arc<tokio::sync::Mutex<Option<Attempt>>>,
    waiting: Semaphore,
}

#[derive(Clone, Copy, Debug)]
struct Attempt {
    at: Instant,
    worked: bool,
}

impl Keyring {
    /// One key, for good.
    pub fn configured(keys: Keys) -> Arc<Self> {
        Arc::new(Self {
            keys: Mutex::new(Some(Arc::new(keys))),
            source: None,
        })
    }

    /// The keys of a token server, of which none is known yet.
    pub fn fetched(discoverer: Discoverer, algorithm: Algorithm, pace: Pace) -> Arc<Self> {
        let source = Source {
            discoverer,
            algorithm,
            pace,
            last: Arc::default(),
            waiting: Semaphore::new(WAITING_MAX),
        };
        Arc::new(Self {
            keys: Mutex::new(None),
            source: Some(source),
        })
    }

    /// The keys as they are known; none before they could be fetched for the first time.
    pub fn current(&self) -> Option<Arc<Keys>> {
        self.keys
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Fetches the keys, unless that was done a moment ago or somebody is at it, whose result then
    /// is everybody's.
    pub async fn refresh(self: &Arc<Self>) -> Refreshed {
        let Some(source) = &self.source else {
            return Refreshed::Lately;
        };
        let asked = Instant::now();
        let Ok(_place) = source.waiting.try_acquire() else {
            return if self.current().is_some() {
                Refreshed::Lately
            } else {
                Refreshed::Failed
            };
        };
        let last = Arc::clone(&source.last).lock_owned().await;
        if let Some(attempt) = *last
            && attempt.at.elapsed() < source.pace.at_least
        {
            return match (attempt.worked, attempt.at >= asked) {
                (false, _) => Refreshed::Failed,
                (true, true) => Refreshed::Now,
                (true, false) => Refreshed::Lately,
            };
        }
        // A client that goes away must not take the fetch with it: others wait for it, too.
        let keyring = Arc::clone(self);
        let fetching = tokio::spawn(async move { keyring.fetch(last).await });
        fetching.await.unwrap_or(Refreshed::Failed)
    }

    async fn fetch(&self, mut last: OwnedMutexGuard<Option<Attempt>>) -> Refreshed {
        let Some(source) = &self.source else {
            return Refreshed::Lately;
        };
        let fetched = timeout(FETCH_LIMIT, source.fetch()).await;
        let fetched = fetched.unwrap_or_else(|_| Err("it took too long".to_owned()));
        *last = Some(Attempt {
            at: Instant::now(),
            worked: fetched.is_ok(),
        });
        match fetched {
            Ok(keys) => {
                let count = keys.count();
                let new = Some(Arc::new(keys));
                let old = std::mem::replace(
                    &mut *self.keys.lock().unwrap_or_else(PoisonError::into_inner),
                    new,
                );
                if old.is_none() {
                    info!(count, "the keys of the token server are known");
                }
                Refreshed::Now
            }
            Err(error) => {
                source.discoverer.forget();
                let kept = self.current().is_some();
                warn!(
                    error,
                    kept, "the keys of the token server could not be fetched"
                );
                Refreshed::Failed
            }
        }
    }

    /// Keeps the keys fresh for ever; to be dropped at the end. What is under way then is finished
    /// by itself.
    pub async fn keep_fresh(self: &Arc<Self>) {
        let Some(pace) = self.source.as_ref().map(|source| source.pace) else {
            return;
        };
        loop {
            let pause = match self.refresh().await {
                Refreshed::Now | Refreshed::Lately => pace.at_most,
                Refreshed::Failed => pace.at_least,
            };
            tokio::time::sleep(pause).await;
        }
    }
}

impl Source {
    async fn fetch(&self) -> Result<Keys, String> {
        let endpoints = self.discoverer.endpoints().await;
        let endpoints = endpoints.map_err(|error| error.to_string())?;
        let document = fetch(self.discoverer.client().get(endpoints.keys)).await;
        let document = document.map_err(|error| error.to_string())?;
        Keys::fetched(&document, self.algorithm).map_err(|error| error.to_string())
    }
}

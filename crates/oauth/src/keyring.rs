//! The keys that are in force: configured for good, or fetched from a token server, kept for a
//! time, and fetched again at a bounded rate.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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

/// How often keys are fetched, and how long they are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Between two fetches at the least, however many tokens name unknown keys.
    pub at_least: Duration,
    /// Between two fetches that nobody has asked for, so that a key that was withdrawn goes.
    pub at_most: Duration,
    /// After this, keys that could not be fetched again are not in force any more.
    pub age_max: Duration,
}

impl Pace {
    /// [`Pace::at_most`], unless a test says otherwise.
    pub const AT_MOST: Duration = Duration::from_mins(5);
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            at_least: Duration::from_secs(10),
            at_most: Self::AT_MOST,
            age_max: Duration::from_hours(24),
        }
    }
}

/// How it is known which issuer tokens must name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Issuer {
    /// It is configured, as a part of the policy.
    Configured,
    /// The token server says it, and its keys are not taken before it has. A UAA signs for all
    /// identity zones that have no keys of their own: only the issuer tells them apart.
    Discovered,
}

/// What came of asking for newer keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refreshed {
    /// The keys were asked for after this was, so they are those of this moment.
    Now,
    /// They were fetched a moment ago, and may be fetched again after so long.
    Lately(Duration),
    /// The token server cannot be asked. The keys are those from before, if there were any.
    Failed,
}

/// The token server does not say which issuer it is, so its keys cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the token server does not say in /.well-known/openid-configuration which issuer it is, and \
     SAMPLER_TOKEN_ISSUER is not set: tokens of its other identity zones could not be told apart"
)]
pub struct NoIssuer;

/// The keys in force.
#[derive(Debug)]
pub struct Keyring {
    keys: Mutex<Option<Known>>,
    source: Option<Source>,
}

/// Keys, and when they were fetched.
#[derive(Clone, Debug)]
struct Known {
    keys: Arc<Keys>,
    at: Instant,
}

/// Where newer keys come from.
#[derive(Debug)]
struct Source {
    discoverer: Discoverer,
    algorithm: Algorithm,
    issuer: Issuer,
    pace: Pace,
    /// The one fetch that may be under way, and what came of the last.
    last: Arc<tokio::sync::Mutex<Option<Attempt>>>,
    waiting: Semaphore,
}

#[derive(Clone, Copy, Debug)]
struct Attempt {
    /// What the token server shows from then on may not be in it.
    began: Instant,
    ended: Instant,
    outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Fetched,
    Failed,
    NoIssuer,
}

impl Keyring {
    /// One key, for good.
    pub fn configured(keys: Keys) -> Arc<Self> {
        let (keys, at) = (Arc::new(keys), Instant::now());
        Arc::new(Self {
            keys: Mutex::new(Some(Known { keys, at })),
            source: None,
        })
    }

    /// The keys of a token server, of which none is known yet.
    pub fn fetched(
        discoverer: Discoverer,
        algorithm: Algorithm,
        issuer: Issuer,
        pace: Pace,
    ) -> Arc<Self> {
        let source = Source {
            discoverer,
            algorithm,
            issuer,
            pace,
            last: Arc::default(),
            waiting: Semaphore::new(WAITING_MAX),
        };
        Arc::new(Self {
            keys: Mutex::new(None),
            source: Some(source),
        })
    }

    /// The keys in force; none before they could be fetched for the first time, and none once they
    /// are too old. There may be no key among them.
    pub fn current(&self) -> Option<Arc<Keys>> {
        self.known().map(|known| known.keys)
    }

    /// How long ago the keys in force were fetched.
    pub fn age(&self) -> Option<Duration> {
        self.known().map(|known| known.at.elapsed())
    }

    fn known(&self) -> Option<Known> {
        let known = self.lock().clone();
        let source = self.source.as_ref();
        let is_good =
            |known: &Known| source.is_none_or(|source| known.at.elapsed() < source.pace.age_max);
        known.filter(is_good)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Known>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fetches the keys, unless that was done a moment ago or somebody is at it, whose result then
    /// is everybody's.
    pub async fn refresh(self: &Arc<Self>) -> Refreshed {
        let Some(source) = &self.source else {
            return Refreshed::Lately(Duration::MAX);
        };
        let asked = Instant::now();
        let Ok(_permit) = source.waiting.try_acquire() else {
            return match self.current() {
                Some(_) => Refreshed::Lately(source.pace.at_least),
                None => Refreshed::Failed,
            };
        };
        let last = Arc::clone(&source.last).lock_owned().await;
        if let Some(attempt) = *last
            && let Some(left) = source.pace.at_least.checked_sub(attempt.ended.elapsed())
            && !left.is_zero()
        {
            return match (attempt.outcome, attempt.began >= asked) {
                (Outcome::Fetched, true) => Refreshed::Now,
                (Outcome::Fetched, false) => Refreshed::Lately(left),
                (Outcome::Failed | Outcome::NoIssuer, _) => Refreshed::Failed,
            };
        }
        // A client that goes away must not take the fetch with it: others wait for it, too.
        let keyring = Arc::clone(self);
        let fetching = tokio::spawn(async move { keyring.fetch(last).await });
        fetching.await.unwrap_or(Refreshed::Failed)
    }

    async fn fetch(&self, mut last: OwnedMutexGuard<Option<Attempt>>) -> Refreshed {
        let Some(source) = &self.source else {
            return Refreshed::Lately(Duration::MAX);
        };
        let issuer = self.lock().as_ref().and_then(|known| {
            let issuer = known.keys.issuer();
            issuer.map(str::to_owned)
        });
        let began = Instant::now();
        let fetched = timeout(FETCH_LIMIT, source.fetch(issuer)).await;
        let fetched = fetched.unwrap_or_else(|_| Err(Failure::other("it took too long")));
        let ended = Instant::now();
        let outcome = match &fetched {
            Ok(_) => Outcome::Fetched,
            Err(failure) => failure.outcome,
        };
        *last = Some(Attempt {
            began,
            ended,
            outcome,
        });
        match fetched {
            Ok(keys) => {
                self.replace(keys, began);
                Refreshed::Now
            }
            Err(failure) => {
                source.discoverer.forget();
                let kept = self.current().is_some();
                warn!(
                    code = "token_keys.fetch_failed",
                    error = failure.text,
                    kept,
                    "the keys of the token server could not be fetched"
                );
                Refreshed::Failed
            }
        }
    }

    /// Whatever the token server says are its keys now are all that there are: also where it has
    /// none any more.
    fn replace(&self, keys: Keys, at: Instant) {
        let count = keys.count();
        let keys = Arc::new(keys);
        let before = self.lock().replace(Known { keys, at });
        let had_some = before.as_ref().map(|known| known.keys.count() > 0);
        match had_some {
            Some(true) | None if count == 0 => warn!(
                code = "token_keys.none",
                "the token server has no key for the algorithm: no token can be checked"
            ),
            Some(false) | None if count > 0 => {
                info!(count, "the keys of the token server are known");
            }
            _ => {}
        }
    }

    /// Keeps the keys fresh for ever; to be dropped at the end. What is under way then is finished
    /// by itself.
    ///
    /// # Errors
    /// Where the token server answers and does not say which issuer it is, before it ever did.
    pub async fn keep_fresh(self: &Arc<Self>) -> Result<(), NoIssuer> {
        let Some(source) = &self.source else {
            return Ok(());
        };
        loop {
            let pause = match self.refresh().await {
                Refreshed::Now | Refreshed::Lately(_) => source.pace.at_most,
                Refreshed::Failed => source.pace.at_least,
            };
            let last = source.last.lock().await.map(|attempt| attempt.outcome);
            if last == Some(Outcome::NoIssuer) {
                return Err(NoIssuer);
            }
            tokio::time::sleep(pause).await;
        }
    }
}

/// Why there are no keys.
struct Failure {
    outcome: Outcome,
    text: String,
}

impl Failure {
    fn other(error: impl ToString) -> Self {
        let (outcome, text) = (Outcome::Failed, error.to_string());
        Self { outcome, text }
    }

    fn no_issuer() -> Self {
        let (outcome, text) = (Outcome::NoIssuer, NoIssuer.to_string());
        Self { outcome, text }
    }
}

impl Source {
    /// The keys of this moment. The issuer that is `known` from before stays where the server does
    /// not say it now: keys can be withdrawn all the same.
    async fn fetch(&self, known: Option<String>) -> Result<Keys, Failure> {
        let endpoints = self.discoverer.endpoints().await.map_err(Failure::other)?;
        let document = fetch(self.discoverer.client().get(endpoints.keys)).await;
        let document = document.map_err(Failure::other)?;
        let keys = Keys::fetched(&document, self.algorithm).map_err(Failure::other)?;
        if self.issuer == Issuer::Configured {
            return Ok(keys);
        }
        let issuer = match (self.discoverer.issuer().await, known) {
            (Ok(Some(issuer)), _) | (Ok(None) | Err(_), Some(issuer)) => issuer,
            (Ok(None), None) => return Err(Failure::no_issuer()),
            (Err(error), None) => return Err(Failure::other(error)),
        };
        Ok(keys.of_issuer(issuer))
    }
}

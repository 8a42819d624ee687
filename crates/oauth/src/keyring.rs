//! The keys in use: configured, or fetched from a token server, and fetched again at a bounded rate.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedMutexGuard, Semaphore};
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use crate::algorithm::Algorithm;
use crate::discovery::Discoverer;
use crate::http::{FetchError, fetch};
use crate::keys::{KeyError, Keys};

/// The time limit for finding the token server and fetching its keys.
const FETCH_LIMIT: Duration = Duration::from_secs(10);

/// The most requests that wait for keys. Further ones are answered without newer keys.
const WAITING_MAX: usize = 64;

/// How often keys are fetched, and how long they stay in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The shortest time between two fetches, however many tokens name unknown keys.
    pub at_least: Duration,
    /// The time between two fetches without a request, so that withdrawn keys are dropped.
    pub at_most: Duration,
    /// How long keys stay in use that cannot be fetched again.
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

/// The source of the issuer that tokens must name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Issuer {
    /// The policy has it.
    Configured,
    /// The token server names it, and its keys are not used before it has. A UAA signs for all
    /// identity zones without keys of their own: only the issuer distinguishes them.
    Discovered,
}

/// The result of a request for newer keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refreshed {
    /// The keys were fetched after this request, so they are current.
    Now,
    /// The keys were fetched seconds ago, and can be fetched again after this time.
    Lately(Duration),
    /// The token server is unavailable. Previous keys stay in use.
    Failed,
}

/// The token server names no issuer, so its keys cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the token server does not say in /.well-known/openid-configuration which issuer it is, and \
     SAMPLER_TOKEN_ISSUER is not set: tokens of its other identity zones could not be distinguished"
)]
pub struct NoIssuer;

/// The keys in use.
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

/// The source of newer keys.
#[derive(Debug)]
struct Source {
    discoverer: Discoverer,
    algorithm: Algorithm,
    issuer: Issuer,
    pace: Pace,
    /// Held during a fetch; the result of the last fetch.
    last: Arc<tokio::sync::Mutex<Option<Attempt>>>,
    waiting: Semaphore,
}

#[derive(Clone, Copy, Debug)]
struct Attempt {
    /// When the fetch began. Keys that the token server published later may be missing.
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
    pub fn configured(keys: Keys) -> Arc<Self> {
        let (keys, at) = (Arc::new(keys), Instant::now());
        Arc::new(Self {
            keys: Mutex::new(Some(Known { keys, at })),
            source: None,
        })
    }

    /// A keyring for the keys of a token server. It has none yet.
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

    /// The keys in use. `None` before the first successful fetch, and once they are too old. The list
    /// may be empty.
    pub fn current(&self) -> Option<Arc<Keys>> {
        self.known().map(|known| known.keys)
    }

    /// How long ago the keys in use were fetched.
    pub fn age(&self) -> Option<Duration> {
        self.known().map(|known| known.at.elapsed())
    }

    fn known(&self) -> Option<Known> {
        let known = self.lock().clone()?;
        match &self.source {
            Some(source) if known.at.elapsed() >= source.pace.age_max => None,
            _ => Some(known),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Known>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fetches the keys, unless they were fetched seconds ago. Concurrent calls share one fetch.
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
        // The fetch continues if its client disconnects: others wait for it, too.
        let keyring = Arc::clone(self);
        let fetching = tokio::spawn(async move { keyring.fetch(last).await });
        fetching.await.unwrap_or(Refreshed::Failed)
    }

    async fn fetch(&self, mut last: OwnedMutexGuard<Option<Attempt>>) -> Refreshed {
        let Some(source) = &self.source else {
            return Refreshed::Lately(Duration::MAX);
        };
        let issuer = self
            .lock()
            .as_ref()
            .and_then(|known| known.keys.issuer().map(str::to_owned));
        let began = Instant::now();
        let fetched = timeout(FETCH_LIMIT, source.fetch(issuer))
            .await
            .unwrap_or_else(|_| Err(Failure::Late));
        let ended = Instant::now();
        let outcome = match &fetched {
            Ok(_) => Outcome::Fetched,
            Err(Failure::NoIssuer(_)) => Outcome::NoIssuer,
            Err(_) => Outcome::Failed,
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
                    error = %failure,
                    kept,
                    "the keys of the token server could not be fetched"
                );
                Refreshed::Failed
            }
        }
    }

    /// Replaces all keys by those that the token server has now, even if it has none.
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

    /// Fetches the keys again and again; drop the future to end that. A fetch in progress still
    /// completes.
    ///
    /// # Errors
    /// If the token server answers without naming its issuer, and has never named it before.
    pub async fn keep_fresh(self: &Arc<Self>) -> Result<(), NoIssuer> {
        let Some(source) = &self.source else {
            return Ok(());
        };
        loop {
            let refreshed = self.refresh().await;
            // Without a key no token can be checked: it is asked for one often.
            let has_keys = self.current().is_some_and(|keys| keys.count() > 0);
            let pause = match refreshed {
                Refreshed::Now | Refreshed::Lately(_) if has_keys => source.pace.at_most,
                _ => source.pace.at_least,
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
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("it took too long")]
    Late,
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error(transparent)]
    Keys(#[from] KeyError),
    #[error(transparent)]
    NoIssuer(#[from] NoIssuer),
}

impl Source {
    /// Fetches the keys. If the server does not name its issuer now, the issuer that is `known` from
    /// before stays, so that keys can still be withdrawn.
    async fn fetch(&self, known: Option<String>) -> Result<Keys, Failure> {
        let endpoints = self.discoverer.endpoints().await?;
        let document = fetch(self.discoverer.client().get(endpoints.keys)).await?;
        let keys = Keys::fetched(&document, self.algorithm)?;
        if self.issuer == Issuer::Configured {
            return Ok(keys);
        }
        let issuer = match (self.discoverer.issuer().await, known) {
            (Ok(Some(issuer)), _) | (Ok(None) | Err(_), Some(issuer)) => issuer,
            (Ok(None), None) => return Err(NoIssuer.into()),
            (Err(error), None) => return Err(error.into()),
        };
        Ok(keys.of_issuer(issuer))
    }
}

//! The keys in use: configured, or fetched from a token server, and fetched again at a bounded rate.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use super::discovery::Discoverer;
use super::http::{FetchError, fetch};
use super::keys::{Algorithm, Keys};

/// The time limit for finding the token server and fetching its keys.
const FETCH_LIMIT: Duration = Duration::from_secs(10);

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

impl Default for Pace {
    fn default() -> Self {
        Self {
            at_least: Duration::from_secs(10),
            at_most: Duration::from_mins(5),
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

/// The keys were not fetched for this request: seconds ago they were, or the token server is
/// unavailable. They may be fetched again after this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotNow(pub Duration);

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
    /// The keys, and when they were fetched.
    known: Mutex<Option<(Arc<Keys>, Instant)>>,
    source: Option<Source>,
}

/// The source of newer keys.
#[derive(Debug)]
struct Source {
    discoverer: Discoverer,
    algorithm: Algorithm,
    issuer: Issuer,
    pace: Pace,
    /// Held during a fetch: the end of the last one, and whether the token server named no issuer.
    last: Arc<tokio::sync::Mutex<Option<(Instant, bool)>>>,
}

impl Keyring {
    pub fn configured(keys: Keys) -> Arc<Self> {
        Arc::new(Self {
            known: Mutex::new(Some((Arc::new(keys), Instant::now()))),
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
        };
        Arc::new(Self {
            known: Mutex::default(),
            source: Some(source),
        })
    }

    /// The keys in use. `None` where there are none: before the first successful fetch, once they are
    /// too old, and while the token server has none for the algorithm.
    pub fn current(&self) -> Option<Arc<Keys>> {
        let (keys, at) = self.known().clone()?;
        let age_max = self.source.as_ref().map(|source| source.pace.age_max);
        let is_young = age_max.is_none_or(|most| at.elapsed() < most);
        (is_young && keys.count() > 0).then_some(keys)
    }

    fn known(&self) -> MutexGuard<'_, Option<(Arc<Keys>, Instant)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fetches the keys: after `Ok` they are those that the token server has now. Concurrent calls
    /// share one fetch.
    ///
    /// # Errors
    /// If the keys were not fetched for this call. Previous keys stay in use.
    pub async fn refresh(self: &Arc<Self>) -> Result<(), NotNow> {
        let Some(source) = &self.source else {
            return Ok(());
        };
        let mut last = Arc::clone(&source.last).lock_owned().await;
        let at_least = source.pace.at_least;
        let left = last.map_or(Duration::ZERO, |(ended, _)| {
            at_least.saturating_sub(ended.elapsed())
        });
        if !left.is_zero() {
            return Err(NotNow(left));
        }
        // The fetch continues if its client disconnects: others wait for it, too.
        let keyring = Arc::clone(self);
        let fetching = tokio::spawn(async move {
            let fetched = keyring.fetch().await;
            let names_no_issuer = matches!(fetched, Err(Failure::NoIssuer(_)));
            *last = Some((Instant::now(), names_no_issuer));
            fetched.is_ok()
        });
        let is_fetched = fetching.await.unwrap_or(false);
        is_fetched.then_some(()).ok_or(NotNow(at_least))
    }

    /// Replaces all keys by those that the token server has now, even if it has none.
    async fn fetch(&self) -> Result<(), Failure> {
        let Some(source) = &self.source else {
            return Ok(());
        };
        let (before, at) = (self.known().clone(), Instant::now());
        let issuer = before.as_ref().and_then(|(keys, _)| keys.issuer());
        let fetched = timeout(FETCH_LIMIT, source.fetch(issuer)).await;
        let keys = fetched
            .unwrap_or(Err(Failure::Late))
            .inspect_err(|failure| {
                source.discoverer.forget();
                warn!(
                    code = "token_keys.fetch_failed",
                    error = %failure,
                    kept = self.current().is_some(),
                    "the keys of the token server could not be fetched"
                );
            })?;
        let had_some = before.map(|(keys, _)| keys.count() > 0);
        if keys.count() == 0 && had_some != Some(false) {
            warn!(
                code = "token_keys.none",
                "the token server has no key for the algorithm: no token can be checked"
            );
        } else if keys.count() > 0 && had_some != Some(true) {
            info!(
                count = keys.count(),
                "the keys of the token server are known"
            );
        }
        *self.known() = Some((Arc::new(keys), at));
        Ok(())
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
            if let Some((_, true)) = *source.last.lock().await {
                return Err(NoIssuer);
            }
            sleep(match refreshed {
                Ok(()) if self.current().is_some() => source.pace.at_most,
                Ok(()) => source.pace.at_least,
                Err(NotNow(left)) => left,
            })
            .await;
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
    NoIssuer(#[from] NoIssuer),
}

impl Source {
    /// Fetches the keys. If the server does not name its issuer now, the issuer that is `known` from
    /// before stays, so that keys can still be withdrawn.
    async fn fetch(&self, known: Option<&str>) -> Result<Keys, Failure> {
        let endpoints = self.discoverer.endpoints().await?;
        let document = fetch(self.discoverer.client().get(endpoints.keys)).await?;
        let keys = Keys::fetched(&document, self.algorithm)
            .ok_or(FetchError::Document("is not a list of keys"))?;
        if self.issuer == Issuer::Configured {
            return Ok(keys);
        }
        let named = self.discoverer.issuer().await;
        match (named, known) {
            (Ok(Some(issuer)), _) => Ok(keys.of_issuer(issuer)),
            (Ok(None) | Err(_), Some(issuer)) => Ok(keys.of_issuer(issuer)),
            (Ok(None), None) => Err(NoIssuer.into()),
            (Err(error), None) => Err(error.into()),
        }
    }
}

//! The keys in use: configured, or fetched from a token server, and fetched again at a bounded rate.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::warn;

use super::discovery::{Discoverer, FetchError};
use super::verify::{Claims, Keys, Policy, TokenError};

/// The shortest time between two fetches, however many tokens name unknown keys.
pub const AT_LEAST: Duration = Duration::from_secs(10);

/// The time between two fetches without a request, so that withdrawn keys are dropped.
pub const AT_MOST: Duration = Duration::from_mins(5);

/// How long keys stay in use that cannot be fetched again.
pub const AGE_MAX: Duration = Duration::from_hours(24);

/// The keys in use.
#[derive(Debug)]
pub struct Keyring {
    /// The keys, and when their fetch began.
    known: Mutex<Option<(Arc<Keys>, Instant)>>,
    /// Where newer keys come from, and what the tokens must be that they sign.
    server: Option<(Discoverer, Policy)>,
    /// Held during a fetch: when the last one ended.
    last: Arc<tokio::sync::Mutex<Option<Instant>>>,
}

impl Keyring {
    pub fn configured(keys: Keys) -> Arc<Self> {
        Self::of(Some((Arc::new(keys), Instant::now())), None)
    }

    /// A keyring for the keys of a token server. It has none yet.
    pub fn fetched(server: Discoverer, policy: Policy) -> Arc<Self> {
        Self::of(None, Some((server, policy)))
    }

    fn of(known: Option<(Arc<Keys>, Instant)>, server: Option<(Discoverer, Policy)>) -> Arc<Self> {
        Arc::new(Self {
            known: Mutex::new(known),
            server,
            last: Arc::default(),
        })
    }

    fn known(&self) -> MutexGuard<'_, Option<(Arc<Keys>, Instant)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The keys in use. There are none before the first successful fetch, once they are too old, and while the token
    /// server has none for the algorithm.
    pub fn current(&self) -> Result<Arc<Keys>, TokenError> {
        let known = self.known().clone();
        let (keys, at) = known.ok_or(TokenError::UnknownKey)?;
        let is_young = self.server.is_none() || at.elapsed() < AGE_MAX;
        let is_in_use = is_young && keys.count() > 0;
        is_in_use.then_some(keys).ok_or(TokenError::UnknownKey)
    }

    /// The claims of a token. Where its key is unknown, the keys are fetched, and the check is repeated.
    /// Only keys that were fetched for this token can show that its key does not exist.
    pub async fn claims(self: &Arc<Self>, token: &str) -> Result<Claims, TokenError> {
        let verify = || self.current()?.verify(token);
        let verified = verify();
        if verified != Err(TokenError::UnknownKey) {
            return verified;
        }
        let is_fresh = self.refresh().await;
        verify().map_err(|error| match error {
            TokenError::UnknownKey if is_fresh => {
                TokenError::Refused("it is signed with an unknown key")
            }
            error => error,
        })
    }

    /// Fetches the keys, if none were fetched just before. Concurrent calls share one fetch. Returns whether they were
    /// fetched for this call, and there are some; otherwise the previous keys stay in use.
    pub async fn refresh(self: &Arc<Self>) -> bool {
        let mut last = Arc::clone(&self.last).lock_owned().await;
        if last.is_some_and(|last| last.elapsed() < AT_LEAST) {
            return false;
        }
        // The fetch continues if its client disconnects: others wait for it, too.
        let keyring = Arc::clone(self);
        let fetching = tokio::spawn(async move {
            let began = Instant::now();
            let fetched = keyring.fetch().await;
            *last = Some(Instant::now());
            let keys = fetched?;
            let is_some = keys.count() > 0;
            // All are replaced, even if the token server has none now.
            *keyring.known() = Some((Arc::new(keys), began));
            is_some.then_some(())
        });
        fetching.await.is_ok_and(|fetched| fetched.is_some())
    }

    async fn fetch(&self) -> Option<Keys> {
        let (server, policy) = self.server.as_ref()?;
        let known = self.known().as_ref().and_then(|(keys, _)| keys.issuer());
        let fetched = server.in_time(keys_of(server, policy, known)).await;
        let keys = fetched.inspect_err(|error| {
            warn!(
                code = "token_keys.fetch_failed",
                error = %error,
                "the keys of the token server could not be fetched"
            );
        });
        let keys = keys.ok()?;
        if keys.count() == 0 {
            warn!(
                code = "token_keys.none",
                "the token server has no key for the algorithm: no token can be checked"
            );
        }
        Some(keys)
    }

    /// Fetches the keys again and again. A fetch in progress completes, also if the future is dropped.
    pub async fn keep_fresh(self: &Arc<Self>) {
        while self.server.is_some() {
            let is_fresh = self.refresh().await;
            sleep(if is_fresh { AT_MOST } else { AT_LEAST }).await;
        }
    }
}

/// The keys that a token server has now. Where no issuer is configured, tokens must name the one that the server says
/// it is: a UAA signs for all identity zones without keys of their own, and only the issuer distinguishes them. Where it
/// does not say so now, the one that is known stays, so that keys can still be withdrawn.
async fn keys_of(
    server: &Discoverer,
    policy: &Policy,
    known: Option<String>,
) -> Result<Keys, FetchError> {
    let endpoints = server.endpoints().await?;
    let document = server.get(endpoints.keys).await?;
    let mut policy = policy.clone();
    if policy.issuer.is_none() {
        policy.issuer = match (server.issuer(endpoints.issuer).await, known) {
            (Ok(Some(issuer)), _) | (_, Some(issuer)) => Some(issuer),
            (Ok(None), None) => {
                let missing =
                    "does not say which issuer it is, and SAMPLER_TOKEN_ISSUER is not set";
                return Err(FetchError::Document(missing));
            }
            (Err(error), None) => return Err(error),
        };
    }
    Keys::fetched(&document, &policy).ok_or(FetchError::Document("is not a list of keys"))
}

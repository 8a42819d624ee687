//! A request with a valid token gets what the token allows.

use std::sync::Arc;

use axum::Router;
use axum::extract::FromRef;
use axum::routing::any;
use http::HeaderMap;
use http::header::{self, HeaderValue};
use sampler_domain::ClientId;
use tracing::info;

use super::grant::Grant;
use crate::http::{method_not_allowed, not_found};
use crate::oauth::code_flow::person;
use crate::oauth::{Claims, Keyring, Keys, NoIssuer, NotNow, Policy, TokenError, verify};
use crate::problem::{Problem, kinds};

/// A request without a token only learns that one is needed (RFC 6750, section 3.1).
const NO_TOKEN: HeaderValue = HeaderValue::from_static("Bearer realm=\"cf\"");

const INVALID_TOKEN: HeaderValue =
    HeaderValue::from_static("Bearer realm=\"cf\", error=\"invalid_token\"");

const INSUFFICIENT_SCOPE: HeaderValue =
    HeaderValue::from_static("Bearer realm=\"cf\", error=\"insufficient_scope\"");

/// Seconds after which keys may be there.
const RETRY_AFTER: u64 = 10;

/// The scope of Abacus for reading the health of any program of it.
const SYSTEM_READ: &str = "abacus.system.read";

/// The checks of who reads the health of a program, and of who reads its metrics.
#[derive(Clone)]
pub struct Access {
    pub health: Authenticator,
    pub metrics: Authenticator,
}

/// Checks the tokens of an API. Clones are the same.
#[derive(Clone)]
pub struct Authenticator(Option<Arc<BearerCheck>>);

/// The parts of the check of a token.
struct BearerCheck {
    keyring: Arc<Keyring>,
    policy: Policy,
}

impl Authenticator {
    /// Needs no token: for tests, and where `SECURED` is false.
    pub fn none() -> Self {
        Self(None)
    }

    /// Needs a bearer token.
    pub fn bearer(keyring: Arc<Keyring>, policy: Policy) -> Self {
        Self(Some(Arc::new(BearerCheck { keyring, policy })))
    }

    /// Whether tokens can be checked: keys are there, or none are needed.
    pub fn is_ready(&self) -> bool {
        let check = self.0.as_ref();
        check.is_none_or(|check| check.keyring.current().is_some())
    }

    /// The claims of a token that did not come with a request, checked like one that did.
    ///
    /// # Errors
    /// 401 where it is not accepted, 503 where that cannot be said now.
    pub async fn claims(&self, token: &str) -> Result<Claims, Problem> {
        match &self.0 {
            None => Ok(Claims::default()),
            Some(check) => check.claims(token).await,
        }
    }

    /// The name of the person that an ID token is about, where it was made for this client and this
    /// attempt to sign in. Its key is one that the claims of an access token were checked with just
    /// before, so none is fetched.
    ///
    /// # Errors
    /// 401 where it is not accepted, 503 where that cannot be said now.
    pub fn person(&self, id_token: &str, client: &str, nonce: &str) -> Result<String, Problem> {
        let Some(check) = &self.0 else {
            return Err(missing());
        };
        let keys = check.keys().map_err(refuse)?;
        person(id_token, &keys, &check.policy, client, nonce).map_err(refuse)
    }

    /// Keeps the keys fresh; to be dropped at the end.
    ///
    /// # Errors
    /// If the keys of the token server cannot be used with these settings.
    pub async fn keep_fresh(&self) -> Result<(), NoIssuer> {
        match &self.0 {
            None => Ok(()),
            Some(check) => check.keyring.keep_fresh().await,
        }
    }

    /// The grant of a request's token.
    ///
    /// # Errors
    /// 401 or 403 without a token that is believed and good for anything; 503 where that cannot be
    /// said.
    pub(crate) async fn grant(&self, headers: &HeaderMap) -> Result<Grant, Problem> {
        let Some(check) = &self.0 else {
            return Ok(Grant::without_token());
        };
        let claims = check.claims(token(headers)?).await?;
        Grant::of_claims(&claims).ok_or_else(|| {
            let client = claims.client.as_ref().map(ClientId::as_str);
            info!(client, "a token without a scope for this was refused");
            forbidden(
                "The token has no scope of Sampler, such as abacus.sampler.write, \
                 abacus.sampler.read or one for a resource.",
            )
        })
    }

    /// Requires the scope for reading the health of any program, or any scope of Sampler.
    pub(crate) async fn admit_to_health(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let needed = "This needs the scope abacus.system.read, or a scope of Sampler.";
        self.admit_monitor(headers, needed).await.map(drop)
    }

    /// Requires the scope for reading the health of any program, or a scope for reading everything.
    pub(crate) async fn admit_to_metrics(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let needed = "This needs the scope abacus.system.read or abacus.sampler.read.";
        let grant = self.admit_monitor(headers, needed).await?;
        grant.require_read_everything()
    }

    /// The grant of a token with the scope for reading the health of any program, or with a scope of Sampler.
    async fn admit_monitor(&self, headers: &HeaderMap, needed: &str) -> Result<Grant, Problem> {
        let Some(check) = &self.0 else {
            return Ok(Grant::without_token());
        };
        let claims = check.claims(token(headers)?).await?;
        if claims.scopes.contains(SYSTEM_READ) {
            return Ok(Grant::without_token());
        }
        Grant::of_claims(&claims).ok_or_else(|| forbidden(needed))
    }

    /// Needs a token for each other path below `/v1/` as well: without one, nobody learns which paths
    /// exist. A route of `routes` needs one already, because it asks for a [`Grant`].
    pub fn require_token_elsewhere<S>(routes: Router<S>) -> Router<S>
    where
        S: Clone + Send + Sync + 'static,
        Self: FromRef<S>,
    {
        routes
            .route("/v1/{*rest}", any(async |_: Grant| not_found().await))
            .method_not_allowed_fallback(async |_: Grant| method_not_allowed().await)
    }
}

impl BearerCheck {
    /// The claims of a token. Where its key is unknown, the keys are fetched, and the check is repeated.
    /// Only keys that were fetched for this token can show that its key does not exist.
    async fn claims(&self, token: &str) -> Result<Claims, Problem> {
        let verified = self.verify(token);
        if verified != Err(TokenError::UnknownKey) {
            return verified.map_err(refuse);
        }
        let refreshed = self.keyring.refresh().await;
        match (self.verify(token), refreshed) {
            (Err(TokenError::UnknownKey), Err(NotNow(wait))) => {
                Err(cannot_be_checked(wait.as_secs().saturating_add(1)))
            }
            (Err(TokenError::UnknownKey), Ok(())) if self.keyring.current().is_none() => {
                Err(cannot_be_checked(RETRY_AFTER))
            }
            (verified, _) => verified.map_err(refuse),
        }
    }

    fn keys(&self) -> Result<Arc<Keys>, TokenError> {
        self.keyring.current().ok_or(TokenError::UnknownKey)
    }

    fn verify(&self, token: &str) -> Result<Claims, TokenError> {
        verify(token, &*self.keys()?, &self.policy)
    }
}

fn refuse(error: TokenError) -> Problem {
    info!(reason = %error, "a token was refused");
    invalid(&format!("The token is not accepted: {error}."))
}

/// The token of the one `Authorization` header. A token anywhere else, such as in the address,
/// where it would end up in logs, does not count.
fn token(headers: &HeaderMap) -> Result<&str, Problem> {
    let values: Vec<_> = headers.get_all(header::AUTHORIZATION).iter().collect();
    let [value] = values.as_slice() else {
        return Err(match values.len() {
            0 => missing(),
            _ => invalid("There is more than one Authorization header."),
        });
    };
    let text = value
        .to_str()
        .map_err(|_| invalid("The Authorization header is not plain ASCII."))?;
    match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(token.trim()),
        _ => Err(missing()),
    }
}

fn missing() -> Problem {
    let detail = "A token is needed here, in the header Authorization: Bearer.";
    Problem::new(&kinds::UNAUTHORIZED, detail).header(header::WWW_AUTHENTICATE, NO_TOKEN)
}

fn invalid(detail: &str) -> Problem {
    Problem::new(&kinds::UNAUTHORIZED, detail).header(header::WWW_AUTHENTICATE, INVALID_TOKEN)
}

/// The token is believed, but does not allow this.
pub(super) fn forbidden(detail: &str) -> Problem {
    Problem::new(&kinds::FORBIDDEN, detail).header(header::WWW_AUTHENTICATE, INSUFFICIENT_SCOPE)
}

fn cannot_be_checked(retry_after: u64) -> Problem {
    let detail = "The token cannot be checked now: its key is not known yet.";
    Problem::new(&kinds::TOKEN_SERVER_UNAVAILABLE, detail).retry_after(retry_after)
}

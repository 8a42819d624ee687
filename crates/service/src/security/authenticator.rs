//! Authentication of the API: a request with a valid token gets what the token allows.

use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRef, FromRequestParts};
use axum::routing::any;
use http::HeaderMap;
use http::header::{self, HeaderValue};
use http::request::Parts;
use sampler_domain::ClientId;
use sampler_oauth::{Claims, Keyring, Policy, Refreshed, TokenError, verify};
use tracing::info;

use super::grant::Grant;
use crate::environment::Clock;
use crate::http::{method_not_allowed, not_found};
use crate::problem::{Problem, kinds};

/// Who has shown no token is only told that one is needed (RFC 6750, section 3.1).
const NO_TOKEN: HeaderValue = HeaderValue::from_static("Bearer realm=\"cf\"");

const INVALID_TOKEN: HeaderValue =
    HeaderValue::from_static("Bearer realm=\"cf\", error=\"invalid_token\"");

const INSUFFICIENT_SCOPE: HeaderValue =
    HeaderValue::from_static("Bearer realm=\"cf\", error=\"insufficient_scope\"");

/// Seconds after which keys may be there.
const RETRY_AFTER: u64 = 10;

/// Checks the tokens of an API. Clones are the same.
#[derive(Clone)]
pub struct Authenticator(Option<Arc<BearerCheck>>);

/// What a guard goes by.
struct BearerCheck {
    keyring: Arc<Keyring>,
    policy: Policy,
    clock: Arc<dyn Clock>,
}

impl Authenticator {
    /// Needs no token: for tests, and where `SECURED` is false.
    pub fn none() -> Self {
        Self(None)
    }

    /// Needs a bearer token.
    pub fn bearer(keyring: Arc<Keyring>, policy: Policy, clock: Arc<dyn Clock>) -> Self {
        Self(Some(Arc::new(BearerCheck {
            keyring,
            policy,
            clock,
        })))
    }

    /// Whether tokens can be checked: keys are there, or none are needed.
    pub fn is_ready(&self) -> bool {
        let Some(check) = &self.0 else { return true };
        check.keyring.current().is_some()
    }

    /// Keeps the keys fresh, for as long as it is let.
    pub async fn keep_fresh(&self) {
        if let Some(check) = &self.0 {
            check.keyring.keep_fresh().await;
        }
    }

    /// Needs a token for each other path below `/v1/` as well: without one, nobody learns which paths
    /// exist. A route of `routes` needs one already, because it asks for a [`Grant`].
    pub fn protect<S>(routes: Router<S>) -> Router<S>
    where
        S: Clone + Send + Sync + 'static,
        Self: FromRef<S>,
    {
        routes
            .route("/v1/{*rest}", any(async |_: Grant| not_found().await))
            .method_not_allowed_fallback(async |_: Grant| method_not_allowed().await)
    }
}

/// Reads nothing but the headers: the body is not read before the token is verified.
impl<S> FromRequestParts<S> for Grant
where
    S: Send + Sync,
    Authenticator: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Authenticator::from_ref(state).0 {
            None => Ok(Self::without_token()),
            Some(check) => check.admit(&parts.headers).await,
        }
    }
}

impl BearerCheck {
    async fn admit(&self, headers: &HeaderMap) -> Result<Grant, Problem> {
        let token = token(headers)?;
        let claims = self.claims(token).await?;
        let Some(grant) = Grant::of_claims(&claims) else {
            let client = claims.client.as_ref().map(ClientId::as_str);
            info!(client, "a token without a scope for this was refused");
            return Err(forbidden(
                "The token has neither the scope abacus.sampler.write nor one for a resource.",
            ));
        };
        Ok(grant)
    }

    /// What the token says, where it may be believed. A key that is not known may be a new one.
    async fn claims(&self, token: &str) -> Result<Claims, Problem> {
        let now = self.clock.now();
        let mut refreshed = None;
        if self.keyring.current().is_none() {
            refreshed = Some(self.keyring.refresh().await);
        }
        let keys = self.keyring.current().ok_or_else(no_keys)?;
        let verified = match verify(token, &keys, now, &self.policy) {
            Err(TokenError::UnknownKey) if refreshed.is_none() => {
                refreshed = Some(self.keyring.refresh().await);
                let keys = self.keyring.current().ok_or_else(no_keys)?;
                verify(token, &keys, now, &self.policy)
            }
            verified => verified,
        };
        match (verified, refreshed) {
            (Ok(claims), _) => Ok(claims),
            // Whether there is such a key by now, only the token server knows.
            (Err(TokenError::UnknownKey), Some(Refreshed::Failed)) => Err(no_keys()),
            (Err(error), _) => {
                info!(reason = %error, "a token was refused");
                Err(invalid(&format!("It is not taken: {error}.")))
            }
        }
    }
}

/// The token of the one `Authorization` header. A token anywhere else, such as in the address,
/// where it would end up in logs, is none.
fn token(headers: &HeaderMap) -> Result<&str, Problem> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (first, second) = (values.next(), values.next());
    if second.is_some() {
        return Err(invalid("There is more than one Authorization header."));
    }
    let Some(value) = first else {
        return Err(missing());
    };
    let Ok(text) = value.to_str() else {
        return Err(invalid("The Authorization header is not plain ASCII."));
    };
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

fn no_keys() -> Problem {
    let detail = "The token cannot be checked: the token server does not give its keys.";
    Problem::new(&kinds::TOKEN_SERVER_UNAVAILABLE, detail).retry_after(RETRY_AFTER)
}

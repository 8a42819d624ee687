//! Who sends a request: [`Authenticator`] checks its token, and gives it the token's [`Grant`].

mod grant;

use std::sync::Arc;

use axum::Router;
use axum::extract::FromRef;
use axum::routing::any;
use http::HeaderMap;
use http::header::{self, HeaderValue};
use sampler_domain::ClientId;
use secrecy::ExposeSecret;
use tracing::info;

use crate::http::{method_not_allowed, not_found};
use crate::oauth::{Claims, Keyring, TokenError, Tokens, keyring};
use crate::problem::{Problem, kinds};

pub use grant::{Grant, Reach};

/// A request without a token only learns that one is needed (RFC 6750, section 3.1).
const NO_TOKEN: HeaderValue = HeaderValue::from_static("Bearer realm=\"cf\"");

const INVALID_TOKEN: HeaderValue =
    HeaderValue::from_static("Bearer realm=\"cf\", error=\"invalid_token\"");

const INSUFFICIENT_SCOPE: HeaderValue =
    HeaderValue::from_static("Bearer realm=\"cf\", error=\"insufficient_scope\"");

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
pub struct Authenticator(Option<Arc<Keyring>>);

impl Authenticator {
    /// Needs no token: for tests, and where `SECURED` is false.
    pub fn none() -> Self {
        Self(None)
    }

    /// Needs a bearer token.
    pub fn bearer(keyring: Arc<Keyring>) -> Self {
        Self(Some(keyring))
    }

    /// Whether tokens can be checked: keys are there, or none are needed.
    pub fn is_ready(&self) -> bool {
        let keyring = self.0.as_ref();
        keyring.is_none_or(|keyring| keyring.current().is_ok())
    }

    /// Keeps the keys fresh; to be dropped at the end.
    pub async fn keep_fresh(&self) {
        if let Some(keyring) = &self.0 {
            keyring.keep_fresh().await;
        }
    }

    /// The claims of the access token of somebody who has signed in, and the name that the ID token says, if that was
    /// made for this client and this attempt.
    pub async fn person(
        &self,
        tokens: &Tokens,
        client: &str,
        nonce: &str,
    ) -> Result<(Claims, ClientId), Problem> {
        let keyring = self.0.as_ref().ok_or_else(missing)?;
        let claims = keyring.claims(tokens.access.expose_secret()).await;
        let claims = claims.map_err(refuse)?;
        // Both are signed with keys that are known by now.
        let keys = keyring.current().map_err(refuse)?;
        let name = keys.person(tokens.id.expose_secret(), client, nonce);
        Ok((claims, name.map_err(refuse)?))
    }

    /// The grant of a request's token, if it is good for anything.
    pub(crate) async fn grant(&self, headers: &HeaderMap) -> Result<Grant, Problem> {
        let Some(claims) = self.claims(headers).await? else {
            return Ok(Grant::without_token());
        };
        Grant::of_claims(&claims).ok_or_else(|| {
            let client = claims.client.as_ref().map(ClientId::as_str);
            info!(client, "a token without a scope for this was refused");
            forbidden(
                "The token has no scope of Sampler, such as abacus.sampler.write, \
                 abacus.sampler.read or one for a resource.",
            )
        })
    }

    /// The grant of a token with a scope of Sampler; of one with the scope for reading the health of any program, all.
    pub(crate) async fn admit_to_health(&self, headers: &HeaderMap) -> Result<Grant, Problem> {
        let is_monitor = |claims: &Claims| claims.scopes.iter().any(|it| it == SYSTEM_READ);
        let Some(claims) = self.claims(headers).await?.filter(|it| !is_monitor(it)) else {
            return Ok(Grant::without_token());
        };
        Grant::of_claims(&claims).ok_or_else(|| {
            forbidden("This needs the scope abacus.system.read, or a scope of Sampler.")
        })
    }

    /// Requires the scope for reading the health of any program, or a scope for reading everything.
    pub(crate) async fn admit_to_metrics(&self, headers: &HeaderMap) -> Result<(), Problem> {
        self.admit_to_health(headers)
            .await?
            .require_read_everything()
    }

    /// The claims of a request's token; none where no token is needed.
    async fn claims(&self, headers: &HeaderMap) -> Result<Option<Claims>, Problem> {
        let Some(keyring) = &self.0 else {
            return Ok(None);
        };
        let claims = keyring.claims(token(headers)?).await;
        claims.map(Some).map_err(refuse)
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

fn refuse(error: TokenError) -> Problem {
    if error == TokenError::UnknownKey {
        let detail = "The token cannot be checked now: its key is not known yet.";
        let problem = Problem::new(&kinds::TOKEN_SERVER_UNAVAILABLE, detail);
        return problem.retry_after(keyring::AT_LEAST.as_secs());
    }
    info!(reason = %error, "a token was refused");
    invalid(&format!("The token is not accepted: {error}."))
}

/// The token of the one `Authorization` header. A token anywhere else, such as in the address,
/// where it would end up in logs, does not count.
fn token(headers: &HeaderMap) -> Result<&str, Problem> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next().ok_or_else(missing)?;
    if values.next().is_some() {
        return Err(invalid("There is more than one Authorization header."));
    }
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
fn forbidden(detail: &str) -> Problem {
    Problem::new(&kinds::FORBIDDEN, detail).header(header::WWW_AUTHENTICATE, INSUFFICIENT_SCOPE)
}

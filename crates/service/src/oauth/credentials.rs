//! The program's own tokens, by client credentials (RFC 6749, section 4.4).
//!
//! There is one request at a time, for all callers. A token is renewed well before its end, by one
//! caller, while the others use it. If that fails, the token stays in use, and the next caller after a
//! growing pause makes the next attempt. There is no timer.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use tokio::time::{Instant, timeout};
use tracing::warn;
use url::form_urlencoded;

use super::discovery::{ClientMethod, Discoverer};
use super::http::{FetchError, fetch, text_in};

/// The time limit for finding the token server and getting a token from it.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);

/// The lifetime of a token without `expires_in`.
const LIFE_DEFAULT: Duration = Duration::from_mins(5);

/// The longest lifetime that is assumed.
const LIFE_MAX: Duration = Duration::from_hours(24);

/// The part of its lifetime after which a token is renewed.
const RENEWED_AFTER: f64 = 0.75;

/// How long before its end a token is no longer used, because a request takes time to arrive.
const MARGIN: Duration = Duration::from_secs(2);

/// The pause after a first failure, doubled with each further one.
const PAUSE_FIRST: Duration = Duration::from_millis(500);

/// The longest pause after failures.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// A younger token is not dropped when a server refuses it. The server would refuse the next token,
/// too, and each usage would cause a request to the token server.
const AGE_TO_DROP: Duration = Duration::from_secs(1);

/// What is encoded of an id and a secret: all but the characters that RFC 3986 calls unreserved.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A client of the token server, and what it asks for.
#[derive(Clone)]
pub struct Client {
    pub id: String,
    pub secret: SecretString,
    /// The requested scope; empty for all that the client has.
    pub scope: String,
    /// The service that tokens are requested for, where the token server has to know it.
    pub audience: Option<String>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({}, {})", self.id, self.scope)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no token for it: {0}")]
pub struct NoToken(pub FetchError);

/// A token, ready to be sent. Its value is never shown.
#[derive(Clone, Debug)]
pub struct AccessToken {
    header: HeaderValue,
    scope: Option<String>,
}

impl AccessToken {
    /// The value of the header `Authorization`.
    pub fn header(&self) -> HeaderValue {
        self.header.clone()
    }

    /// The scopes that the token server says it has granted, separated by spaces; none if they are those that were
    /// requested.
    pub fn scope(&self) -> Option<&str> {
        self.scope.as_deref()
    }
}

/// The source of the program's own tokens.
#[derive(Debug)]
pub struct ClientCredentials {
    client: Client,
    discoverer: Discoverer,
    held: Mutex<Option<Held>>,
    /// Held during a request to the token server: how the last ones failed, if they did.
    failed: tokio::sync::Mutex<Option<Failed>>,
}

#[derive(Clone, Debug)]
struct Held {
    token: AccessToken,
    since: Instant,
    renew_at: Instant,
    until: Instant,
}

#[derive(Debug)]
struct Failed {
    error: FetchError,
    pause: Duration,
    not_before: Instant,
}

impl ClientCredentials {
    /// A source. It requests the first token when one is needed.
    pub fn new(client: Client, discoverer: Discoverer) -> Arc<Self> {
        Arc::new(Self {
            client,
            discoverer,
            held: Mutex::default(),
            failed: tokio::sync::Mutex::default(),
        })
    }

    fn held(&self) -> MutexGuard<'_, Option<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn valid(&self) -> Option<Held> {
        let held = self.held().clone();
        held.filter(|held| Instant::now() < held.until)
    }

    /// The current token.
    pub async fn token(&self) -> Result<AccessToken, NoToken> {
        let mut failed = match (self.failed.try_lock(), self.valid()) {
            (Ok(failed), _) => failed,
            // Somebody else renews it.
            (Err(_), Some(held)) => return Ok(held.token),
            (Err(_), None) => self.failed.lock().await,
        };
        let now = Instant::now();
        let held = self.valid();
        let pausing = failed.as_ref().filter(|failed| now < failed.not_before);
        match (held, pausing) {
            (Some(held), pausing) if pausing.is_some() || now < held.renew_at => {
                return Ok(held.token);
            }
            (None, Some(failed)) => return Err(NoToken(failed.error.clone())),
            _ => {}
        }
        match self.request().await {
            Ok((token, life)) => {
                *failed = None;
                *self.held() = Some(Held {
                    token: token.clone(),
                    since: Instant::now(),
                    renew_at: now + life.mul_f64(RENEWED_AFTER),
                    until: now + life.saturating_sub(MARGIN.min(life / 10)),
                });
                Ok(token)
            }
            Err(error) => {
                *failed = Some(self.failure(error.clone(), failed.as_ref()));
                let held = self.valid().map(|held| held.token);
                held.ok_or(NoToken(error))
            }
        }
    }

    /// Notes that a server refused a token. Returns whether a further attempt makes sense: there is
    /// another token, or one may be requested.
    pub fn refused(&self, token: &AccessToken) -> bool {
        let mut held = self.held();
        let is_same = |held: &&mut Held| held.token.header == token.header;
        match held.as_mut().filter(is_same) {
            Some(same) if same.since.elapsed() < AGE_TO_DROP => return false,
            Some(_) => *held = None,
            None => {}
        }
        true
    }

    /// A failure, and the pause after it.
    fn failure(&self, error: FetchError, before: Option<&Failed>) -> Failed {
        let pause = before.map_or(PAUSE_FIRST, |before| PAUSE_MAX.min(before.pause * 2));
        self.discoverer.forget();
        warn!(
            code = "token.fetch_failed",
            client = self.client.id,
            error = %error,
            again_ms = pause.as_millis(),
            "no token could be had"
        );
        Failed {
            error,
            pause,
            not_before: Instant::now() + pause,
        }
    }

    /// A new token, and how long it lives.
    async fn request(&self) -> Result<(AccessToken, Duration), FetchError> {
        let mut form = vec![("grant_type", "client_credentials")];
        form.extend((!self.client.scope.is_empty()).then_some(("scope", &*self.client.scope)));
        form.extend(self.client.audience.as_deref().map(|it| ("audience", it)));
        let document = in_time(post(&self.discoverer, &self.client, form)).await?;
        let kind = text_in(&document, "token_type");
        if kind.is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
            return Err(FetchError::Document("grants a token of another type"));
        }
        let token = text_in(&document, "access_token").filter(|token| !token.is_empty());
        let token = token.ok_or(FetchError::Document("holds no token"))?;
        let mut header = HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_| FetchError::Document("holds a token that cannot be sent"))?;
        header.set_sensitive(true);
        let scope = text_in(&document, "scope").map(str::to_owned);
        let life = life(&document).unwrap_or(LIFE_DEFAULT).min(LIFE_MAX);
        Ok((AccessToken { header, scope }, life))
    }
}

/// How long the token of an answer lives, where it says so.
fn life(document: &Value) -> Option<Duration> {
    let seconds = document.get("expires_in").and_then(Value::as_u64);
    seconds.map(Duration::from_secs)
}

/// Waits for the token server as long as it may take.
pub(super) async fn in_time<T>(
    asking: impl Future<Output = Result<T, FetchError>>,
) -> Result<T, FetchError> {
    let answered = timeout(REQUEST_LIMIT, asking).await;
    answered.unwrap_or_else(|_| Err(FetchError::Unreachable("it took too long".to_owned())))
}

/// Asks the token server for tokens, as this client, by the method that the server takes.
pub(super) async fn post(
    discoverer: &Discoverer,
    client: &Client,
    mut form: Vec<(&str, &str)>,
) -> Result<Value, FetchError> {
    let endpoints = discoverer.endpoints().await?;
    let request = discoverer.client().post(endpoints.token);
    let (id, secret) = (client.id.as_str(), client.secret.expose_secret());
    let request = match endpoints.method {
        ClientMethod::BasicUnencoded => request.basic_auth(id, Some(secret)),
        ClientMethod::Basic => request.basic_auth(
            utf8_percent_encode(id, RESERVED),
            Some(utf8_percent_encode(secret, RESERVED)),
        ),
        ClientMethod::Post => {
            form.extend([("client_id", id), ("client_secret", secret)]);
            request
        }
    };
    let body = form_urlencoded::Serializer::new(String::new())
        .extend_pairs(form)
        .finish();
    let request = request
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
        .header(ACCEPT, "application/json")
        .body(body);
    fetch(request).await
}

//! The program's own tokens, by client credentials (RFC 6749, section 4.4).
//!
//! There is one request at a time, for all callers. A token is renewed well before its end, by one
//! caller, while the others use it. If that fails, the token stays in use, and the next caller after a
//! growing pause causes the next attempt. There is no timer.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use tokio::sync::OwnedMutexGuard;
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
        f.debug_struct("Client")
            .field("id", &self.id)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no token for it: {0}")]
pub struct NoToken(pub FetchError);

/// A token, ready to be sent. Its value is never shown.
#[derive(Clone, Debug)]
pub struct AccessToken {
    header: HeaderValue,
    number: u64,
    scope: Option<String>,
}

impl AccessToken {
    /// The value of the header `Authorization`.
    pub fn header(&self) -> HeaderValue {
        self.header.clone()
    }

    /// The scopes that the token server says it has granted, separated by spaces.
    pub fn scope(&self) -> Option<&str> {
        self.scope.as_deref()
    }
}

/// The source of the program's own tokens.
#[derive(Debug)]
pub struct ClientCredentials {
    client: Client,
    discoverer: Discoverer,
    state: Mutex<TokenState>,
    /// Held during a request to the token server.
    asking: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
struct TokenState {
    held: Option<Held>,
    numbers: u64,
    failures: u32,
    failed: Option<Failed>,
}

#[derive(Clone, Debug)]
struct Held {
    token: AccessToken,
    since: Instant,
    renew_at: Instant,
    until: Instant,
}

#[derive(Clone, Debug)]
struct Failed {
    error: FetchError,
    not_before: Instant,
}

impl ClientCredentials {
    /// A source. It requests the first token when one is needed.
    pub fn new(client: Client, discoverer: Discoverer) -> Arc<Self> {
        Arc::new(Self {
            client,
            discoverer,
            state: Mutex::default(),
            asking: Arc::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, TokenState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current token.
    pub async fn token(self: &Arc<Self>) -> Result<AccessToken, NoToken> {
        if let Some(held) = self.valid() {
            if held.renew_at <= Instant::now() && self.failure().is_none() {
                self.renew_meanwhile();
            }
            return Ok(held.token);
        }
        let asking = Arc::clone(&self.asking).lock_owned().await;
        // The caller before may have got a token, or a failure.
        if let Some(held) = self.valid() {
            return Ok(held.token);
        }
        if let Some(error) = self.failure() {
            return Err(NoToken(error));
        }
        // The request continues if its caller gives up: others wait for it, too.
        let source = Arc::clone(self);
        let asked = tokio::spawn(async move { source.ask(asking).await }).await;
        asked.unwrap_or_else(|_| Err(NoToken(FetchError::Document("could not be read"))))
    }

    /// Notes that a server refused a token. Returns whether a further attempt makes sense: there is
    /// another token, or one may be requested.
    pub fn refused(&self, token: &AccessToken) -> bool {
        let mut state = self.state();
        match &state.held {
            Some(held) if held.token.number != token.number => true,
            Some(held) if held.since.elapsed() < AGE_TO_DROP => false,
            Some(_) => {
                state.held = None;
                true
            }
            None => true,
        }
    }

    fn valid(&self) -> Option<Held> {
        let held = self.state().held.clone();
        held.filter(|held| Instant::now() < held.until)
    }

    /// The last failure, during the pause after it.
    fn failure(&self) -> Option<FetchError> {
        let failed = self.state().failed.clone();
        let pausing = failed.filter(|failed| Instant::now() < failed.not_before);
        pausing.map(|failed| failed.error)
    }

    /// Requests the next token in the background, while this one stays in use.
    fn renew_meanwhile(self: &Arc<Self>) {
        if let Ok(asking) = Arc::clone(&self.asking).try_lock_owned() {
            let source = Arc::clone(self);
            tokio::spawn(async move { source.ask(asking).await });
        }
    }

    async fn ask(&self, _asking: OwnedMutexGuard<()>) -> Result<AccessToken, NoToken> {
        let began = Instant::now();
        let granted = in_time(request(&self.discoverer, &self.client)).await;
        let error = match granted.and_then(|document| read(&document)) {
            Ok(granted) => return Ok(self.hold(granted, began)),
            Err(error) => error,
        };
        let pause = self.pause(&error);
        self.discoverer.forget();
        let again_ms = pause.as_millis();
        warn!(
            code = "token.fetch_failed",
            client = self.client.id,
            error = %error,
            again_ms,
            "no token could be had"
        );
        Err(NoToken(error))
    }

    /// Puts a token into use that was requested at `began`.
    fn hold(&self, granted: Granted, began: Instant) -> AccessToken {
        let mut state = self.state();
        state.numbers += 1;
        let token = AccessToken {
            header: granted.header,
            number: state.numbers,
            scope: granted.scope,
        };
        let life = granted.life;
        state.held = Some(Held {
            token: token.clone(),
            since: Instant::now(),
            renew_at: began + life.mul_f64(RENEWED_AFTER),
            until: began + life.saturating_sub(MARGIN.min(life / 10)),
        });
        (state.failures, state.failed) = (0, None);
        token
    }

    /// Begins the pause after a failure, and returns its length.
    fn pause(&self, error: &FetchError) -> Duration {
        let mut state = self.state();
        let doublings = state.failures.min(10);
        let pause = PAUSE_MAX.min(PAUSE_FIRST * 2_u32.pow(doublings));
        state.failures = state.failures.saturating_add(1);
        state.failed = Some(Failed {
            error: error.clone(),
            not_before: Instant::now() + pause,
        });
        pause
    }
}

/// Waits for the token server as long as it may take.
pub(crate) async fn in_time<T>(
    asking: impl Future<Output = Result<T, FetchError>>,
) -> Result<T, FetchError> {
    let answered = timeout(REQUEST_LIMIT, asking).await;
    answered.unwrap_or_else(|_| Err(FetchError::Unreachable("it took too long".to_owned())))
}

async fn request(discoverer: &Discoverer, client: &Client) -> Result<Value, FetchError> {
    let mut form = vec![("grant_type", "client_credentials")];
    if !client.scope.is_empty() {
        form.push(("scope", &client.scope));
    }
    if let Some(audience) = &client.audience {
        form.push(("audience", audience));
    }
    post(discoverer, client, form).await
}

/// Asks the token server for tokens, as this client, by the method that the server takes.
pub(crate) async fn post(
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

struct Granted {
    header: HeaderValue,
    life: Duration,
    /// Absent if it is the requested scope.
    scope: Option<String>,
}

fn read(document: &Value) -> Result<Granted, FetchError> {
    if text_in(document, "token_type").is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
        return Err(FetchError::Document("grants a token of another type"));
    }
    let token = text_in(document, "access_token")
        .filter(|token| !token.is_empty())
        .ok_or(FetchError::Document("holds no token"))?;
    let mut header = HeaderValue::from_str(&format!("Bearer {token}"))
        .map_err(|_| FetchError::Document("holds a token that cannot be sent"))?;
    header.set_sensitive(true);
    let seconds = document.get("expires_in").and_then(Value::as_u64);
    Ok(Granted {
        header,
        life: seconds.map_or(LIFE_DEFAULT, |seconds| {
            Duration::from_secs(seconds).min(LIFE_MAX)
        }),
        scope: text_in(document, "scope").map(str::to_owned),
    })
}

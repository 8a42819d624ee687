//! Tokens of our own, by client credentials (RFC 6749, section 4.4).
//!
//! One request at a time, whoever needs a token. A token is renewed well before its end, while it
//! is still used; where that fails it is used on, and the token server is asked again less and less
//! often, by nobody's timer but the next who needs a token.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, timeout};
use tracing::warn;
use url::form_urlencoded;

use crate::discovery::Discoverer;
use crate::http::{FetchError, fetch};

/// How long finding the token server and getting a token from it may take together.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);

/// How long a token lives whose server does not say.
const LIFE_DEFAULT: Duration = Duration::from_mins(5);

/// How long a token is believed to live at the most.
const LIFE_MAX: Duration = Duration::from_hours(24);

/// The part of its life after which a token is renewed.
const RENEWED_AFTER: f64 = 0.75;

/// How much of its end is not used: the token has a way to go.
const MARGIN: Duration = Duration::from_secs(2);

/// The pause after a first failure, doubled with each further one.
const PAUSE_FIRST: Duration = Duration::from_millis(500);

/// The longest pause after failures.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// A token that is younger is not dropped when somebody refuses it: he would refuse the next, too,
/// and the token server would be asked for each usage.
const AGE_TO_DROP: Duration = Duration::from_secs(1);

/// Who asks for tokens, and for what.
#[derive(Clone)]
pub struct Client {
    /// The id of the client.
    pub id: String,
    /// Its secret.
    pub secret: SecretString,
    /// The scope that is asked for.
    pub scope: &'static str,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("id", &self.id)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

/// There is no token at the moment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no token for it: {0}")]
pub struct NoToken(FetchError);

/// A token, ready to be sent. Its value is never shown.
#[derive(Clone, Debug)]
pub struct AccessToken {
    header: HeaderValue,
    number: u64,
}

impl AccessToken {
    /// The value of the header `Authorization`.
    pub fn header(&self) -> HeaderValue {
        self.header.clone()
    }
}

/// What a token server has granted.
pub(crate) struct Granted {
    token: SecretString,
    life: Duration,
    /// Absent where it is what was asked for.
    scope: Option<String>,
}

/// The source of our tokens.
#[derive(Debug)]
pub struct ClientCredentials {
    client: Client,
    discoverer: Discoverer,
    state: Mutex<State>,
    /// Held by the one who asks the token server.
    asking: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
struct State {
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
    /// A source that has no token yet, and asks for none before it is needed.
    pub fn new(client: Client, discoverer: Discoverer) -> Arc<Self> {
        Arc::new(Self {
            client,
            discoverer,
            state: Mutex::default(),
            asking: Arc::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The token of the moment.
    ///
    /// # Errors
    /// Where there is none and none can be had now.
    pub async fn token(self: &Arc<Self>) -> Result<AccessToken, NoToken> {
        if let Some(held) = self.valid() {
            if held.renew_at <= Instant::now() {
                self.renew_meanwhile();
            }
            return Ok(held.token);
        }
        let asking = Arc::clone(&self.asking).lock_owned().await;
        // Whoever was at it before may have got one, or found that there is none.
        if let Some(held) = self.valid() {
            return Ok(held.token);
        }
        if let Some(failed) = self.pausing() {
            return Err(NoToken(failed.error));
        }
        // A caller that gives up must not take the request with it: others wait for it, too.
        let source = Arc::clone(self);
        let asked = tokio::spawn(async move { source.ask(asking).await }).await;
        asked.unwrap_or_else(|_| Err(NoToken(FetchError::Document("could not be read"))))
    }

    /// Says that a token was refused. Whether there is reason to try once more: another token, or
    /// leave to ask for one.
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

    fn pausing(&self) -> Option<Failed> {
        let failed = self.state().failed.clone();
        failed.filter(|failed| Instant::now() < failed.not_before)
    }

    /// Asks for the next token while this one is used on.
    fn renew_meanwhile(self: &Arc<Self>) {
        if self.pausing().is_some() {
            return;
        }
        if let Ok(asking) = Arc::clone(&self.asking).try_lock_owned() {
            let source = Arc::clone(self);
            tokio::spawn(async move { source.ask(asking).await });
        }
    }

    async fn ask(&self, _asking: OwnedMutexGuard<()>) -> Result<AccessToken, NoToken> {
        let began = Instant::now();
        let asked = timeout(REQUEST_LIMIT, request(&self.discoverer, &self.client)).await;
        let late = || Err(FetchError::Unreachable("it took too long".to_owned()));
        let granted = asked.unwrap_or_else(|_| late()).and_then(|granted| {
            let header = bearer(&granted.token)?;
            Ok((header, granted.life))
        });
        let mut state = self.state();
        match granted {
            Ok((header, life)) => {
                state.numbers += 1;
                let token = AccessToken {
                    header,
                    number: state.numbers,
                };
                state.held = Some(Held {
                    token: token.clone(),
                    since: Instant::now(),
                    renew_at: began + life.mul_f64(RENEWED_AFTER),
                    until: began + life.saturating_sub(MARGIN.min(life / 10)),
                });
                (state.failures, state.failed) = (0, None);
                Ok(token)
            }
            Err(error) => {
                let doublings = state.failures.min(10);
                let pause = PAUSE_MAX.min(PAUSE_FIRST * 2_u32.pow(doublings));
                state.failures = state.failures.saturating_add(1);
                state.failed = Some(Failed {
                    error: error.clone(),
                    not_before: Instant::now() + pause,
                });
                drop(state);
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
        }
    }
}

/// Whether a token server grants a client a scope: how somebody is checked who shows an id and a
/// secret.
///
/// # Errors
/// Where the server gives no answer to go by.
pub async fn grants(discoverer: &Discoverer, client: &Client) -> Result<bool, FetchError> {
    let asked = timeout(REQUEST_LIMIT, request(discoverer, client)).await;
    let late = || Err(FetchError::Unreachable("it took too long".to_owned()));
    match asked.unwrap_or_else(|_| late()) {
        Ok(granted) => {
            let has_it = |scopes: String| scopes.split(' ').any(|scope| scope == client.scope);
            Ok(granted.scope.is_none_or(has_it))
        }
        // Wrong credentials, or a scope that the client does not have.
        Err(FetchError::Status {
            status: 400 | 401 | 403,
            ..
        }) => Ok(false),
        Err(error) => {
            discoverer.forget();
            Err(error)
        }
    }
}

async fn request(discoverer: &Discoverer, client: &Client) -> Result<Granted, FetchError> {
    let endpoints = discoverer.endpoints().await?;
    let secret = client.secret.expose_secret();
    let encode = |text: &str| {
        if discoverer.server().decodes_credentials() {
            utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
        } else {
            text.to_owned()
        }
    };
    let body = form_urlencoded::Serializer::new(String::new())
        .append_pair("grant_type", "client_credentials")
        .append_pair("scope", client.scope)
        .finish();
    let request = discoverer
        .client()
        .post(endpoints.token)
        .basic_auth(encode(&client.id), Some(encode(secret)))
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
        .header(ACCEPT, "application/json")
        .body(body);
    read(&fetch(request).await?)
}

fn read(document: &Value) -> Result<Granted, FetchError> {
    let text = |name: &str| document.get(name).and_then(Value::as_str);
    if text("token_type").is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
        return Err(FetchError::Document("grants a token of another type"));
    }
    let token = text("access_token").filter(|token| !token.is_empty());
    let token = token.ok_or(FetchError::Document("holds no token"))?;
    let seconds = document.get("expires_in").and_then(Value::as_u64);
    Ok(Granted {
        token: token.into(),
        life: seconds.map_or(LIFE_DEFAULT, |seconds| {
            Duration::from_secs(seconds).min(LIFE_MAX)
        }),
        scope: text("scope").map(str::to_owned),
    })
}

fn bearer(token: &SecretString) -> Result<HeaderValue, FetchError> {
    let header = HeaderValue::from_str(&format!("Bearer {}", token.expose_secret()));
    let mut header =
        header.map_err(|_| FetchError::Document("holds a token that cannot be sent"))?;
    header.set_sensitive(true);
    Ok(header)
}

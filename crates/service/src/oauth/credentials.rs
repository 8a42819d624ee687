//! What a client gets from the token server: the program's own tokens, by client credentials (RFC 6749, section 4.4);
//! and those of people who sign in, by authorization codes with PKCE (section 4.1; RFC 7636).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use tracing::warn;
use url::{Url, form_urlencoded};

use super::discovery::{Discoverer, FetchError, TokenServer, fetch, text_in};

/// The lifetime of a token without `expires_in`, and the shortest and longest ones that are assumed.
const LIFE_DEFAULT: Duration = Duration::from_mins(5);
const LIFE_MIN: Duration = Duration::from_secs(1);
const LIFE_MAX: Duration = Duration::from_hours(24);

/// The part of its lifetime after which a token is renewed.
const RENEWED_AFTER: f64 = 0.75;

/// The pause after a request for a token that failed; and the age before which a token that a server refuses is not
/// replaced, because the server would refuse the next one, too.
pub const PAUSE: Duration = Duration::from_secs(2);

/// What is encoded of an id and a secret: all but the characters that RFC 3986 calls unreserved.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A client of the token server, and what it asks for.
#[derive(Clone, Debug)]
pub struct Client {
    pub id: String,
    pub secret: SecretString,
    /// The requested scope; empty for all that the client has.
    pub scope: String,
    /// The service that tokens are requested for, where the token server has to know it.
    pub audience: Option<String>,
    pub server: Discoverer,
}

/// The secrets of one attempt to sign in. Nobody else may know or guess them.
#[derive(Serialize, Deserialize)]
pub struct Attempt {
    /// Returns with the code, so that the code belongs to this browser.
    pub state: String,
    /// Returns in the ID token, so that the token belongs to this attempt.
    pub nonce: String,
    /// Proves that the code is redeemed by the program that asked for it (PKCE).
    pub verifier: String,
    /// Where the token server sends the browser back to.
    pub redirect: String,
}

/// The tokens that a code was redeemed for.
#[derive(Debug)]
pub struct Tokens {
    /// Says what may be done.
    pub access: SecretString,
    /// Says who it is.
    pub id: SecretString,
}

impl Client {
    /// Where a browser is sent, so that a person signs in and grants the scope of the client.
    pub async fn authorization(&self, attempt: &Attempt) -> Result<Url, FetchError> {
        let endpoints = self.server.in_time(self.server.endpoints()).await?;
        let page = endpoints.authorization;
        let mut page = page.ok_or(FetchError::Document("names no page to sign in"))?;
        let challenge = Sha256::digest(attempt.verifier.as_bytes());
        page.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.id)
            .append_pair("redirect_uri", &attempt.redirect)
            .append_pair("scope", &self.scope)
            .append_pair("state", &attempt.state)
            .append_pair("nonce", &attempt.nonce)
            .append_pair("code_challenge", &URL_SAFE_NO_PAD.encode(challenge))
            .append_pair("code_challenge_method", "S256");
        Ok(page)
    }

    /// Redeems the code of somebody who has signed in.
    pub async fn redeem(&self, code: &str, attempt: &Attempt) -> Result<Tokens, FetchError> {
        let form = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &attempt.redirect),
            ("code_verifier", &attempt.verifier),
        ];
        let document = self.ask(form).await?;
        let token = |name| {
            let token = text_in(&document, name).map(SecretString::from);
            token.ok_or(FetchError::Document("holds no access token and ID token"))
        };
        Ok(Tokens {
            access: token("access_token")?,
            id: token("id_token")?,
        })
    }

    /// A token of the client's own.
    async fn token(&self) -> Result<AccessToken, FetchError> {
        let mut form = vec![("grant_type", "client_credentials")];
        form.extend((!self.scope.is_empty()).then_some(("scope", &*self.scope)));
        form.extend(self.audience.as_deref().map(|it| ("audience", it)));
        let since = Instant::now();
        let document = self.ask(form).await?;
        let token = text_in(&document, "access_token");
        let token = token.ok_or(FetchError::Document("holds no token"))?;
        let mut header = HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_| FetchError::Document("holds a token that cannot be sent"))?;
        header.set_sensitive(true);
        let life = document.get("expires_in").and_then(Value::as_u64);
        Ok(AccessToken {
            header,
            scope: text_in(&document, "scope").map(str::to_owned),
            since,
            life: life
                .map_or(LIFE_DEFAULT, Duration::from_secs)
                .clamp(LIFE_MIN, LIFE_MAX),
        })
    }

    async fn ask(&self, form: Vec<(&str, &str)>) -> Result<Value, FetchError> {
        self.server.in_time(self.post(form)).await
    }

    /// Shows the credentials as the token server takes them. A UAA takes them as they are.
    async fn post(&self, mut form: Vec<(&str, &str)>) -> Result<Value, FetchError> {
        let endpoints = self.server.endpoints().await?;
        let (id, secret) = (self.id.as_str(), self.secret.expose_secret());
        let mut request = self.server.client.post(endpoints.token);
        if endpoints.takes_form {
            form.extend([("client_id", id), ("client_secret", secret)]);
        } else {
            let encode = |text: &str| match self.server.server {
                TokenServer::CloudFoundry(_) => text.to_owned(),
                TokenServer::Oidc(_) => utf8_percent_encode(text, RESERVED).to_string(),
            };
            request = request.basic_auth(encode(id), Some(encode(secret)));
        }
        let body = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(form)
            .finish();
        let request = request
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(ACCEPT, "application/json")
            .body(body);
        fetch(request).await
    }
}

/// A token, ready to be sent. Its value is never shown.
#[derive(Clone, Debug)]
pub struct AccessToken {
    header: HeaderValue,
    scope: Option<String>,
    /// When it was requested.
    since: Instant,
    life: Duration,
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

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no token for it: {0}")]
pub struct NoToken(pub FetchError);

/// The source of the program's own tokens. There is one request at a time, for all callers.
#[derive(Debug)]
pub struct ClientCredentials {
    client: Client,
    held: Mutex<Option<AccessToken>>,
    /// Held during a request: when the last one failed, and why.
    failed: tokio::sync::Mutex<Option<(Instant, FetchError)>>,
}

impl ClientCredentials {
    /// A source. It requests the first token when one is needed.
    pub fn new(client: Client) -> Arc<Self> {
        Arc::new(Self {
            client,
            held: Mutex::default(),
            failed: tokio::sync::Mutex::default(),
        })
    }

    fn held(&self) -> MutexGuard<'_, Option<AccessToken>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The token, if this part of its life is not over.
    fn valid(&self, part: f64) -> Option<AccessToken> {
        let held = self.held().clone();
        held.filter(|held| held.since.elapsed() < held.life.mul_f64(part))
    }

    /// The current token. It is renewed well before its end, by one caller, while the others use it.
    pub async fn token(&self) -> Result<AccessToken, NoToken> {
        if let Some(token) = self.valid(RENEWED_AFTER) {
            return Ok(token);
        }
        let mut failed = match (self.failed.try_lock(), self.valid(1.0)) {
            (Ok(failed), _) => failed,
            (Err(_), Some(token)) => return Ok(token),
            (Err(_), None) => self.failed.lock().await,
        };
        let last = failed.as_ref().map(|(at, _)| at.elapsed());
        let is_pausing = last.is_some_and(|last| last < PAUSE);
        // Somebody else may have renewed it meanwhile.
        if !is_pausing && self.valid(RENEWED_AFTER).is_none() {
            *failed = self.renew().await.err();
        }
        self.valid(1.0).ok_or_else(|| {
            let error = failed.as_ref().map(|(_, error)| error.clone());
            NoToken(error.unwrap_or(FetchError::Document("holds a token that has expired")))
        })
    }

    async fn renew(&self) -> Result<(), (Instant, FetchError)> {
        let token = self.client.token().await.map_err(|error| {
            warn!(
                code = "token.fetch_failed",
                client = self.client.id,
                error = %error,
                "no token could be had"
            );
            (Instant::now(), error)
        })?;
        *self.held() = Some(token);
        Ok(())
    }

    /// Notes that a server refused a token. Returns whether a further attempt makes sense: there is
    /// another token, or one may be requested.
    pub fn refused(&self, token: &AccessToken) -> bool {
        let mut held = self.held();
        let is_same = held
            .as_ref()
            .is_some_and(|held| held.header == token.header);
        if is_same && token.since.elapsed() >= PAUSE {
            *held = None;
        }
        !is_same || held.is_none()
    }
}

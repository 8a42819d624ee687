//! The session of a person, kept in an encrypted cookie, so that any instance serves any request.
//!
//! The cookie holds a name, scopes and a secret for forms, and no token. It cannot be read or made
//! without a key of `SAMPLER_CONSOLE_KEY`, nor at another installation.

use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::SET_COOKIE;
use http::{HeaderMap, HeaderValue, StatusCode};
use sampler_domain::{ClientId, Timestamp};
use sampler_service::environment::Random;
use sampler_service::oauth::Claims;
use sampler_service::security::Grant;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::api::Refusal;
use crate::{Console, sign_in};

/// The name of its cookie.
pub(crate) const SESSION: &str = "sampler_console";

/// The longest session, in ms, where no token says it.
const OPEN_FOR: i64 = 7 * 24 * 60 * 60 * 1_000;

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Session {
    /// The secret that each form must repeat.
    pub(crate) csrf: String,
    /// None if no sign-in is needed.
    pub(crate) person: Option<Person>,
}

/// Somebody who has signed in.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Person {
    pub(crate) name: String,
    /// The client that the token was for.
    pub(crate) client: Option<String>,
    pub(crate) scopes: Vec<String>,
}

impl Session {
    pub(crate) fn new(person: Option<Person>, random: &dyn Random) -> Self {
        let csrf = secret(random);
        Self { csrf, person }
    }

    /// What the session may do; none where its scopes allow nothing.
    pub(crate) fn grant(&self) -> Option<Grant> {
        let Some(person) = &self.person else {
            return Some(Grant::without_token());
        };
        Grant::of_claims(&Claims {
            client: person.client.as_deref().and_then(ClientId::new),
            user: ClientId::new(&person.name),
            scopes: person.scopes.clone(),
            until: Timestamp::MAX,
        })
    }

    /// Whether a form that repeats this secret is from a page of this session.
    pub(crate) fn has_made(&self, csrf: &str) -> bool {
        verify_slices_are_equal(self.csrf.as_bytes(), csrf.as_bytes()).is_ok()
    }
}

impl Console {
    /// Whether nobody needs to sign in.
    pub(crate) fn is_open(&self) -> bool {
        self.parts.sign_in.is_none()
    }

    /// The header that has a browser keep a cookie until then; none where the cookie would be too long.
    pub(crate) fn cookie(
        &self,
        name: &str,
        content: &impl Serialize,
        until: Timestamp,
        headers: &HeaderMap,
    ) -> Option<HeaderValue> {
        let seconds = until.since(self.parts.clock.now()) / 1_000;
        let content = (until, content);
        self.parts.keys.seal(name, &content, seconds, headers)
    }

    /// The content of a request's cookie, if it has one that has not ended.
    pub(crate) fn content<T: DeserializeOwned>(
        &self,
        name: &str,
        headers: &HeaderMap,
    ) -> Option<T> {
        let (until, content): (Timestamp, T) = self.parts.keys.open(name, headers)?;
        (self.parts.clock.now() < until).then_some(content)
    }
}

/// Serves a request that has a session. Without a session, a request that reads is redirected to the
/// sign-in.
pub(crate) async fn require(
    State(console): State<Arc<Console>>,
    mut request: Request,
    next: Next,
) -> Response {
    let known = console.content::<Session>(SESSION, request.headers());
    // Where people sign in, nobody is admitted without a name.
    let known = known.filter(|session| session.person.is_some() != console.is_open());
    let mut cookie = None;
    let session = match known {
        Some(session) => session,
        None if !request.method().is_safe() => {
            let detail = "There is no session, or it has ended. Nothing was done.";
            return Refusal::new(StatusCode::FORBIDDEN, "Not signed in", detail).into_response();
        }
        None if !console.is_open() => {
            return Redirect::to(&sign_in::reference(request.uri())).into_response();
        }
        None => {
            let until = console.parts.clock.now().plus(OPEN_FOR);
            let session = Session::new(None, &*console.parts.random);
            cookie = console.cookie(SESSION, &session, until, request.headers());
            session
        }
    };
    request.extensions_mut().insert(session.clone());
    let mut response = next.run(request).await;
    response.extensions_mut().insert(session);
    let headers = response.headers_mut();
    headers.extend(cookie.map(|cookie| (SET_COOKIE, cookie)));
    response
}

/// A secret: 256 random bits as a text.
pub(crate) fn secret(random: &dyn Random) -> String {
    let mut bytes = [0; 32];
    random.fill(&mut bytes);
    URL_SAFE_NO_PAD.encode(bytes)
}

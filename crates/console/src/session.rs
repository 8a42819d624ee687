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
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use percent_encoding::percent_decode_str;
use sampler_domain::{ClientId, Timestamp};
use sampler_service::environment::Random;
use sampler_service::oauth::Claims;
use sampler_service::security::Grant;
use serde::{Deserialize, Serialize};

use crate::address::is_secure;
use crate::api::Refusal;
use crate::page::{Frame, refused};
use crate::{Console, cookies, sign_in};

/// The name of its cookie.
const SESSION: &str = "sampler_console";

/// The longest session, in ms, where no token says it.
const OPEN_FOR: i64 = 7 * 24 * 60 * 60 * 1_000;

/// The most bytes of a cookie that browsers keep.
const COOKIE_MAX: usize = 4_000;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Content {
    /// The token that each form must repeat.
    csrf: String,
    /// When it ends, ms since the epoch.
    until: i64,
    /// The person; `None` if no sign-in is needed.
    person: Option<Person>,
}

/// Somebody who has signed in.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Person {
    pub(crate) name: String,
    /// The client that the token was for.
    pub(crate) client: Option<String>,
    pub(crate) scopes: Vec<String>,
}

/// A session, with what its scopes allow.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    content: Content,
    grant: Grant,
}

impl Session {
    /// The session of somebody who has signed in; none where the scopes allow nothing.
    pub(crate) fn of_person(person: Person, until: Timestamp, random: &dyn Random) -> Option<Self> {
        Self::of_content(Content {
            csrf: secret(random),
            until: until.as_millis(),
            person: Some(person),
        })
    }

    /// A session where nobody needs to sign in.
    fn open(now: Timestamp, random: &dyn Random) -> Option<Self> {
        Self::of_content(Content {
            csrf: secret(random),
            until: now.plus(OPEN_FOR).as_millis(),
            person: None,
        })
    }

    fn of_content(content: Content) -> Option<Self> {
        let grant = match &content.person {
            Some(person) => Grant::of_claims(&Claims {
                client: person.client.as_deref().and_then(ClientId::new),
                user: ClientId::new(&person.name),
                scopes: person.scopes.iter().cloned().collect(),
            })?,
            None => Grant::without_token(),
        };
        Some(Self { content, grant })
    }

    pub(crate) fn grant(&self) -> &Grant {
        &self.grant
    }

    pub(crate) fn is_admin(&self) -> bool {
        self.grant.require_admin().is_ok()
    }

    pub(crate) fn person(&self) -> Option<&str> {
        Some(&self.content.person.as_ref()?.name)
    }

    pub(crate) fn csrf(&self) -> &str {
        &self.content.csrf
    }

    /// Whether a form has repeated it.
    pub(crate) fn is_own_form(&self, csrf: &str) -> bool {
        verify_slices_are_equal(self.content.csrf.as_bytes(), csrf.as_bytes()).is_ok()
    }

    /// The header that has a browser keep the session; none where it would be too long.
    pub(crate) fn cookie(&self, console: &Console, headers: &HeaderMap) -> Option<HeaderValue> {
        let content = serde_json::to_string(&self.content).ok()?;
        let life = self.content.until - console.parts.clock.now().as_millis();
        let keys = &console.parts.keys;
        let cookie = keys.seal(SESSION, &content, life / 1_000, is_secure(headers));
        (cookie.len() <= COOKIE_MAX).then(|| HeaderValue::try_from(cookie).ok())?
    }
}

impl Console {
    /// The session of a request, if it has one that has not ended.
    fn session(&self, headers: &HeaderMap) -> Option<Session> {
        let content = self.parts.keys.open(SESSION, headers, is_secure(headers))?;
        let content: Content = serde_json::from_str(&content).ok()?;
        let is_valid = self.parts.clock.now().as_millis() < content.until;
        // Where people sign in, nobody is admitted without a name.
        let fits = content.person.is_some() != self.is_open();
        Session::of_content(content).filter(|_| is_valid && fits)
    }
}

/// The header that has a browser forget the session.
pub(crate) fn forget_session(headers: &HeaderMap) -> HeaderValue {
    cookies::forget(SESSION, is_secure(headers))
}

/// Serves a request that has a session. Without a session, a request that reads is redirected to the
/// sign-in.
pub(crate) async fn require(
    State(console): State<Arc<Console>>,
    request: Request,
    next: Next,
) -> Response {
    if let Some(session) = console.session(request.headers()) {
        return page(&console, session, request, next).await;
    }
    let is_reading = request.method() == Method::GET || request.method() == Method::HEAD;
    if !is_reading {
        let detail = "There is no session, or it has ended. Nothing was done.";
        let refusal = Refusal::new(StatusCode::FORBIDDEN, "Not signed in", detail);
        return refused(Frame::new(&console, None, request.uri().path()), refusal);
    }
    if !console.is_open() {
        return Redirect::to(&sign_in::reference(request.uri())).into_response();
    }
    let session = Session::open(console.parts.clock.now(), &*console.parts.random);
    let Some(session) = session else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let cookie = session.cookie(&console, request.headers());
    let mut response = page(&console, session, request, next).await;
    if let Some(cookie) = cookie {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    response
}

/// The page that a session asks for, or the one that says why there is none. There is none at an
/// address that is not UTF-8.
async fn page(
    console: &Arc<Console>,
    session: Session,
    mut request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    let is_text = percent_decode_str(path).decode_utf8().is_ok();
    let frame = Frame::new(console, Some(session.clone()), path);
    if !is_text {
        return refused(frame, Refusal::no_page());
    }
    request.extensions_mut().insert(session);
    let mut response = next.run(request).await;
    match response.extensions_mut().remove::<Refusal>() {
        Some(refusal) => refused(frame, refusal),
        None => response,
    }
}

/// A secret: 256 random bits as a text.
pub(crate) fn secret(random: &dyn Random) -> String {
    let mut bytes = [0; 32];
    random.fill(&mut bytes);
    URL_SAFE_NO_PAD.encode(bytes)
}

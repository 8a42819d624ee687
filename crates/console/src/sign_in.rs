//! Signing in and out.
//!
//! An attempt has an encrypted cookie of its own for ten minutes. It holds the state and the nonce
//! that must return, the verifier of the code, and the address to go to then. Tokens are checked as
//! the API checks those of its clients; then they are dropped.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use axum::response::{IntoResponse, Redirect, Response};
use http::header::SET_COOKIE;
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use sampler_domain::Timestamp;
use sampler_service::oauth::{Attempt, Client, FetchError, Tokens};
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::api::Refusal;
use crate::query::Query;
use crate::session::{Person, SESSION, Session, forget, secret};
use crate::visit::{Form, Visit, own_address, relative};
use crate::{Console, PATH};

const CALLBACK: &str = "/console/callback";

/// The name of the cookie of an attempt to sign in.
const ATTEMPT: &str = "sampler_console_sign_in";

/// How long an attempt may take, in ms.
const ATTEMPT_FOR: i64 = 10 * 60 * 1_000;

/// How many people may be signing in at the same time: each holds a request to the token server, for
/// which nobody needs a token.
const AT_ONCE: usize = 8;

/// How many used attempts are remembered. Who fills this uses as many requests for it as a repeat of
/// one that is forgotten would save.
const USED_MAX: usize = 4_096;

/// The longest address to return to, in bytes.
const RETURN_MAX: usize = 1_500;

/// All scopes of Sampler begin so; others say nothing here.
const SCOPES: &str = "abacus.sampler.";

/// The cookie of an attempt.
#[derive(Serialize, Deserialize)]
struct Pending {
    #[serde(flatten)]
    attempt: Attempt,
    /// Where to go then.
    then: String,
}

/// The attempts of one instance.
pub(crate) struct Attempts {
    permits: Semaphore,
    /// The states of the latest attempts that have returned, the last one last.
    used: Mutex<VecDeque<String>>,
}

impl Default for Attempts {
    fn default() -> Self {
        Self {
            permits: Semaphore::new(AT_ONCE),
            used: Mutex::default(),
        }
    }
}

impl Attempts {
    /// A permit to ask the token server. Nobody waits for one: whoever waits holds a connection.
    fn admit(&self) -> Result<SemaphorePermit<'_>, Refusal> {
        self.permits.try_acquire().map_err(|_| {
            let detail =
                "Too many people are signing in now. Load this page again in a few seconds.";
            Refusal {
                retry_after: Some(HeaderValue::from_static("5")),
                ..failed(StatusCode::SERVICE_UNAVAILABLE, detail)
            }
        })
    }

    /// Uses the state of an attempt. False where it was used before.
    fn consume(&self, state: &str) -> bool {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if used.iter().any(|known| known == state) {
            return false;
        }
        if used.len() == USED_MAX {
            used.pop_front();
        }
        used.push_back(state.to_owned());
        true
    }
}

/// Where somebody signs in who wanted to see this page, as a reference from it.
pub(crate) fn reference(page: &Uri) -> String {
    let wanted = page.path_and_query().map_or(PATH, |it| it.as_str());
    let query = Query::default().with("to", wanted);
    query.at(&relative(page.path(), "/console/sign-in"))
}

/// `GET /console/sign-in`: sends the browser to the token server.
pub(crate) async fn begin(visit: Visit, headers: HeaderMap) -> Result<Response, Refusal> {
    let parts = &visit.console.parts;
    let client = parts.sign_in.as_ref().ok_or_else(Refusal::no_page)?;
    let Some(own) = own_address(&headers) else {
        let detail = "The request does not say for which host it is.";
        return Err(failed(StatusCode::BAD_REQUEST, detail));
    };
    let pending = Pending {
        attempt: Attempt {
            state: secret(&*parts.random),
            nonce: secret(&*parts.random),
            verifier: secret(&*parts.random),
            redirect: format!("{own}{CALLBACK}"),
        },
        then: own_page(visit.query.get("to")).to_owned(),
    };
    let until = visit.now().plus(ATTEMPT_FOR);
    let _permit = visit.console.attempts.admit()?;
    let page = client.authorization(&pending.attempt).await;
    let page = page.map_err(|error| unreachable(&error))?;
    let cookie = visit.console.cookie(ATTEMPT, &pending, until, &headers);
    let cookie = cookie.map(|cookie| [(SET_COOKIE, cookie)]);
    Ok((cookie, Redirect::to(page.as_str())).into_response())
}

/// `GET /console/callback`: the token server sends the browser back.
pub(crate) async fn complete(visit: Visit, headers: HeaderMap) -> Result<Response, Refusal> {
    // Without a permit the attempt is not used: the person can load the page again.
    let _permit = visit.console.attempts.admit()?;
    let mut response = visit.signed_in(&headers).await.into_response();
    // An attempt is for once.
    let forget = forget(ATTEMPT, &headers);
    response.headers_mut().append(SET_COOKIE, forget);
    Ok(response)
}

/// `POST /console/sign-out`.
pub(crate) async fn end(headers: HeaderMap, _: Form) -> Response {
    let forget = forget(SESSION, &headers);
    ([(SET_COOKIE, forget)], Redirect::to("signed-out")).into_response()
}

/// `GET /console/signed-out`.
pub(crate) async fn ended() -> Refusal {
    let detail = "This browser has forgotten its session. A copy of the session's cookie would stay valid \
                  until the access token ends, and the token server may still know you.";
    Refusal::new(StatusCode::OK, "Signed out", detail)
}

impl Visit {
    async fn signed_in(&self, headers: &HeaderMap) -> Result<Response, Refusal> {
        let console = &self.console;
        let client = console.parts.sign_in.as_ref();
        let client = client.ok_or_else(Refusal::no_page)?;
        let pending = console.content::<Pending>(ATTEMPT, headers);
        let state = self.query.get("state");
        let Some(pending) = pending.filter(|it| it.attempt.state == state) else {
            let detail = "This does not belong to an attempt to sign in with this browser, or the \
                          attempt is too old.";
            return Err(failed(StatusCode::BAD_REQUEST, detail));
        };
        let code = self.query.get("code");
        if code.is_empty() {
            let detail =
                "The token server did not sign you in, or did not grant a scope of Sampler.";
            return Err(failed(StatusCode::FORBIDDEN, detail));
        }
        if !console.attempts.consume(&pending.attempt.state) {
            let detail = "This attempt to sign in was used before.";
            return Err(failed(StatusCode::BAD_REQUEST, detail));
        }
        let tokens = client.redeem(code, &pending.attempt).await;
        let tokens = tokens.map_err(|error| match error {
            FetchError::Status {
                status: 400 | 403, ..
            } => {
                let detail = "The token server did not take the code of this attempt.";
                failed(StatusCode::FORBIDDEN, detail)
            }
            error => unreachable(&error),
        })?;
        let nonce = &pending.attempt.nonce;
        let (session, until) = console.session_of(client, &tokens, nonce).await?;
        let Some(cookie) = console.cookie(SESSION, &session, until, headers) else {
            let detail = "Your account has too many scopes of Sampler for a session.";
            return Err(failed(StatusCode::FORBIDDEN, detail));
        };
        let then = relative(CALLBACK, &pending.then);
        Ok(([(SET_COOKIE, cookie)], Redirect::to(&then)).into_response())
    }
}

impl Console {
    /// The session that tokens allow. It ends with the access token.
    async fn session_of(
        &self,
        client: &Client,
        tokens: &Tokens,
        nonce: &str,
    ) -> Result<(Session, Timestamp), Refusal> {
        let authenticator = &self.parts.authenticator;
        let known = authenticator.person(tokens, &client.id, nonce).await;
        let (claims, name) = known.map_err(|problem| failed(problem.status(), problem.detail()))?;
        let name = claims.user.unwrap_or(name);
        let scopes = claims.scopes.into_iter();
        let person = Person {
            name: name.as_str().chars().take(200).collect(),
            client: claims.client.map(|client| client.as_str().to_owned()),
            scopes: scopes.filter(|scope| scope.starts_with(SCOPES)).collect(),
        };
        let session = Session::new(Some(person), &*self.parts.random);
        if session.grant().is_none() {
            let detail = "You are signed in, but your account has no scope of Sampler, such as \
                          abacus.sampler.read.";
            return Err(failed(StatusCode::FORBIDDEN, detail));
        }
        Ok((session, claims.until))
    }
}

fn failed(status: StatusCode, detail: &str) -> Refusal {
    Refusal::new(status, "Not signed in", detail)
}

fn unreachable(error: &FetchError) -> Refusal {
    tracing::warn!(
        code = "console.sign_in_failed",
        error = %error,
        "nobody can sign in at the console: the token server does not answer as it should"
    );
    let detail = "The token server does not answer as it should. Try again later.";
    failed(StatusCode::SERVICE_UNAVAILABLE, detail)
}

/// The page to go to, where it is one of the console and nowhere else.
fn own_page(address: &str) -> &str {
    let rest = address.strip_prefix(PATH);
    let is_own = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']));
    let is_plain = address
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if is_own && is_plain && address.len() <= RETURN_MAX {
        address
    } else {
        PATH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_elsewhere() {
        for page in ["/console", "/console/spans?resource_id=a", "/console?x"] {
            assert_eq!(own_page(page), page);
        }
        let long = format!("/console/{}", "x".repeat(RETURN_MAX));
        for page in [
            "",
            "https://evil.example/console",
            "//evil.example/console",
            "/consoles",
            "/console@evil.example",
            "/console\\..\\x",
            "/console/\r\nx: y",
            "/v1/spans",
            &long,
        ] {
            assert_eq!(own_page(page), PATH, "{page}");
        }
    }

    #[test]
    fn a_handful_may_ask_at_a_time_and_a_state_is_used_once_of_so_many_that_are_remembered() {
        let attempts = Attempts::default();
        let mut held: Vec<_> = (0..AT_ONCE)
            .map(|_| attempts.admit().ok().unwrap())
            .collect();
        assert!(attempts.admit().is_err());
        held.pop();
        assert!(attempts.admit().is_ok());
        assert!(attempts.consume("first") && !attempts.consume("first"));
        assert!((0..USED_MAX).all(|number| attempts.consume(&number.to_string())));
        assert_eq!(attempts.used.lock().unwrap().len(), USED_MAX);
        assert!(attempts.consume("first"));
    }
}

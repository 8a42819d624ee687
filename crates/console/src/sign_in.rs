//! Signing in and out.
//!
//! An attempt has an encrypted cookie of its own for ten minutes. It holds the state and the nonce
//! that must return, the verifier of the code, and the address to go to then. Tokens are checked as
//! the API checks those of its clients; then they are dropped.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use http::header::SET_COOKIE;
use http::{HeaderMap, StatusCode, Uri};
use sampler_domain::Timestamp;
use sampler_service::oauth::verify::claimed_end;
use sampler_service::oauth::{Attempt, CodeFlow, FetchError, Tokens};
use sampler_service::problem::Problem;
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};

use crate::address::{is_secure, of_request, relative};
use crate::api::{Refusal, address};
use crate::cookies::forget;
use crate::form::SubmittedForm;
use crate::page::{Frame, refused};
use crate::session::{Person, Session, forget_session, secret};
use crate::{Console, PATH, parameters};

const CALLBACK: &str = "/console/callback";

/// The name of the cookie of an attempt to sign in.
const ATTEMPT: &str = "sampler_console_sign_in";

/// How long an attempt may take, in ms.
const ATTEMPT_FOR: i64 = 10 * 60 * 1_000;

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
    /// Until when, ms since the epoch.
    until: i64,
}

/// Where somebody signs in who wanted to see this page, as a reference from it.
pub(crate) fn reference(page: &Uri) -> String {
    let wanted = page.path_and_query().map_or(PATH, |it| it.as_str());
    let query = parameters::of_pairs(&[("to", wanted)]);
    address(&relative(page.path(), "/console/sign-in"), &query)
}

/// `GET /console/sign-in`: sends the browser to the token server.
pub(crate) async fn begin(
    State(console): State<Arc<Console>>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let begun = console.begin(&headers, &uri).await;
    begun.unwrap_or_else(|refusal| refused(Frame::new(&console, None, uri.path()), refusal))
}

/// `GET /console/callback`: the token server sends the browser back.
pub(crate) async fn complete(
    State(console): State<Arc<Console>>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let Some(_permit) = console.attempts.admit() else {
        // The attempt is not used: the person can load the page again.
        return refused(Frame::new(&console, None, uri.path()), crowded());
    };
    let completed = console.complete(&headers, &uri).await;
    let mut response = completed
        .unwrap_or_else(|refusal| refused(Frame::new(&console, None, uri.path()), refusal));
    // An attempt is for once.
    let forget = forget(ATTEMPT, is_secure(&headers));
    response.headers_mut().append(SET_COOKIE, forget);
    response
}

/// `POST /console/sign-out`.
pub(crate) async fn end(form: SubmittedForm) -> Response {
    let forget = forget_session(&form.visit.headers);
    ([(SET_COOKIE, forget)], Redirect::to("signed-out")).into_response()
}

/// `GET /console/signed-out`.
pub(crate) async fn ended(State(console): State<Arc<Console>>, uri: Uri) -> Response {
    let detail = "This browser has forgotten its session. A copy of the session's cookie would stay valid \
                  until the access token ends, and the token server may still know you.";
    let told = Refusal::new(StatusCode::OK, "Signed out", detail);
    refused(Frame::new(&console, None, uri.path()), told)
}

impl Console {
    async fn begin(&self, headers: &HeaderMap, uri: &Uri) -> Result<Response, Refusal> {
        let Some(flow) = &self.parts.sign_in else {
            return Ok(Redirect::to(&relative(uri.path(), PATH)).into_response());
        };
        let Some(own) = of_request(headers) else {
            let detail = "The request does not say for which host it is.";
            return Err(failed(StatusCode::BAD_REQUEST, detail));
        };
        let random = &*self.parts.random;
        let pending = Pending {
            attempt: Attempt {
                state: secret(random),
                nonce: secret(random),
                verifier: secret(random),
                redirect: format!("{own}{CALLBACK}"),
            },
            then: own_page(parameters::value(&parameters::read(uri), "to")).to_owned(),
            until: self.parts.clock.now().plus(ATTEMPT_FOR).as_millis(),
        };
        let _permit = self.attempts.admit().ok_or_else(crowded)?;
        let page = flow.authorization(&pending.attempt).await;
        let page = page.map_err(|error| unreachable(&error))?;
        let content = serde_json::to_string(&pending).unwrap_or_default();
        let (keys, life) = (&self.parts.keys, ATTEMPT_FOR / 1_000);
        let cookie = keys.seal(ATTEMPT, &content, life, is_secure(headers));
        Ok(([(SET_COOKIE, cookie)], Redirect::to(page.as_str())).into_response())
    }

    async fn complete(&self, headers: &HeaderMap, uri: &Uri) -> Result<Response, Refusal> {
        let Some(flow) = &self.parts.sign_in else {
            return Ok(Redirect::to(&relative(uri.path(), PATH)).into_response());
        };
        let query = parameters::read(uri);
        let code = parameters::value(&query, "code");
        let Some(pending) = self.pending(headers, parameters::value(&query, "state")) else {
            let detail = "This does not belong to an attempt to sign in with this browser, or the \
                          attempt is too old.";
            return Err(failed(StatusCode::BAD_REQUEST, detail));
        };
        if code.is_empty() {
            let detail =
                "The token server did not sign you in, or did not grant a scope of Sampler.";
            return Err(failed(StatusCode::FORBIDDEN, detail));
        }
        if !self.attempts.consume(&pending.attempt.state) {
            let detail = "This attempt to sign in was used before.";
            return Err(failed(StatusCode::BAD_REQUEST, detail));
        }
        let tokens = flow.redeem(code, &pending.attempt).await;
        let tokens = tokens.map_err(|error| match error {
            FetchError::Status {
                status: 400 | 403, ..
            } => {
                let detail = "The token server did not take the code of this attempt.";
                failed(StatusCode::FORBIDDEN, detail)
            }
            error => unreachable(&error),
        })?;
        let session = self
            .session_of(flow, &tokens, &pending.attempt.nonce)
            .await?;
        let Some(cookie) = session.cookie(self, headers) else {
            let detail = "Your account has too many scopes of Sampler for a session.";
            return Err(failed(StatusCode::FORBIDDEN, detail));
        };
        let then = relative(CALLBACK, own_page(&pending.then));
        Ok(([(SET_COOKIE, cookie)], Redirect::to(&then)).into_response())
    }

    /// The attempt of this browser that has this state, if it is not too old.
    fn pending(&self, headers: &HeaderMap, state: &str) -> Option<Pending> {
        let keys = &self.parts.keys;
        let text = keys.open(ATTEMPT, headers, is_secure(headers))?;
        let pending: Pending = serde_json::from_str(&text).ok()?;
        let is_in_time = self.parts.clock.now().as_millis() < pending.until;
        (pending.attempt.state == state && is_in_time).then_some(pending)
    }

    /// The session that tokens allow.
    async fn session_of(
        &self,
        flow: &CodeFlow,
        tokens: &Tokens,
        nonce: &str,
    ) -> Result<Session, Refusal> {
        let (access, id) = (tokens.access.expose_secret(), tokens.id.expose_secret());
        let authenticator = &self.parts.authenticator;
        let refused = |problem: Problem| failed(problem.status(), problem.detail());
        let claims = authenticator.claims(access).await.map_err(refused)?;
        let name = authenticator.person(id, flow.client_id(), nonce);
        let name = name.map_err(refused)?;
        let name = claims.user.map_or(name, |user| user.as_str().to_owned());
        let scopes = claims.scopes.into_iter();
        let person = Person {
            name: name.chars().take(200).collect(),
            client: claims.client.map(|client| client.as_str().to_owned()),
            scopes: scopes.filter(|scope| scope.starts_with(SCOPES)).collect(),
        };
        let session = Session::of_person(person, self.end_of(tokens), &*self.parts.random);
        session.ok_or_else(|| {
            let detail = "You are signed in, but your account has no scope of Sampler, such as \
                          abacus.sampler.read.";
            failed(StatusCode::FORBIDDEN, detail)
        })
    }

    /// A session ends with its token.
    fn end_of(&self, tokens: &Tokens) -> Timestamp {
        let now = self.parts.clock.now();
        let life = tokens
            .life
            .map(|life| i64::try_from(life.as_millis()).unwrap_or(i64::MAX));
        let by_life = life.map_or(Timestamp::MAX, |life| now.plus(life));
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a cast of a double to an integer is held at the limits of the integer"
        )]
        let end =
            claimed_end(tokens.access.expose_secret()).map(|seconds| (seconds * 1_000.0) as i64);
        end.map_or(now, Timestamp::clamped).min(by_life)
    }
}

fn failed(status: StatusCode, detail: &str) -> Refusal {
    Refusal::new(status, "Not signed in", detail)
}

/// Nobody waits here: whoever waits holds a connection.
fn crowded() -> Refusal {
    let detail = "Too many people are signing in now. Load this page again in a few seconds.";
    Refusal {
        retry_after: Some("5".to_owned()),
        ..failed(StatusCode::SERVICE_UNAVAILABLE, detail)
    }
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
}

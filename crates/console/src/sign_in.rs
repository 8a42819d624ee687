//! Signing in and out.
//!
//! An attempt has an encrypted cookie of its own for ten minutes. It holds the state and the nonce
//! that must return, the verifier of the code, and the address to go to then. Tokens are checked as
//! the API checks those of its clients; then they are dropped.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use http::header::{RETRY_AFTER, SET_COOKIE};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use sampler_domain::Timestamp;
use sampler_oauth::verify::claimed_end;
use sampler_oauth::{Attempt, CodeFlow, FetchError, Tokens};
use sampler_service::problem::Problem;
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use url::form_urlencoded::Serializer;

use crate::address::is_secure;
use crate::form::SubmittedForm;
use crate::page::{Frame, message};
use crate::session::{CookieScope, Person, Session, forget, forget_session, secret};
use crate::{Console, PATH, parameters};

/// The cookie of an attempt to sign in. Only the callback gets it.
const ATTEMPT: CookieScope = CookieScope {
    name: "sampler_console_sign_in",
    path: "/console/callback",
};

/// How long an attempt may take, in ms.
const ATTEMPT_FOR: i64 = 10 * 60 * 1_000;

/// The longest address to return to, in bytes.
const RETURN_MAX: usize = 1_500;

/// All scopes of Sampler begin so; others say nothing here.
const SCOPES: &str = "abacus.sampler.";

const AGAIN: Option<(&str, &str)> = Some(("/console", "Sign in again"));

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

/// Where somebody signs in who wanted to see this page.
pub(crate) fn address(page: &Uri) -> String {
    let page = page.path_and_query().map_or(PATH, |it| it.as_str());
    let query = Serializer::new(String::new())
        .append_pair("to", page)
        .finish();
    format!("{PATH}/sign-in?{query}")
}

/// `GET /console/sign-in`: sends the browser to the token server.
pub(crate) async fn begin(
    State(console): State<Arc<Console>>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let Some(flow) = &console.parts.sign_in else {
        return Redirect::to(PATH).into_response();
    };
    let Some(own) = crate::address::of_request(&headers) else {
        let detail = "The request does not say for which host it is.";
        return failed(&console, StatusCode::BAD_REQUEST, detail);
    };
    let query = parameters::read(&uri);
    let random = &*console.parts.random;
    let pending = Pending {
        attempt: Attempt {
            state: secret(random),
            nonce: secret(random),
            verifier: secret(random),
            redirect: format!("{}{}", own.as_str().trim_end_matches('/'), ATTEMPT.path),
        },
        then: own_page(parameters::value(&query, "to")).to_owned(),
        until: console.parts.clock.now().plus(ATTEMPT_FOR).as_millis(),
    };
    let Some(_permit) = console.attempts.admit() else {
        return crowded(&console);
    };
    match flow.authorization(&pending.attempt).await {
        Ok(page) => {
            let content = serde_json::to_string(&pending).unwrap_or_default();
            let is_secure = is_secure(&headers);
            let cookie = console
                .parts
                .keys
                .seal(ATTEMPT, &content, ATTEMPT_FOR / 1_000, is_secure);
            let mut response = Redirect::to(page.as_str()).into_response();
            if let Ok(cookie) = HeaderValue::try_from(cookie) {
                response.headers_mut().append(SET_COOKIE, cookie);
            }
            response
        }
        Err(error) => unreachable(&console, &error),
    }
}

/// `GET /console/callback`: the token server sends the browser back.
pub(crate) async fn complete(
    State(console): State<Arc<Console>>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let Some(flow) = &console.parts.sign_in else {
        return Redirect::to(PATH).into_response();
    };
    let Some(_permit) = console.attempts.admit() else {
        // The attempt is not used: the person can load the page again.
        return crowded(&console);
    };
    let mut response = console.complete(flow, &headers, &uri).await;
    // An attempt is for once.
    let forget = forget(ATTEMPT, is_secure(&headers));
    response.headers_mut().append(SET_COOKIE, forget);
    response
}

impl Console {
    async fn complete(
        self: &Arc<Self>,
        flow: &CodeFlow,
        headers: &HeaderMap,
        uri: &Uri,
    ) -> Response {
        let query = parameters::read(uri);
        let [state, code] = ["state", "code"].map(|name| parameters::value(&query, name));
        let pending = self
            .parts
            .keys
            .open(ATTEMPT, headers, is_secure(headers))
            .and_then(|text| serde_json::from_str::<Pending>(&text).ok())
            .filter(|it| it.attempt.state == state && self.is_before(it.until));
        let Some(pending) = pending else {
            let detail = "This does not belong to an attempt to sign in with this browser, or the \
                          attempt is too old.";
            return failed(self, StatusCode::BAD_REQUEST, detail);
        };
        if code.is_empty() {
            let detail =
                "The token server did not sign you in, or did not grant a scope of Sampler.";
            return failed(self, StatusCode::FORBIDDEN, detail);
        }
        if !self.attempts.consume(&pending.attempt.state) {
            let detail = "This attempt to sign in was used before.";
            return failed(self, StatusCode::BAD_REQUEST, detail);
        }
        let tokens = match flow.redeem(code, &pending.attempt).await {
            Ok(tokens) => tokens,
            Err(FetchError::Status {
                status: 400 | 403, ..
            }) => {
                let detail = "The token server did not take the code of this attempt.";
                return failed(self, StatusCode::FORBIDDEN, detail);
            }
            Err(error) => return unreachable(self, &error),
        };
        match self.session_of(flow, &tokens, &pending.attempt.nonce).await {
            Ok(Some(session)) => self.enter(&session, headers, &pending.then),
            Ok(None) => {
                let detail = "You are signed in, but your account has no scope of Sampler, such as \
                              abacus.sampler.read.";
                failed(self, StatusCode::FORBIDDEN, detail)
            }
            Err(problem) => failed(self, problem.status(), problem.detail()),
        }
    }

    fn is_before(&self, until: i64) -> bool {
        self.parts.clock.now().as_millis() < until
    }

    /// The session that tokens allow; none where they allow nothing.
    async fn session_of(
        &self,
        flow: &CodeFlow,
        tokens: &Tokens,
        nonce: &str,
    ) -> Result<Option<Session>, Problem> {
        let access = tokens.access.expose_secret();
        let claims = self.parts.authenticator.claims(access).await?;
        let id = tokens.id.expose_secret();
        let name = self
            .parts
            .authenticator
            .person(id, flow.client_id(), nonce)?;
        let name = claims.user.map_or(name, |user| user.as_str().to_owned());
        let scopes = claims.scopes.into_iter();
        let person = Person {
            name: name.chars().take(200).collect(),
            client: claims.client.map(|client| client.as_str().to_owned()),
            scopes: scopes.filter(|scope| scope.starts_with(SCOPES)).collect(),
        };
        let until = self.end_of(tokens);
        Ok(Session::of_person(person, until, &*self.parts.random))
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

    fn enter(self: &Arc<Self>, session: &Session, headers: &HeaderMap, then: &str) -> Response {
        let Some(cookie) = session.cookie(self, headers) else {
            let detail = "Your account has too many scopes of Sampler for a session.";
            return failed(self, StatusCode::FORBIDDEN, detail);
        };
        let mut response = Redirect::to(own_page(then)).into_response();
        response.headers_mut().append(SET_COOKIE, cookie);
        response
    }
}

/// `POST /console/sign-out`.
pub(crate) async fn end(form: SubmittedForm) -> Response {
    let mut response = Redirect::to("/console/signed-out").into_response();
    let forget = forget_session(&form.headers);
    response.headers_mut().append(SET_COOKIE, forget);
    response
}

/// `GET /console/signed-out`.
pub(crate) async fn ended(State(console): State<Arc<Console>>) -> Response {
    let detail = "This browser has forgotten its session. A copy of the session's cookie would stay valid \
                  until the access token ends, and the token server may still know you.";
    let frame = Frame::outside(&console);
    message(frame, StatusCode::OK, "Signed out", detail, AGAIN)
}

fn failed(console: &Arc<Console>, status: StatusCode, detail: &str) -> Response {
    message(
        Frame::outside(console),
        status,
        "Not signed in",
        detail,
        AGAIN,
    )
}

/// Nobody waits here: whoever waits holds a connection.
fn crowded(console: &Arc<Console>) -> Response {
    let detail = "Too many people are signing in now. Load this page again in a few seconds.";
    let mut response = failed(console, StatusCode::SERVICE_UNAVAILABLE, detail);
    let headers = response.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from_static("5"));
    response
}

fn unreachable(console: &Arc<Console>, error: &FetchError) -> Response {
    tracing::warn!(
        code = "console.sign_in_failed",
        error = %error,
        "nobody can sign in at the console: the token server does not answer as it should"
    );
    let detail = "The token server does not answer as it should. Try again later.";
    failed(console, StatusCode::SERVICE_UNAVAILABLE, detail)
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

//! The client of the API, as `docs/api.md` describes it.

mod error;
mod reading;
mod request;

use std::time::Duration;

use reqwest::header::{
    AUTHORIZATION, CONTENT_TYPE, ETAG, HeaderMap, IF_MATCH, LINK, LOCATION, RETRY_AFTER,
};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode};
use sampler_api::next_cursor_in;
use sampler_service::oauth::http::read_body;
use serde::Deserialize;
use url::Url;

use crate::connection::{Connection, is_loopback};
use crate::failure::Failure;
use crate::output::printable;
use crate::token::Token;

pub(crate) use error::{ApiError, words_of};
pub(crate) use request::{Query, Repeat, Request};

/// How often a request is sent that is answered "later".
const ATTEMPTS: u32 = 10;
/// How often a request is sent that gets no answer.
const ATTEMPTS_UNANSWERED: u32 = 5;
/// The first pause before another attempt, doubled each time.
const PAUSE_FIRST: Duration = Duration::from_millis(200);
/// The longest pause that the server does not ask for, and the longest that it can ask for.
const PAUSE_MAX: Duration = Duration::from_mins(1);
pub(crate) const PAUSE_ASKED_MAX: Duration = Duration::from_mins(5);
/// How long one answer may take.
const ANSWER_LIMIT: Duration = Duration::from_mins(1);
/// The longest answer, in bytes.
const ANSWER_LEN_MAX: usize = 64 << 20;

#[derive(Debug)]
pub(crate) struct Api {
    http: Client,
    base: Url,
    token: Token,
}

/// An answer that says yes.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) body: Vec<u8>,
    pub(crate) etag: Option<String>,
    /// The address of what was made.
    pub(crate) location: Option<String>,
    /// It was done before, and nothing was done this time.
    pub(crate) is_replayed: bool,
    cursor: Option<String>,
}

impl Answer {
    pub(crate) fn read<'a, T: Deserialize<'a>>(&'a self, path: &[&str]) -> Result<T, ApiError> {
        serde_json::from_slice(&self.body).map_err(|error| ApiError::Unreadable {
            path: path_of(path),
            reason: error.to_string(),
        })
    }
}

enum Attempt {
    Answered(Response),
    /// Not now; with the pause that the server asks for, and how often to try.
    Later(ApiError, Option<Duration>, u32),
}

impl Api {
    pub(crate) fn new(connection: &Connection) -> Result<Self, Failure> {
        let (base, token) = connection.resolve()?;
        let mut builder = Client::builder()
            .user_agent(concat!("sampler-cli/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(Duration::from_secs(10))
            .timeout(ANSWER_LIMIT)
            // A redirect could lead the token elsewhere.
            .redirect(Policy::none());
        if is_loopback(&base) {
            // A proxy would ask its own machine.
            builder = builder.no_proxy();
        }
        let http = builder
            .build()
            .map_err(|error| ApiError::Client(describe(&error)))?;
        Ok(Self { http, base, token })
    }

    /// The address of the receiver.
    pub(crate) fn base(&self) -> &Url {
        &self.base
    }

    /// Sends a request, and repeats it if the API is busy or does not answer. Any answer but
    /// success is an error.
    pub(crate) async fn call(&self, request: &Request<'_>) -> Result<Answer, ApiError> {
        let (mut pause, mut attempt) = (PAUSE_FIRST, 1);
        let mut may_renew_token = true;
        let response = loop {
            match self.send(request).await? {
                Attempt::Answered(response) => {
                    let is_refused = response.status() == StatusCode::UNAUTHORIZED;
                    if !(is_refused && may_renew_token && self.token.may_be_renewed()) {
                        break response;
                    }
                    may_renew_token = false;
                }
                Attempt::Later(error, _, attempts) if attempt >= attempts => return Err(error),
                Attempt::Later(_, asked, _) => {
                    tokio::time::sleep(pause_until(pause, asked)).await;
                    (pause, attempt) = (pause * 2, attempt + 1);
                }
            }
        };
        if !response.status().is_success() {
            return Err(self.refusal(response, request.path).await);
        }
        let headers = response.headers();
        let mut answer = Answer {
            body: Vec::new(),
            etag: header(headers, ETAG.as_str()),
            location: header(headers, LOCATION.as_str()),
            is_replayed: header(headers, "idempotent-replayed").as_deref() == Some("true"),
            cursor: next_cursor(headers),
        };
        answer.body = self.body(response, request.path).await?;
        Ok(answer)
    }

    async fn send(&self, request: &Request<'_>) -> Result<Attempt, ApiError> {
        let address = self.address(request.path, &request.query);
        let mut sent = self.http.request(request.method.clone(), address);
        let token = self.token.header().await;
        if let Some(token) = token.map_err(|failure| ApiError::Token(failure.to_string()))? {
            sent = sent.header(AUTHORIZATION, token);
        }
        if let Some((media_type, body)) = &request.body {
            sent = sent.header(CONTENT_TYPE, *media_type).body(body.clone());
        }
        if let Some(etag) = &request.if_match {
            sent = sent.header(IF_MATCH, etag);
        }
        let response = match sent.send().await {
            Ok(response) => response,
            Err(error) => {
                // Where no connection was made, nothing was done.
                let may_repeat = request.repeat == Repeat::Always || error.is_connect();
                let attempts = if may_repeat { ATTEMPTS_UNANSWERED } else { 1 };
                return Ok(Attempt::Later(self.unreachable(&error), None, attempts));
            }
        };
        if !request.repeat.may_be_later(response.status()) {
            return Ok(Attempt::Answered(response));
        }
        let asked = retry_after(response.headers());
        let error = self.refusal(response, request.path).await;
        if request.repeat == Repeat::WhenTurnedAway && !error.is_turned_away() {
            return Err(error);
        }
        Ok(Attempt::Later(error, asked, ATTEMPTS))
    }

    fn address(&self, path: &[&str], query: &Query) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        url.set_query(None);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }

    async fn body(&self, response: Response, path: &[&str]) -> Result<Vec<u8>, ApiError> {
        let body = read_body(response, ANSWER_LEN_MAX).await;
        let body = body.map_err(|error| self.unreachable(&error))?;
        body.ok_or_else(|| ApiError::Unreadable {
            path: path_of(path),
            reason: "it is too long".to_owned(),
        })
    }

    /// The error of a refused request, with its problem document if it has one.
    async fn refusal(&self, response: Response, path: &[&str]) -> ApiError {
        let status = response.status();
        let body = self.body(response, path).await.unwrap_or_default();
        ApiError::Status {
            path: path_of(path),
            status,
            problem: serde_json::from_slice(&body).ok(),
        }
    }

    fn unreachable(&self, error: &reqwest::Error) -> ApiError {
        ApiError::Unreachable {
            url: self.base.to_string(),
            reason: describe(error),
        }
    }
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}

fn pause_until(own: Duration, asked: Option<Duration>) -> Duration {
    asked.map_or(own.min(PAUSE_MAX), |asked| asked.min(PAUSE_ASKED_MAX))
}

fn path_of(segments: &[&str]) -> String {
    format!("/{}", printable(&segments.join("/")))
}

/// The cursor of the next page. Only the cursor is taken from a link: its host may be the name of
/// the server behind a proxy, and a token is sent to no other address than the user's.
fn next_cursor(headers: &HeaderMap) -> Option<String> {
    let links = headers.get_all(LINK).iter();
    links
        .filter_map(|value| value.to_str().ok())
        .find_map(next_cursor_in)
}

/// A wait in seconds. A date is not read: clocks differ.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?;
    seconds.trim().parse().ok().map(Duration::from_secs)
}

/// The innermost cause of an error.
fn describe(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_not_asked_before_it_says() {
        let seconds = Duration::from_secs;
        for (own, asked, pause) in [
            (4, None, 4),
            (102, None, 60),
            (4, Some(1), 1),
            (4, Some(61), 61),
            (4, Some(86_400), 300),
        ] {
            let until = pause_until(seconds(own), asked.map(seconds));
            assert_eq!(until, seconds(pause), "{asked:?}");
        }
    }
}

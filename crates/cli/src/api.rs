//! Reads the API, as `docs/api.md` describes it.

mod link;

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderMap, LINK, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode};
use sampler_verify::api::{Entry, Page, Span};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use url::Url;

use crate::connection::{Connection, Token};
use crate::failure::Failure;
use crate::output::printable;

/// How many spans are asked for at once. One can hold some hundred KB.
const SPANS_PER_PAGE: &str = "100";
/// How many usages are asked for at once.
const USAGES_PER_PAGE: &str = "1000";
/// How many pages in a row may be empty and lead on: a server looks only so far for each.
const EMPTY_PAGES_MAX: u32 = 1_000;
/// The longest answer, in bytes.
const ANSWER_LEN_MAX: usize = 64 << 20;
/// How long one answer may take.
const ANSWER_LIMIT: Duration = Duration::from_mins(1);
/// How often a request is sent that is answered "later".
const ATTEMPTS: u32 = 10;
/// How often a request is sent that gets no answer.
const ATTEMPTS_UNANSWERED: u32 = 5;
/// The first pause before another attempt, doubled each time.
const PAUSE_FIRST: Duration = Duration::from_millis(200);
/// The longest pause, whatever the server asks for.
const PAUSE_MAX: Duration = Duration::from_mins(1);

/// The API cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("cannot set up HTTP: {0}")]
    Client(String),
    #[error("{url} cannot be reached: {reason}")]
    Unreachable { url: String, reason: String },
    #[error("{path} is answered {status}{reason}")]
    Status {
        path: String,
        status: StatusCode,
        reason: String,
    },
    #[error("{path} is answered 404: is this the address of a receiver that has a ledger?")]
    NotThere { path: String },
    #[error("the answer to {path} cannot be read: {reason}")]
    Unreadable { path: String, reason: String },
    #[error("a list of the API does not end: a page leads to no other")]
    Endless,
    #[error("{0}")]
    Token(String),
}

/// A page of a list, and the cursor of the next.
#[derive(Debug)]
pub(crate) struct Listed<T> {
    pub(crate) items: Vec<T>,
    pub(crate) cursor: Option<String>,
}

/// Where a reader of a list is.
#[derive(Debug, Default)]
pub(crate) struct Position {
    cursor: Option<String>,
    empty: u32,
}

impl Position {
    /// Goes on behind a page; says whether there is another.
    pub(crate) fn advance(
        &mut self,
        items: usize,
        cursor: Option<String>,
    ) -> Result<bool, ApiError> {
        self.empty = if items == 0 { self.empty + 1 } else { 0 };
        let leads_nowhere = cursor == self.cursor || self.empty > EMPTY_PAGES_MAX;
        if cursor.is_some() && leads_nowhere {
            return Err(ApiError::Endless);
        }
        self.cursor = cursor;
        Ok(self.cursor.is_some())
    }
}

/// A reader of the API.
#[derive(Debug)]
pub(crate) struct Api {
    http: Client,
    base: Url,
    token: Token,
}

/// Query parameters.
pub(crate) type Query = Vec<(&'static str, String)>;

struct Answer {
    body: Vec<u8>,
    cursor: Option<String>,
}

enum Attempt {
    Answered(Response),
    /// Not now; with the pause that the server asks for.
    Later(ApiError, Option<Duration>, u32),
}

impl Api {
    pub(crate) fn new(connection: &Connection) -> Result<Self, Failure> {
        let token = connection.token()?;
        let http = Client::builder()
            .user_agent(concat!("sampler-cli/", env!("CARGO_PKG_VERSION")))
            .timeout(ANSWER_LIMIT)
            .connect_timeout(Duration::from_secs(10))
            // A redirect could lead the token elsewhere.
            .redirect(Policy::none())
            .build()
            .map_err(|error| ApiError::Client(describe(&error)))?;
        Ok(Self {
            http,
            base: connection.url.clone(),
            token,
        })
    }

    /// A page of spans.
    pub(crate) async fn spans(
        &self,
        query: &Query,
        position: &Position,
    ) -> Result<Listed<Span>, ApiError> {
        let path = ["v1", "spans"];
        let found = self.list(&path, query, SPANS_PER_PAGE, position).await?;
        found.ok_or_else(|| ApiError::NotThere {
            path: path_of(&path),
        })
    }

    /// One span, if it is still there.
    pub(crate) async fn span(&self, id: &str) -> Result<Option<Span>, ApiError> {
        let path = ["v1", "spans", id];
        let Some(answer) = self.get(&path, &Query::new()).await? else {
            return Ok(None);
        };
        read(&answer.body, &path).map(Some)
    }

    /// A page of the usages of a span, if that is still there.
    pub(crate) async fn usages(
        &self,
        id: &str,
        position: &Position,
    ) -> Result<Option<Listed<Entry>>, ApiError> {
        let path = ["v1", "spans", id, "usages"];
        self.list(&path, &Query::new(), USAGES_PER_PAGE, position)
            .await
    }

    async fn list<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &Query,
        limit: &str,
        position: &Position,
    ) -> Result<Option<Listed<T>>, ApiError> {
        let mut query = query.clone();
        query.push(("limit", limit.to_owned()));
        query.extend(
            position
                .cursor
                .iter()
                .map(|cursor| ("cursor", cursor.clone())),
        );
        let Some(answer) = self.get(path, &query).await? else {
            return Ok(None);
        };
        let Page { items } = read(&answer.body, path)?;
        Ok(Some(Listed {
            items,
            cursor: answer.cursor,
        }))
    }

    /// Reads a document, again where it is not there for a moment. `None` is a 404.
    async fn get(&self, path: &[&str], query: &Query) -> Result<Option<Answer>, ApiError> {
        let mut pause = PAUSE_FIRST;
        let mut attempt = 1;
        let mut may_renew_token = true;
        let response = loop {
            match self.send(path, query).await? {
                Attempt::Answered(response) => {
                    let is_refused = response.status() == StatusCode::UNAUTHORIZED;
                    if !(is_refused && may_renew_token && matches!(self.token, Token::File(_))) {
                        break response;
                    }
                    // The file may hold a new token by now: it is read for each request.
                    may_renew_token = false;
                }
                Attempt::Later(error, _, attempts) if attempt >= attempts => return Err(error),
                Attempt::Later(_, asked, _) => {
                    tokio::time::sleep(asked.unwrap_or(pause).min(PAUSE_MAX)).await;
                    pause *= 2;
                    attempt += 1;
                }
            }
        };
        match response.status() {
            StatusCode::OK => {
                let cursor = next_cursor(response.headers());
                let body = self.body(response, path).await?;
                Ok(Some(Answer { body, cursor }))
            }
            StatusCode::NOT_FOUND => Ok(None),
            status => Err(self.refusal(response, status, path).await),
        }
    }

    async fn send(&self, path: &[&str], query: &Query) -> Result<Attempt, ApiError> {
        let mut request = self.http.get(self.address(path, query));
        let header = self.token.header();
        if let Some(token) = header.map_err(|failure| ApiError::Token(failure.to_string()))? {
            request = request.header(AUTHORIZATION, token);
        }
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) => {
                let error = self.unreachable(&error);
                return Ok(Attempt::Later(error, None, ATTEMPTS_UNANSWERED));
            }
        };
        let status = response.status();
        if !matches!(status.as_u16(), 429 | 502 | 503 | 504) {
            return Ok(Attempt::Answered(response));
        }
        let asked = retry_after(response.headers());
        let error = self.refusal(response, status, path).await;
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

    async fn body(&self, mut response: Response, path: &[&str]) -> Result<Vec<u8>, ApiError> {
        let mut body = Vec::new();
        let broken = |error: reqwest::Error| self.unreachable(&error);
        while let Some(chunk) = response.chunk().await.map_err(broken)? {
            if body.len() + chunk.len() > ANSWER_LEN_MAX {
                let (path, reason) = (path_of(path), "it is too long".to_owned());
                return Err(ApiError::Unreadable { path, reason });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    /// What the problem document of a refusal says, if it is one.
    async fn refusal(&self, response: Response, status: StatusCode, path: &[&str]) -> ApiError {
        #[derive(Deserialize)]
        struct Problem {
            title: Option<String>,
            detail: Option<String>,
        }
        let body = self.body(response, path).await.unwrap_or_default();
        let problem: Option<Problem> = serde_json::from_slice(&body).ok();
        let said = problem.and_then(|problem| problem.detail.or(problem.title));
        ApiError::Status {
            path: path_of(path),
            status,
            reason: said.map_or_else(String::new, |said| format!(": {}", printable(&said))),
        }
    }

    fn unreachable(&self, error: &reqwest::Error) -> ApiError {
        ApiError::Unreachable {
            url: self.base.to_string(),
            reason: describe(error),
        }
    }
}

fn read<T: DeserializeOwned>(body: &[u8], path: &[&str]) -> Result<T, ApiError> {
    serde_json::from_slice(body).map_err(|error| ApiError::Unreadable {
        path: path_of(path),
        reason: error.to_string(),
    })
}

fn path_of(segments: &[&str]) -> String {
    format!("/{}", printable(&segments.join("/")))
}

/// What the next page is asked for with. Only the cursor is taken of a link: its host may be the
/// name of the server behind a proxy, and a token is sent to no other address than the user's.
fn next_cursor(headers: &HeaderMap) -> Option<String> {
    let links = headers.get_all(LINK).iter();
    links
        .filter_map(|value| value.to_str().ok())
        .find_map(link::next_cursor)
}

/// A wait in seconds. A date is not read: clocks differ.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?;
    seconds.trim().parse().ok().map(Duration::from_secs)
}

/// What went wrong, with its causes.
fn describe(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

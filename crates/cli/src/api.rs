//! The client of the API, as `docs/api.md` describes it.

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, IF_MATCH};
use reqwest::{Client, Method, RequestBuilder};
use sampler_api::{List, next_cursor_in};
use sampler_service::oauth::http::read_body;
use sampler_verify::api::Span;
use serde::Serialize;
use serde::de::DeserializeOwned;
use url::Url;

use crate::connection::{Connection, Token, http};
pub(crate) use crate::failure::ApiError;
use crate::failure::{Failure, Repeat};
use crate::output::printable;

pub(crate) const JSON: &str = "application/json";
/// The first pause before another attempt, doubled each time.
const PAUSE_FIRST: Duration = Duration::from_millis(200);
/// The longest pause that the server does not ask for, and the longest that it can ask for.
const PAUSE_MAX: Duration = Duration::from_mins(1);
const PAUSE_ASKED_MAX: Duration = Duration::from_mins(5);
/// How long one answer may take, and how long it may be, in bytes.
const ANSWER_LIMIT: Duration = Duration::from_mins(2);
const ANSWER_LEN_MAX: usize = 256 << 20;
/// How many spans are asked for at once. One can hold some hundred KB.
const SPANS_PER_PAGE: usize = 100;
/// How many usages, or other small things, are asked for at once.
const PAGE_MAX: usize = 1_000;

pub(crate) type Query = Vec<(&'static str, String)>;

#[derive(Debug)]
pub(crate) struct Api {
    http: Client,
    base: Url,
    token: Token,
}

/// An answer that says yes.
#[derive(Debug)]
pub(crate) struct Answer {
    path: String,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        let path = &self.path;
        serde_json::from_slice(&self.body)
            .map_err(|error| ApiError::new(format!("the answer to {path} cannot be read: {error}")))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The cursor of the next page. Only the cursor is taken from a link: its host may be the name of
    /// the server behind a proxy, and a token is sent to no other address than the user's.
    fn cursor(&self) -> Option<String> {
        let links = self.headers.get_all("link").iter();
        let mut links = links.filter_map(|value| value.to_str().ok());
        links.find_map(next_cursor_in)
    }
}

impl Api {
    pub(crate) fn new(connection: &Connection) -> Result<Self, Failure> {
        let (base, token) = connection.resolve()?;
        Self::at(base, token)
    }

    /// The client of an API at an address.
    pub(crate) fn at(base: Url, token: Token) -> Result<Self, Failure> {
        let http = http(ANSWER_LIMIT)?;
        Ok(Self { http, base, token })
    }

    /// The address of the API.
    pub(crate) fn base(&self) -> &Url {
        &self.base
    }

    pub(crate) async fn get(&self, path: &[&str], query: &Query) -> Result<Answer, ApiError> {
        let request = self.http.get(self.address(path, query));
        self.call(path, request, Repeat::Idempotent).await
    }

    /// Posts a body whose repeats change nothing.
    pub(crate) async fn post(
        &self,
        path: &[&str],
        media_type: &str,
        body: String,
    ) -> Result<Answer, ApiError> {
        let request = self.http.post(self.address(path, &Query::new()));
        let request = request.header(CONTENT_TYPE, media_type).body(body);
        self.call(path, request, Repeat::Idempotent).await
    }

    /// Does something that must not be done twice; with an `ETag`, only while the thing is as it was read.
    pub(crate) async fn act(
        &self,
        method: Method,
        path: &[&str],
        body: &impl Serialize,
        etag: Option<&str>,
    ) -> Result<Answer, ApiError> {
        let address = self.address(path, &Query::new());
        let mut request = self.http.request(method, address).json(body);
        if let Some(etag) = etag {
            request = request.header(IF_MATCH, etag);
        }
        self.call(path, request, Repeat::All).await
    }

    /// One span, if it is still there.
    pub(crate) async fn span(&self, id: &str) -> Result<Option<Span>, ApiError> {
        match self.get(&["v1", "spans", id], &Query::new()).await {
            Err(error) if error.status() == Some(404) => Ok(None),
            answer => answer?.read().map(Some),
        }
    }

    /// The first `most` items of a list, and whether there are more.
    pub(crate) async fn items<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &Query,
        most: usize,
    ) -> Result<(Vec<T>, bool), ApiError> {
        let mut items = Vec::new();
        let take = |page: Vec<T>| items.extend(page);
        let is_more = self.pages(path, query, most, take).await?;
        Ok((items, is_more))
    }

    /// Hands over a whole list, page by page.
    pub(crate) async fn each_page<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: Query,
        take: impl FnMut(Vec<T>),
    ) -> Result<(), ApiError> {
        self.pages(path, &query, usize::MAX, take).await?;
        Ok(())
    }

    /// Hands over the first `most` items of a list. Returns whether there are more.
    async fn pages<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &Query,
        most: usize,
        mut take: impl FnMut(Vec<T>),
    ) -> Result<bool, ApiError> {
        let page = match path {
            ["v1", "spans"] => SPANS_PER_PAGE,
            _ => PAGE_MAX,
        };
        let (mut left, mut cursor) = (most, None::<String>);
        loop {
            let mut query = query.clone();
            query.push(("limit", page.min(left).to_string()));
            query.extend(cursor.clone().map(|cursor| ("cursor", cursor)));
            let answer = self.get(path, &query).await?;
            let List { mut items } = answer.read()?;
            let is_cut = items.len() > left;
            items.truncate(left);
            left -= items.len();
            take(items);
            let next = answer.cursor();
            if left == 0 || next.is_none() {
                return Ok(next.is_some() || is_cut);
            }
            if next == cursor {
                let what = "a list of the API does not end: a page leads to no other";
                return Err(ApiError::new(what));
            }
            cursor = next;
        }
    }

    /// Sends a request, and repeats it where that is as safe as it must be. Any answer but success is an error.
    async fn call(
        &self,
        path: &[&str],
        request: RequestBuilder,
        least: Repeat,
    ) -> Result<Answer, ApiError> {
        let (mut attempt, mut pause, mut is_renewed) = (1, PAUSE_FIRST, false);
        loop {
            let again = request.try_clone().expect("its body is in memory");
            let error = match self.send(path, again).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let is_refused = error.status() == Some(401) && !is_renewed;
            if error.repeat >= least && attempt < error.attempts() {
                tokio::time::sleep(pause_until(pause, error.retry_after)).await;
            } else if is_refused && self.token.renew().await {
                is_renewed = true;
            } else {
                return Err(error);
            }
            (attempt, pause) = (attempt + 1, pause * 2);
        }
    }

    async fn send(&self, path: &[&str], request: RequestBuilder) -> Result<Answer, ApiError> {
        let token = self.token.header().await;
        let request = match token.map_err(|error| ApiError::new(error.to_string()))? {
            Some(token) => request.header(AUTHORIZATION, token),
            None => request,
        };
        let unreachable = |error| ApiError::unreachable(&self.base, &error);
        let response = request.send().await.map_err(unreachable)?;
        let (status, headers) = (response.status(), response.headers().clone());
        let path = format!("/{}", printable(&path.join("/")));
        let body = read_body(response, ANSWER_LEN_MAX).await;
        let body = body.map_err(unreachable)?;
        let body =
            body.ok_or_else(|| ApiError::new(format!("the answer to {path} is too long")))?;
        if !status.is_success() {
            return Err(ApiError::of_answer(&path, status, &headers, &body));
        }
        Ok(Answer {
            path,
            headers,
            body,
        })
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
}

/// The pause before the next attempt: the own one, or the one that the server asks for.
pub(crate) fn pause_until(own: Duration, asked: Option<Duration>) -> Duration {
    asked.map_or(own.min(PAUSE_MAX), |asked| asked.min(PAUSE_ASKED_MAX))
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

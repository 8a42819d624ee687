//! Sends requests upstream, and builds URLs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry::global;
use opentelemetry_http::HeaderInjector;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{
    AGE, AUTHORIZATION, CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER,
};
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use sampler_domain::Timestamp;
use sampler_service::oauth::http::describe;
use sampler_service::oauth::{ClientCredentials, HttpOptions, TlsError};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use crate::answer::{Answer, AnswerParts, Meanings, interpret, is_page, parse_date};
use crate::error_name::ErrorName;
use crate::port::{Details, LookupAnswer, LookupResult, Posted};

/// All characters but those that RFC 3986 calls unreserved.
pub(crate) const PATH_SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

pub(crate) const BODY_LEN_MAX: usize = 8 * 1024;

/// The address of a service, and the terms of a call.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// The address of the service; paths are appended to it.
    pub url: Url,
    pub http: HttpOptions,
    /// The source of the tokens of requests; without it requests carry none.
    pub tokens: Option<Arc<ClientCredentials>>,
}

/// Sends requests, each with the current token.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamClient {
    client: Client,
    timeout: Duration,
    tokens: Option<Arc<ClientCredentials>>,
    /// A token that was set, instead of one of the client's own.
    bearer: Option<HeaderValue>,
}

impl UpstreamClient {
    pub(crate) fn new(options: &ClientOptions) -> Result<Self, TlsError> {
        Ok(Self {
            client: sampler_service::oauth::http::client(&options.http)?,
            timeout: options.http.timeout,
            tokens: options.tokens.clone(),
            bearer: None,
        })
    }

    /// Sends this token with each request.
    pub(crate) fn with_token(mut self, token: &SecretString) -> Self {
        let bearer = HeaderValue::try_from(format!("Bearer {}", token.expose_secret()));
        self.bearer = bearer.ok().map(|mut value| {
            value.set_sensitive(true);
            value
        });
        self
    }

    pub(crate) fn post(&self, url: Url) -> RequestBuilder {
        self.client.post(url)
    }

    /// A request without a token.
    pub(crate) fn get(&self, url: Url) -> RequestBuilder {
        self.client.get(url)
    }

    /// Sends a request. If its token is refused, the request is sent once more with a new one: tokens
    /// can be revoked, and keys changed, before a token expires.
    pub(crate) async fn send(&self, request: RequestBuilder) -> Result<Response, SendError> {
        self.send_noting(request, &AtomicBool::new(false)).await
    }

    /// The same. Notes once something may have been sent.
    async fn send_noting(
        &self,
        request: RequestBuilder,
        is_begun: &AtomicBool,
    ) -> Result<Response, SendError> {
        let request = request.headers(trace_context());
        let needs_token = self.bearer.is_none() && self.tokens.is_some();
        is_begun.store(!needs_token, Ordering::Relaxed);
        if let Some(bearer) = &self.bearer {
            let request = request.header(AUTHORIZATION, bearer.clone());
            return Ok(request.send().await?);
        }
        let Some(tokens) = &self.tokens else {
            return Ok(request.send().await?);
        };
        let again = request.try_clone();
        let token = tokens.token().await.map_err(SendError::without_token)?;
        is_begun.store(true, Ordering::Relaxed);
        let response = request.header(AUTHORIZATION, token.header()).send().await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        match again {
            Some(again) if tokens.refused(&token) => {
                let token = tokens.token().await.map_err(SendError::without_token)?;
                let response = again.header(AUTHORIZATION, token.header()).send().await?;
                Ok(response)
            }
            Some(_) | None => Ok(response),
        }
    }

    /// The same, but with the tokens the two requests together take no longer than one may.
    pub(crate) async fn send_in_time(
        &self,
        request: RequestBuilder,
    ) -> Result<Response, SendError> {
        let is_begun = AtomicBool::new(false);
        let sending = self.send_noting(request, &is_begun);
        match tokio::time::timeout(self.timeout, sending).await {
            Ok(sent) => sent,
            Err(_) if is_begun.into_inner() => Err(SendError {
                text: "it took too long".to_owned(),
                unsent: false,
            }),
            Err(_) => Err(SendError {
                text: "no token: it took too long".to_owned(),
                unsent: true,
            }),
        }
    }
}

/// A request without an answer.
#[derive(Debug)]
pub(crate) struct SendError {
    /// The reason, for the log.
    pub(crate) text: String,
    /// Nothing was sent: there was no token, or no connection.
    pub(crate) unsent: bool,
}

impl SendError {
    /// What it means for a post.
    pub(crate) fn into_posted(self) -> Posted {
        Posted {
            answer: Answer::TryAgain {
                after: None,
                error: self.text,
            },
            date: None,
            details: Details {
                unsent: self.unsent,
                ..Details::default()
            },
        }
    }

    /// What it means for a lookup.
    pub(crate) fn into_looked_up(self) -> LookupResult {
        LookupResult {
            answer: LookupAnswer::Failed {
                after: None,
                error: self.text,
            },
            status: None,
        }
    }

    fn without_token(error: impl std::fmt::Display) -> Self {
        Self {
            text: error.to_string(),
            unsent: true,
        }
    }
}

impl From<reqwest::Error> for SendError {
    fn from(error: reqwest::Error) -> Self {
        Self {
            unsent: error.is_connect(),
            text: describe(error),
        }
    }
}

/// The header `traceparent`, so that the upstream can continue the trace. Empty where traces are not
/// exported.
fn trace_context() -> HeaderMap {
    let mut headers = HeaderMap::new();
    global::get_text_map_propagator(|propagator| {
        propagator.inject(&mut HeaderInjector(&mut headers));
    });
    headers
}

/// The `Date` of an answer. That of one from a cache, which has an `Age`, is old.
pub(crate) fn date(response: &Response) -> Option<Timestamp> {
    let is_cached = response.headers().contains_key(AGE);
    let date = header(response, &DATE).filter(|_| !is_cached);
    date.and_then(parse_date)
}

pub(crate) fn header<'a>(response: &'a Response, name: &HeaderName) -> Option<&'a str> {
    response.headers().get(name)?.to_str().ok()
}

/// The start of the body. A body that breaks off does not matter.
async fn read_start(mut response: Response) -> Vec<u8> {
    let mut start = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        let room = BODY_LEN_MAX - start.len();
        start.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if start.len() == BODY_LEN_MAX {
            break;
        }
    }
    start
}

/// Reads an answer to a post, so that the connection can be used again.
pub(crate) async fn read_posted(response: Response, meanings: &Meanings, now: Timestamp) -> Posted {
    let (status, date) = (response.status().as_u16(), date(&response));
    let retry_after = header(&response, &RETRY_AFTER).map(str::to_owned);
    let media_type = header(&response, &CONTENT_TYPE).map(str::to_owned);
    let body = read_start(response).await;
    let name = ErrorName::of_body(&body);
    let parts = AnswerParts {
        status,
        retry_after: retry_after.as_deref(),
        name: name.as_ref(),
        is_page: is_page(media_type.as_deref(), &body),
    };
    Posted {
        answer: interpret(meanings, parts, date.unwrap_or(now)),
        date,
        details: Details {
            status: Some(status),
            error_name: name.as_ref().map(ToString::to_string),
            ..Details::default()
        },
    }
}

/// `base` with path segments appended, each percent-encoded.
///
/// By the URL standard a segment `.` or `..` is a step in the path, however it is encoded. Callers
/// must refuse such names.
pub(crate) fn join(base: &Url, segments: &[&str]) -> Url {
    let mut path = base.path().trim_end_matches('/').to_owned();
    for segment in segments {
        path.push('/');
        path.extend(utf8_percent_encode(segment, PATH_SEGMENT));
    }
    let mut url = base.clone();
    url.set_path(&path);
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_encoded_and_slashes_do_not_double() {
        let join = |base: &str, segments: &[&str]| {
            super::join(&Url::parse(base).unwrap(), segments).to_string()
        };
        assert_eq!(join("http://a:1", &["v1", "x"]), "http://a:1/v1/x");
        assert_eq!(join("http://a:1/base/", &["v1"]), "http://a:1/base/v1");
        let odd = join("http://a", &["a/b?c#d e", "é%", "~-._"]);
        assert_eq!(odd, "http://a/a%2Fb%3Fc%23d%20e/%C3%A9%25/~-._");
    }
}

//! The API, asked within the process.
//!
//! Pages are made of what the API answers, so each number on a page is the API's, and its limits,
//! scopes and checks hold for pages as they are. No connection is opened and no token is sent: the
//! request carries what the session may do.

use axum::Extension;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, ETAG, IF_MATCH, LINK, RETRY_AFTER};
use http::{HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sampler_api::{Problem, next_cursor_in};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tower::ServiceExt;

use crate::query::Query;
use crate::visit::Visit;

/// The largest answer that a page is made of, in bytes.
const ANSWER_MAX: usize = 16 << 20;

/// All bytes but those that a segment of a path may have unencoded. A dot is encoded, since it can
/// mean another segment.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'~');

/// A text as a segment of a path.
pub(crate) fn segment(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

pub(crate) struct Answer<T> {
    pub(crate) body: T,
    pub(crate) cursor: Option<String>,
    /// The entity tag. A change must name it, so that it applies only to the state that was shown.
    pub(crate) tag: String,
}

/// Why a request is not served. As an answer of a handler, [`frame::complete`](crate::frame::complete)
/// makes a page of it.
#[derive(Clone)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) problem: Box<Problem>,
    pub(crate) retry_after: Option<HeaderValue>,
}

impl Visit {
    /// Reads what is at a path of the API.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &Query,
    ) -> Result<Answer<T>, Refusal> {
        let request = Request::get(query.at(path)).body(Body::empty());
        self.send(request).await
    }

    /// Asks for a change; `tag` names the state that was shown, and is empty for a change of several
    /// things.
    pub(crate) async fn act(&self, path: &str, tag: &str, body: &Value) -> Result<(), Refusal> {
        let mut request = Request::post(path).header(CONTENT_TYPE, "application/json");
        // The API refuses a change that needs a tag without one.
        if !tag.is_empty() {
            request = request.header(IF_MATCH, tag);
        }
        let request = request.body(Body::from(body.to_string()));
        self.send::<Value>(request).await.map(drop)
    }

    async fn send<T: DeserializeOwned>(
        &self,
        request: http::Result<Request<Body>>,
    ) -> Result<Answer<T>, Refusal> {
        let mut request = request.map_err(|_| Refusal::internal())?;
        let grant = self.grant().ok_or_else(Refusal::no_page)?;
        request.extensions_mut().insert(grant);
        let Ok(response) = self.console.parts.api.clone().oneshot(request).await;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_MAX).collect().await;
        let body = body.map_err(|_| Refusal::internal())?.to_bytes();
        let text = |name| head.headers.get(name)?.to_str().ok();
        if !head.status.is_success() {
            return Err(Refusal {
                status: head.status,
                problem: serde_json::from_slice(&body).unwrap_or_default(),
                retry_after: head.headers.get(RETRY_AFTER).cloned(),
            });
        }
        let body = serde_json::from_slice(&body).map_err(|error| {
            tracing::error!(
                code = "console.unreadable",
                error = %error,
                "an answer of the API could not be read for the console"
            );
            Refusal::internal()
        })?;
        Ok(Answer {
            body,
            cursor: text(LINK).and_then(next_cursor_in),
            tag: text(ETAG).unwrap_or_default().to_owned(),
        })
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status, Extension(self)).into_response()
    }
}

impl Refusal {
    /// A refusal of the console itself.
    pub(crate) fn new(status: StatusCode, title: &str, detail: &str) -> Self {
        let problem = Problem {
            title: title.to_owned(),
            detail: detail.to_owned(),
            ..Problem::default()
        };
        Self {
            status,
            problem: Box::new(problem),
            retry_after: None,
        }
    }

    fn internal() -> Self {
        let detail = "The page could not be made because of an error in the service.";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "Internal error", detail)
    }

    pub(crate) fn no_page() -> Self {
        let detail = "There is no page at this address.";
        Self::new(StatusCode::NOT_FOUND, "Not found", detail)
    }

    /// The text in the place of a part of a page that could not be read.
    pub(crate) fn in_place(&self) -> String {
        if self.status == StatusCode::FORBIDDEN {
            return "Your scopes do not include this.".to_owned();
        }
        format!("Not available now: {}.", self.problem.title)
    }
}

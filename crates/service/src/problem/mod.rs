//! Errors as answers: problem documents (RFC 9457).

pub mod kinds;

use std::fmt::Write as _;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

pub use http::StatusCode;
pub use kinds::{ProblemType, routes};
pub use sampler_api::FieldError;

use crate::http::request::log_answer;

const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/problem+json");

/// The most fields that one document names.
const ERRORS_MAX: usize = 100;

/// The longest name that a pointer writes out, in characters: names of unknown fields are the client's.
const NAME_MAX: usize = 100;

/// The characters that are percent-encoded in a pointer.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// An error, as an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    kind: &'static ProblemType,
    /// Boxed, so that results with a problem stay small.
    rest: Box<Rest>,
}

#[derive(Clone, Debug, PartialEq)]
struct Rest {
    document: sampler_api::Problem,
    headers: HeaderMap,
}

impl Problem {
    /// A problem of this kind; `detail` describes this occurrence in full sentences.
    pub fn new(kind: &'static ProblemType, detail: impl Into<String>) -> Self {
        let document = sampler_api::Problem {
            r#type: kind.uri(),
            title: kind.title.to_owned(),
            status: kind.status.as_u16(),
            detail: detail.into(),
            ..sampler_api::Problem::default()
        };
        debug_assert!(document.detail.ends_with('.'), "{document:?}");
        let headers = HeaderMap::new();
        Self {
            kind,
            rest: Box::new(Rest { document, headers }),
        }
    }

    /// An error in the service. The client gets no details; they are in the log.
    pub fn internal() -> Self {
        Self::new(
            &kinds::INTERNAL,
            "The request could not be served because of an error in the service.",
        )
    }

    /// Names the fields that are wrong, the first [`ERRORS_MAX`] of them.
    #[must_use]
    pub fn errors(mut self, errors: impl IntoIterator<Item = FieldError>) -> Self {
        let errors = errors.into_iter().take(ERRORS_MAX);
        self.rest.document.errors.extend(errors);
        self.cut_errors(ERRORS_MAX);
        self
    }

    /// The same problem, described otherwise.
    #[must_use]
    pub fn with_detail(mut self, detail: &str) -> Self {
        detail.clone_into(&mut self.rest.document.detail);
        self
    }

    /// Adds a member that other problems do not have.
    #[must_use]
    pub fn member(mut self, name: &str, value: impl Into<Value>) -> Self {
        let members = &mut self.rest.document.members;
        members.insert(name.to_owned(), value.into());
        self
    }

    /// Says after how many seconds it makes sense to try again.
    #[must_use]
    pub fn retry_after(self, seconds: u64) -> Self {
        self.header(header::RETRY_AFTER, HeaderValue::from(seconds))
    }

    /// Adds any other header, such as the challenge of an answer 401.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.rest.headers.insert(name, value);
        self
    }

    pub fn cut_errors(&mut self, most: usize) {
        self.rest.document.errors.truncate(most);
    }

    /// After how many seconds it makes sense to try again, where it says so.
    pub fn seconds_to_wait(&self) -> Option<u64> {
        let seconds = self.rest.headers.get(header::RETRY_AFTER)?;
        seconds.to_str().ok()?.parse().ok()
    }

    pub fn kind(&self) -> &'static ProblemType {
        self.kind
    }

    /// The description of this occurrence.
    pub fn detail(&self) -> &str {
        &self.rest.document.detail
    }

    pub fn status(&self) -> StatusCode {
        self.kind.status
    }
}

impl From<Problem> for sampler_api::Problem {
    fn from(problem: Problem) -> Self {
        problem.rest.document
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        log_answer(&self);
        let Rest { document, headers } = *self.rest;
        let mut response = (self.kind.status, headers, Json(document)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, MEDIA_TYPE);
        response
    }
}

/// Which field of a request is meant: a JSON Pointer (RFC 6901) as a URI fragment, the form that RFC 9457 shows, as in
/// `#/measured_usage/0/quantity`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer(String);

impl Pointer {
    /// The whole document.
    pub fn root() -> Self {
        Self("#".to_owned())
    }

    /// The member `name` of this object. A very long name is cut.
    #[must_use]
    pub fn field(mut self, name: &str) -> Self {
        let cut: String = name.chars().take(NAME_MAX).collect();
        let escaped = cut.replace('~', "~0").replace('/', "~1");
        let _ = write!(self.0, "/{}", utf8_percent_encode(&escaped, ENCODED));
        self
    }

    /// The element at `index` of this list, the first being 0.
    #[must_use]
    pub fn index(mut self, index: usize) -> Self {
        let _ = write!(self.0, "/{index}");
        self
    }
}

impl From<Pointer> for String {
    fn from(pointer: Pointer) -> Self {
        pointer.0
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;
    use kinds::{FORBIDDEN, UNAUTHORIZED, UNHEALTHY};

    async fn body(response: Response) -> String {
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn is_written_in_full() {
        let pointer = Pointer::root()
            .field("measured_usage")
            .index(0)
            .field("quantity");
        let response = Problem::new(&FORBIDDEN, "One field is wrong.")
            .errors([FieldError::new(pointer, "It must not be null.")])
            .member("limit", 5)
            .into_response();
        assert_eq!(response.status(), 403);
        assert_eq!(
            response.headers()["content-type"],
            "application/problem+json"
        );
        assert_eq!(
            body(response).await,
            concat!(
                r#"{"type":"/problems/forbidden","title":"The token does not allow this","#,
                r#""status":403,"detail":"One field is wrong.","#,
                r##""errors":[{"pointer":"#/measured_usage/0/quantity","##,
                r#""detail":"It must not be null."}],"limit":5}"#
            ),
        );
    }

    #[tokio::test]
    async fn leaves_out_what_there_is_none_of() {
        let text = body(Problem::internal().into_response()).await;
        assert!(!text.contains("errors"), "{text}");
    }

    #[test]
    fn has_the_headers_it_was_given() {
        let problem = Problem::new(&UNHEALTHY, "There is too much to do.");
        let response = problem.retry_after(7).into_response();
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()["retry-after"], "7");
        let problem = Problem::new(&UNAUTHORIZED, "There is no token.");
        let challenge = HeaderValue::from_static("Bearer realm=\"cf\"");
        let response = problem
            .header(header::WWW_AUTHENTICATE, challenge)
            .into_response();
        assert_eq!(
            response.headers()["www-authenticate"],
            "Bearer realm=\"cf\""
        );
    }

    #[test]
    fn names_a_limited_number_of_fields() {
        let error = || FieldError::new(Pointer::root(), "It is wrong.");
        let many = || (0..ERRORS_MAX - 1).map(|_| error());
        let problem = Problem::new(&FORBIDDEN, "Much is wrong.");
        let problem = problem.errors(many()).errors(many());
        assert_eq!(problem.rest.document.errors.len(), ERRORS_MAX);
    }

    #[test]
    fn escapes_what_has_a_meaning() {
        let field = |name: &str| String::from(Pointer::root().field(name));
        assert_eq!(field("a/b~c"), "#/a~1b~0c");
        assert_eq!(field("a b%\"^|#\\"), "#/a%20b%25%22%5E%7C%23%5C");
        assert_eq!(field("größe"), "#/gr%C3%B6%C3%9Fe");
        assert_eq!(field(""), "#/");
    }

    #[test]
    fn cuts_long_names() {
        let pointer = Pointer::root().field(&"x".repeat(10_000));
        assert_eq!(pointer.0.len(), 2 + NAME_MAX);
    }
}

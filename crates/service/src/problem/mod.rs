//! Errors as answers: problem documents (RFC 9457).

mod catalogue;
pub mod kinds;
mod pointer;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};

pub use catalogue::{catalogue, routes};
pub use http::StatusCode;
pub use kinds::ProblemType;
pub use pointer::Pointer;
pub use sampler_api::FieldError;

use crate::http::request::log_answer;

const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/problem+json");

/// The most fields that one document names.
const ERRORS_MAX: usize = 100;

/// An error, as an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    kind: &'static ProblemType,
    /// Boxed, so that results with a problem stay small.
    rest: Box<Rest>,
}

/// The members in which problems of one kind differ.
#[derive(Clone, Debug, PartialEq)]
struct Rest {
    detail: String,
    errors: Vec<FieldError>,
    members: Map<String, Value>,
    headers: HeaderMap,
}

impl Problem {
    /// A problem of this kind; `detail` describes this occurrence in full sentences.
    pub fn new(kind: &'static ProblemType, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        debug_assert!(detail.ends_with('.'), "not a full sentence: {detail:?}");
        let (errors, members, headers) = (Vec::new(), Map::new(), HeaderMap::new());
        let rest = Rest {
            detail,
            errors,
            members,
            headers,
        };
        Self {
            kind,
            rest: Box::new(rest),
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
        let free = ERRORS_MAX.saturating_sub(self.rest.errors.len());
        self.rest.errors.extend(errors.into_iter().take(free));
        self
    }

    /// The same problem, described otherwise.
    #[must_use]
    pub fn with_detail(mut self, detail: &str) -> Self {
        detail.clone_into(&mut self.rest.detail);
        self
    }

    /// Adds a member that other problems do not have.
    #[must_use]
    pub fn member(mut self, name: &str, value: impl Into<Value>) -> Self {
        let reserved = ["type", "title", "status", "detail", "instance", "errors"];
        debug_assert!(
            !reserved.contains(&name),
            "{name} is a member of every problem"
        );
        self.rest.members.insert(name.to_owned(), value.into());
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
        self.rest.errors.truncate(most);
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
        &self.rest.detail
    }

    pub fn status(&self) -> StatusCode {
        self.kind.status
    }
}

impl From<Problem> for sampler_api::Problem {
    fn from(problem: Problem) -> Self {
        Self {
            r#type: problem.kind.uri(),
            title: problem.kind.title.to_owned(),
            status: problem.status().as_u16(),
            detail: problem.rest.detail,
            errors: problem.rest.errors,
            members: problem.rest.members,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(mut self) -> Response {
        log_answer(&self);
        let (status, headers) = (self.status(), std::mem::take(&mut self.rest.headers));
        let mut response = (status, Json(sampler_api::Problem::from(self))).into_response();
        response.headers_mut().extend(headers);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, MEDIA_TYPE);
        response
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
        assert_eq!(problem.rest.errors.len(), ERRORS_MAX);
    }

    #[test]
    #[should_panic(expected = "member of every problem")]
    fn a_member_of_its_own_cannot_take_the_place_of_a_common_one() {
        let _ = Problem::internal().member("status", 200);
    }
}

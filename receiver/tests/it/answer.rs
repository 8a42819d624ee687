//! An answer, and what it must be.

use axum::body::Body;
use axum::http::{HeaderMap, Response};
use bytes::Bytes;
use http_body_util::BodyExt;
use sampler_receiver::problems;
use sampler_service::problem::ProblemType;
use serde_json::Value;

use crate::store::SECRET;

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) async fn read(response: Response<Body>) -> Self {
        let (parts, body) = response.into_parts();
        Self {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: body.collect().await.unwrap().to_bytes(),
        }
    }

    /// A header that is there once.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next().map(|value| value.to_str().unwrap());
        assert!(values.next().is_none(), "{name} is there twice: {self:?}");
        value
    }

    /// The address of a page beside this one.
    pub(crate) fn linked(&self, name: &str) -> Option<String> {
        let relation = format!(">; rel=\"{name}\"");
        let mut links = self.header("link")?.split(", ");
        let link = links.find_map(|link| link.strip_suffix(&relation))?;
        Some(link.strip_prefix('<').unwrap().to_owned())
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.to_vec()).unwrap()
    }

    /// The client is told to come again after so many seconds or a few more: those that were turned
    /// away together do not come back together.
    #[track_caller]
    pub(crate) fn may_come_again_after(&self, least: u64) {
        let after = self.header("retry-after").map(str::parse::<u64>);
        let after = after.expect("a header").unwrap();
        let most = least + least.max(4);
        assert!((least..most).contains(&after), "{self:?}");
    }

    /// 201, with nothing else.
    #[track_caller]
    pub(crate) fn is_created(&self) {
        assert_eq!(self.status, 201, "{self:?}");
        assert_eq!(self.header("idempotent-replayed"), None, "{self:?}");
        assert!(self.body.is_empty(), "{self:?}");
    }

    /// 201, and says that nothing was done this time.
    #[track_caller]
    pub(crate) fn is_replayed(&self) {
        assert_eq!(self.status, 201, "{self:?}");
        let replayed = self.header("idempotent-replayed");
        assert_eq!(replayed, Some("true"), "{self:?}");
        assert!(self.body.is_empty(), "{self:?}");
    }

    /// A problem document, in full, of this status and kind.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, slug: &str) -> Value {
        let document = self.any_problem();
        let uri = format!("/problems/{slug}");
        assert_eq!(document["type"], uri, "{document:#}");
        assert_eq!(self.status, status, "{document:#}");
        document
    }

    /// A problem document, in full. None reveals what the store has said.
    #[track_caller]
    pub(crate) fn any_problem(&self) -> Value {
        assert!(self.status >= 400, "{self:?}");
        let media_type = self.header("content-type");
        assert_eq!(media_type, Some("application/problem+json"), "{self:?}");
        assert_eq!(self.header("idempotent-replayed"), None, "{self:?}");
        assert!(!self.text().contains(SECRET), "{self:?}");
        let document = self.json();
        let members = document.as_object().unwrap();
        let names: Vec<_> = members.keys().map(String::as_str).collect();
        assert_eq!(names[..4], ["type", "title", "status", "detail"]);
        assert!(
            matches!(
                names[4..],
                [] | ["errors" | "stopped"] | ["errors", "stopped"]
            ),
            "{document:#}"
        );
        let is_of = |kind: &&ProblemType| document["type"] == kind.uri();
        let kind = problems::all()
            .into_iter()
            .find(is_of)
            .expect("a known kind");
        assert_eq!(document["title"], kind.title);
        assert_eq!(document["status"], self.status, "{document:#}");
        assert!(is_sentence(&document["detail"]), "{document:#}");
        assert_eq!(
            self.is_later(),
            matches!(self.status, 429 | 503),
            "{self:?}"
        );
        if members.contains_key("errors") {
            assert_errors(&document["errors"]);
        }
        document
    }

    /// The kind and the fields of a problem.
    #[track_caller]
    pub(crate) fn names(&self, status: u16, slug: &str, pointers: &[&str]) {
        let document = self.problem(status, slug);
        assert_eq!(pointers_of(&document), pointers, "{document:#}");
    }

    /// A problem of this kind, which is told in these words.
    #[track_caller]
    pub(crate) fn tells(&self, status: u16, slug: &str, words: &[&str]) {
        let document = self.problem(status, slug);
        let detail = document["detail"].as_str().unwrap();
        for words in words {
            assert!(detail.contains(words), "{words}: {detail}");
        }
    }

    /// Whether it says when to come again.
    fn is_later(&self) -> bool {
        let after = self.header("retry-after").map(str::parse::<u64>);
        after.is_some_and(|seconds| (1..=3600).contains(&seconds.unwrap()))
    }
}

/// The fields that a problem names.
fn pointers_of(document: &Value) -> Vec<&str> {
    let errors = document["errors"].as_array().map_or(&[][..], Vec::as_slice);
    errors.iter().map(place_of).collect()
}

/// The JSON Pointer of a field, or the name of a parameter.
fn place_of(error: &Value) -> &str {
    let mut places = ["pointer", "parameter", "header"].into_iter();
    let place = places.find_map(|name| error.get(name));
    place.and_then(Value::as_str).unwrap()
}

fn assert_errors(errors: &Value) {
    let errors = errors.as_array().unwrap();
    assert!(!errors.is_empty() && errors.len() <= 100, "{errors:?}");
    for error in errors {
        let members = error.as_object().unwrap();
        assert_eq!(members.len(), 2, "{error}");
        let place = place_of(error);
        let is_pointer = place == "#" || place.starts_with("#/");
        assert_eq!(is_pointer, members.contains_key("pointer"), "{error}");
        assert!(is_sentence(&members["detail"]), "{error}");
    }
}

fn is_sentence(value: &Value) -> bool {
    value
        .as_str()
        .is_some_and(|text| text.len() > 1 && text.ends_with('.'))
}

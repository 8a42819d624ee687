//! Answers to requests that read: lists, and single things.

use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::{CONTENT_TYPE, ETAG, LINK};
use axum::response::{IntoResponse, Response};
use sampler_api::List;
use serde::Serialize;
use uuid::Uuid;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

pub(crate) struct Paged<T> {
    items: Vec<T>,
    /// The address of the next page, if there is one.
    next: Option<String>,
}

impl<T> Paged<T> {
    pub(crate) fn new(items: Vec<T>, next: Option<String>) -> Self {
        Self { items, next }
    }
}

impl<T: Serialize> IntoResponse for Paged<T> {
    fn into_response(self) -> Response {
        let mut response = json(&List { items: self.items }).into_response();
        if let Some(next) = self.next {
            let link = HeaderValue::try_from(format!("<{next}>; rel=\"next\""));
            let link = link.expect("a percent-encoded text is plain ASCII");
            response.headers_mut().insert(LINK, link);
        }
        response
    }
}

/// One thing with its entity tag.
pub(crate) struct Single {
    body: Vec<u8>,
    tag: HeaderValue,
}

impl Single {
    pub(crate) fn new(thing: &impl Serialize) -> Self {
        Self::tagged(thing, tag_of(thing))
    }

    /// The same of something that has a tag of its own.
    pub(crate) fn tagged(thing: &impl Serialize, tag: HeaderValue) -> Self {
        let body = to_vec(thing);
        Self { body, tag }
    }
}

impl IntoResponse for Single {
    fn into_response(self) -> Response {
        ([(ETAG, self.tag), (CONTENT_TYPE, JSON)], self.body).into_response()
    }
}

/// The entity tag of what has a version, which each change increases. So what was changed and set back counts
/// as changed.
pub(crate) fn version_tag(version: i64) -> HeaderValue {
    HeaderValue::try_from(format!("\"{version}\"")).expect("digits")
}

/// A hash of the answer, so that it changes whenever the answer does.
fn tag_of(thing: &impl Serialize) -> HeaderValue {
    let digest = Uuid::new_v5(&Uuid::NAMESPACE_OID, &to_vec(thing));
    HeaderValue::try_from(format!("\"{}\"", digest.simple())).expect("hexadecimal digits")
}

fn json(thing: &impl Serialize) -> impl IntoResponse {
    ([(CONTENT_TYPE, JSON)], Body::from(to_vec(thing)))
}

fn to_vec(thing: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(thing).expect("texts, numbers and lists of these")
}

//! Answers to requests that read: lists, and single things.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, ETAG, IF_NONE_MATCH, LINK};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use sampler_api::List;
use serde::Serialize;
use uuid::Uuid;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

pub(crate) struct Paged<T> {
    pub(crate) items: Vec<T>,
    /// The address of the next page, if there is one.
    pub(crate) next: Option<String>,
    /// The address of the page before, of a list that can be read in both directions.
    pub(crate) previous: Option<String>,
}

impl<T> Paged<T> {
    /// A page of a list that is read in one direction.
    pub(crate) fn new(items: Vec<T>, next: Option<String>) -> Self {
        Self {
            items,
            next,
            previous: None,
        }
    }
}

impl<T: Serialize> IntoResponse for Paged<T> {
    fn into_response(self) -> Response {
        let mut response = json(&List { items: self.items }).into_response();
        let pages = [("next", self.next), ("prev", self.previous)];
        let links = pages
            .into_iter()
            .filter_map(|(name, page)| Some(format!("<{}>; rel=\"{name}\"", page?)))
            .collect::<Vec<_>>()
            .join(", ");
        // A percent-encoded text is plain ASCII.
        let link = HeaderValue::try_from(links).ok();
        if let Some(link) = link.filter(|link| !link.is_empty()) {
            response.headers_mut().insert(LINK, link);
        }
        response
    }
}

/// One thing with its entity tag: a client that has it already is answered 304.
pub(crate) struct Single {
    body: Vec<u8>,
    tag: HeaderValue,
    is_known: bool,
}

impl Single {
    pub(crate) fn new(thing: &impl Serialize, request: &HeaderMap) -> Self {
        Self::tagged(thing, tag_of(thing), request)
    }

    /// The same of something that has a tag of its own.
    pub(crate) fn tagged(thing: &impl Serialize, tag: HeaderValue, request: &HeaderMap) -> Self {
        let is_known = is_known(request, &tag);
        Self {
            body: to_vec(thing),
            tag,
            is_known,
        }
    }

    pub(crate) fn tag(&self) -> &HeaderValue {
        &self.tag
    }
}

impl IntoResponse for Single {
    fn into_response(self) -> Response {
        if self.is_known {
            return (StatusCode::NOT_MODIFIED, [(ETAG, self.tag)]).into_response();
        }
        ([(ETAG, self.tag), (CONTENT_TYPE, JSON)], self.body).into_response()
    }
}

pub(crate) fn tag_of(thing: &impl Serialize) -> HeaderValue {
    tag(&to_vec(thing))
}

/// The entity tag: a hash of the answer, so that it changes whenever the answer does.
fn tag(body: &[u8]) -> HeaderValue {
    let digest = Uuid::new_v5(&Uuid::NAMESPACE_OID, body);
    HeaderValue::try_from(format!("\"{}\"", digest.simple())).expect("hexadecimal digits")
}

/// Whether a request names the tag in `If-None-Match` (RFC 9110, section 13.1.2).
fn is_known(request: &HeaderMap, tag: &HeaderValue) -> bool {
    let values = request.get_all(IF_NONE_MATCH).iter();
    let mut tags = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim);
    tags.any(|one| one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag)
}

fn json(thing: &impl Serialize) -> impl IntoResponse {
    ([(CONTENT_TYPE, JSON)], Body::from(to_vec(thing)))
}

fn to_vec(thing: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(thing).expect("texts, numbers and lists of these")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_known_by_itself_weak_or_in_a_list_and_by_a_star() {
        let tag = tag(b"body");
        let text = tag.to_str().unwrap();
        let known = |values: &[String]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(IF_NONE_MATCH, value.parse().unwrap());
            }
            is_known(&headers, &tag)
        };
        for value in [
            text.to_owned(),
            format!("W/{text}"),
            format!("\"a\",  {text} ,\"b\""),
            "*".to_owned(),
        ] {
            assert!(known(std::slice::from_ref(&value)), "{value}");
        }
        assert!(known(&["\"a\"".to_owned(), text.to_owned()]));
        let bare = text.trim_matches('"').to_owned();
        assert!(!known(&[]) && !known(&[bare, "\"a\"".to_owned()]));
        assert_ne!(tag, super::tag(b"another body"));
    }
}

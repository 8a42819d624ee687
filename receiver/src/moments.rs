//! Moments of answers as RFC 3339, for clients that ask for them with
//! `Accept: application/json;time=rfc3339`.
//!
//! The description of the API says which members are times. The answer is not parsed: each
//! number in it is exact, and only times are written otherwise.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::Response;
use sampler_domain::Timestamp;
use serde_json::Value;
use utoipa::openapi::OpenApi;

use crate::json::{self, Values};

/// The media type of answers with such times.
const RFC_3339: HeaderValue = HeaderValue::from_static("application/json;time=rfc3339");

const SCHEMA: &str = "#/components/schemas/Moment";

/// Members whose content is not of this API: what providers measure, and documents as they were.
const FOREIGN: [&str; 3] = ["quantity", "before", "after"];

/// The names of the members that are times.
pub(crate) fn names(document: &OpenApi) -> BTreeSet<String> {
    let document = serde_json::to_value(document).unwrap_or_default();
    let properties = document["components"]["schemas"]
        .as_object()
        .into_iter()
        .flat_map(|schemas| schemas.values())
        .filter_map(|schema| schema["properties"].as_object())
        .flatten();
    let moments = properties.filter(|(_, schema)| is_moment(schema));
    moments.map(|(name, _)| name.clone()).collect()
}

fn is_moment(schema: &Value) -> bool {
    let choices = ["oneOf", "anyOf", "allOf"].map(|name| schema[name].as_array());
    schema["$ref"] == SCHEMA || choices.into_iter().flatten().flatten().any(is_moment)
}

/// Writes the times of an answer as the client asks for them.
pub(crate) async fn render(
    State(names): State<Arc<BTreeSet<String>>>,
    request: Request,
    next: Next,
) -> Response {
    let is_asked = request.method() == Method::GET && asks(request.headers());
    let answer = next.run(request).await;
    let is_json = answer
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|media_type| media_type == "application/json");
    if !is_asked || !is_json {
        return answer;
    }
    let (mut parts, body) = answer.into_parts();
    let bytes = to_bytes(body, usize::MAX)
        .await
        .expect("an answer that is in memory as a whole");
    parts.headers.remove(CONTENT_LENGTH);
    parts.headers.insert(CONTENT_TYPE, RFC_3339);
    parts
        .headers
        .insert(VARY, HeaderValue::from_static("accept"));
    Response::from_parts(parts, Body::from(rendered(&bytes, &names)))
}

fn asks(headers: &HeaderMap) -> bool {
    let accepted = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let mut ranges = accepted.flat_map(|text| text.split(','));
    ranges.any(|range| {
        let compact: String = range.chars().filter(|char| !char.is_whitespace()).collect();
        let mut parts = compact.split(';');
        let is_json = parts
            .next()
            .is_some_and(|it| it.eq_ignore_ascii_case("application/json"));
        is_json && parts.any(|part| part.eq_ignore_ascii_case("time=rfc3339"))
    })
}

/// The same JSON, with its times as texts.
fn rendered(json: &[u8], names: &BTreeSet<String>) -> Vec<u8> {
    let mut text = Vec::with_capacity(json.len() * 5 / 4);
    let mut rest = json;
    while let Some(&byte) = rest.first() {
        let count = match byte {
            b'"' => json::behind_string(rest, 1).min(rest.len()),
            _ => 1,
        };
        let (token, behind) = rest.split_at(count);
        text.extend_from_slice(token);
        rest = behind;
        let name = std::str::from_utf8(token)
            .unwrap_or_default()
            .trim_matches('"');
        let is_name = byte == b'"' && rest.first() == Some(&b':');
        if is_name && FOREIGN.contains(&name) {
            let value = Values::of(&rest[1..]).value().unwrap_or_default();
            let (foreign, behind) = rest.split_at(1 + value.len());
            text.extend_from_slice(foreign);
            rest = behind;
        } else if is_name && names.contains(name) {
            let digits = rest[1..].iter().take_while(|byte| byte.is_ascii_digit());
            let (millis, behind) = rest.split_at(1 + digits.count());
            match moment(&millis[1..]) {
                Some(moment) => text.extend_from_slice(format!(":\"{moment}\"").as_bytes()),
                None => text.extend_from_slice(millis),
            }
            rest = behind;
        }
    }
    text
}

fn moment(digits: &[u8]) -> Option<Timestamp> {
    let millis = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Timestamp::new(millis).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_alone_are_written_otherwise() {
        let names = BTreeSet::from(["start".to_owned(), "end".to_owned()]);
        let json = r#"{"start":1533254400000,"end":null,"start\"":7,"text":"\"start\":7","quantity":{"start":7,"x":["}",{"end":1}]},"usages":7,"sum":0.10000000000000000001,"items":[{"end":0}],"before":null,"x":{"start":-7}}"#;
        let expected = r#"{"start":"2018-08-03T00:00:00.000Z","end":null,"start\"":7,"text":"\"start\":7","quantity":{"start":7,"x":["}",{"end":1}]},"usages":7,"sum":0.10000000000000000001,"items":[{"end":"1970-01-01T00:00:00.000Z"}],"before":null,"x":{"start":-7}}"#;
        let text = rendered(json.as_bytes(), &names);
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}

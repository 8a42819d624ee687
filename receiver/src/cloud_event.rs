//! CloudEvents 1.0 as events: the attributes are in the body (structured mode) or in headers (binary
//! mode), the fields of the event are its data.

use std::str;

use axum::http::HeaderMap;
use percent_encoding::percent_decode_str;
use sampler_api as api;
use sampler_api::EventType;
use sampler_api::given::Object;
use sampler_domain::{Id, IdError, Timestamp};
use sampler_service::problem::FieldError;

use crate::body::JSON;
use crate::event::Given;
use crate::json::{Errors, MISSING};

/// The beginning of the names of attributes' headers.
const PREFIX: &str = "ce-";

/// The attributes of a CloudEvent in binary mode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes<'r>(&'r HeaderMap);

/// An event in structured mode.
pub(crate) fn structured(given: api::CloudEvent) -> Given {
    let mut errors = Errors::default();
    if given.data_base64.is_some() {
        errors.wrong("data_base64", "The fields must be JSON, in data.");
    }
    if given.datacontenttype.is_some_and(|it| !is_json(&it)) {
        errors.wrong("datacontenttype", "The type must be application/json.");
    }
    let attribute = |name: &str| {
        let given = match name {
            "specversion" => &given.specversion,
            "type" => &given.r#type,
            "source" => &given.source,
            "id" => &given.id,
            _ => &given.time,
        };
        given.clone().ok_or(MISSING)
    };
    let head = head(attribute, |name, detail| errors.wrong(name, detail));
    let data = errors.required("data", given.data);
    Given {
        data: data.map(|Object(data)| data),
        within: Some("data"),
        errors,
        ..head
    }
}

impl<'r> Attributes<'r> {
    /// The attributes in the headers of a request, if it is in binary mode.
    pub(crate) fn of(headers: &'r HeaderMap) -> Option<Self> {
        let is_binary = headers.keys().any(|name| name.as_str().starts_with(PREFIX));
        is_binary.then_some(Self(headers))
    }

    /// The kind of the event, if its `type` names one.
    pub(crate) fn kind(self) -> Option<EventType> {
        kind_of(&self.get("type").ok()?)
    }

    /// The event with this data.
    pub(crate) fn with(self, data: api::Event) -> Given {
        let mut errors = Errors::default();
        let head = head(
            |name| self.get(name),
            |name, detail| errors.add(FieldError::of_header(format!("{PREFIX}{name}"), detail)),
        );
        Given {
            data: Some(data),
            errors,
            ..head
        }
    }

    /// The text of a header, which may be quoted and percent-encoded, or what is wrong with it.
    fn get(self, name: &str) -> Result<String, &'static str> {
        let mut values = self.0.get_all(format!("{PREFIX}{name}")).iter();
        let (value, second) = (values.next(), values.next());
        let value = value.ok_or("The header is missing.")?;
        if second.is_some() {
            return Err("The header must be given once.");
        }
        let text = str::from_utf8(value.as_bytes()).map_err(|_| "The value must be UTF-8.")?;
        let text = unquoted(text.trim());
        let decoded = percent_decode_str(&text).decode_utf8();
        let wrong = "The value must be UTF-8 once it is percent-decoded.";
        Ok(decoded.map_err(|_| wrong)?.into_owned())
    }
}

/// Without the quotes of a quoted string (RFC 9110, section 5.6.4), if it is one.
fn unquoted(text: &str) -> String {
    let inner = text
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    let Some(inner) = inner else {
        return text.to_owned();
    };
    let mut chars = inner.chars();
    let next = || match chars.next() {
        Some('\\') => chars.next(),
        other => other,
    };
    std::iter::from_fn(next).collect()
}

fn is_json(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or(media_type);
    essence.trim().eq_ignore_ascii_case(JSON)
}

/// The kind of event that a `type` names.
pub(crate) fn kind_of(text: &str) -> Option<EventType> {
    let (_, name) = text.rsplit_once('.')?;
    EventType::from_name(name)
}

/// The kind, the id and the time of an event. `attribute` gives an attribute, or says what is wrong with it;
/// `wrong` takes what is wrong.
fn head(
    attribute: impl Fn(&str) -> Result<String, &'static str>,
    mut wrong: impl FnMut(&str, String),
) -> Given {
    let given = |name: &str| attribute(name).map_err(str::to_owned);
    let checked = |error: IdError| format!("The value {error}.");
    let version = given("specversion").and_then(|text| match &*text {
        "1.0" => Ok(()),
        _ => Err("The value must be \"1.0\".".to_owned()),
    });
    let kind = given("type").and_then(|text| {
        let expected = "The value must end in \".start\", \".stop\" or \".update\".";
        kind_of(&text).ok_or(expected.to_owned())
    });
    let source = given("source").and_then(|text| Id::new(text).map_err(checked));
    let id = given("id").and_then(|text| {
        let id = Id::new(text).map_err(checked)?;
        // Two sources may give the same id to different events.
        let joined = source.as_ref().ok().map(|source| Id::joined(source, &id));
        let expected = "The value must be at most 1023 bytes long, together with source.";
        joined.transpose().map_err(|_| expected.to_owned())
    });
    let time = given("time").and_then(|text| {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        let time = Timestamp::from_text(&text).filter(|_| !is_number);
        time.ok_or("The value must be RFC 3339, from 1970 to 9999.".to_owned())
    });
    for (name, error) in [
        ("specversion", version.as_ref().err()),
        ("type", kind.as_ref().err()),
        ("source", source.as_ref().err()),
        ("id", id.as_ref().err()),
        ("time", time.as_ref().err()),
    ] {
        if let Some(detail) = error {
            wrong(name, detail.clone());
        }
    }
    Given {
        kind: kind.ok(),
        id: id.ok().flatten(),
        timestamp: time.ok(),
        ..Given::default()
    }
}

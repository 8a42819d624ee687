//! CloudEvents 1.0 as events: the attributes are in the body (structured mode) or in headers (binary
//! mode), the fields of the event are its data.

use std::str;

use axum::http::HeaderMap;
use percent_encoding::percent_decode_str;
use sampler_api as api;
use sampler_api::EventType;
use sampler_api::given::{Given, Object};
use sampler_domain::{EventId, Id, Timestamp};
use sampler_service::problem::Problem;

use crate::errors::{Errors, Place};
use crate::event::{self, Event, Head};
use crate::json;
use crate::problems::INVALID_EVENT;

/// The beginning of the names of attributes' headers.
const PREFIX: &str = "ce-";

/// The attributes that are read. Any others may be there, and mean nothing here.
const READ: [&str; 5] = ["specversion", "type", "source", "id", "time"];

/// The attributes of a CloudEvent in the order of [`READ`].
#[derive(Debug)]
pub(crate) struct Attributes([Given<String>; READ.len()]);

/// The attributes in the headers of a request, if it is in binary mode.
pub(crate) fn binary(headers: &HeaderMap) -> Option<Attributes> {
    let mut names = headers.keys().map(axum::http::HeaderName::as_str);
    let is_binary = names.any(|name| name.starts_with(PREFIX));
    is_binary.then(|| Attributes(READ.map(|name| from_header(headers, name))))
}

/// The text of a header, which may be quoted and percent-encoded.
fn from_header(headers: &HeaderMap, name: &str) -> Given<String> {
    let mut values = headers.get_all(format!("{PREFIX}{name}")).iter();
    let wrong = |detail: &str| Given::Wrong(detail.to_owned());
    let Some(value) = values.next() else {
        return Given::Missing;
    };
    if values.next().is_some() {
        return wrong("It must be given once.");
    }
    let Ok(text) = str::from_utf8(value.as_bytes()) else {
        return wrong("It must be UTF-8.");
    };
    match percent_decode_str(&unquoted(text.trim())).decode_utf8() {
        Ok(decoded) => Given::Right(decoded.into_owned()),
        Err(_) => wrong("It must be UTF-8 once it is percent-decoded."),
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
    let mut plain = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(char) = chars.next() {
        plain.extend(if char == '\\' {
            chars.next()
        } else {
            Some(char)
        });
    }
    plain
}

pub(crate) fn read_structured(body: &[u8]) -> Result<Event, Problem> {
    let given: api::CloudEvent = json::read(body, &INVALID_EVENT)?;
    let mut errors = Errors::default();
    if given.data_base64.is_some() {
        let detail = "It is not supported: the fields must be JSON, in data.";
        errors.wrong("data_base64", detail);
    }
    if given.datacontenttype.is_some_and(|it| !is_json(&it)) {
        errors.wrong("datacontenttype", "It must be application/json.");
    }
    let attributes = [
        given.specversion,
        given.r#type,
        given.source,
        given.id,
        given.time,
    ];
    // An attribute that is null counts as none.
    let attributes = attributes.map(|it| it.map_or(Given::Missing, Given::Right));
    let (kind, head) = Attributes(attributes).read(&mut errors);
    let data = given.data.map_or(Given::Missing, Given::Right);
    let data = errors.required("data", data).map(|Object(data)| data);
    errors.place = Place::Member("data");
    finish(kind, head, data, errors)
}

pub(crate) fn read_binary(attributes: &Attributes, body: &[u8]) -> Result<Event, Problem> {
    let data: api::Event = json::read(body, &INVALID_EVENT)?;
    let mut errors = Errors {
        place: Place::Headers(PREFIX),
        ..Errors::default()
    };
    let (kind, head) = attributes.read(&mut errors);
    errors.place = Place::Body;
    finish(kind, head, Some(data), errors)
}

fn finish(
    kind: Option<EventType>,
    head: Head,
    data: Option<api::Event>,
    errors: Errors,
) -> Result<Event, Problem> {
    match kind.zip(data) {
        Some((kind, data)) => event::finish(kind, head, data, errors),
        // Which members there should be is not known.
        None => Err(event::invalid(errors.list)),
    }
}

fn is_json(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or(media_type);
    essence.trim().eq_ignore_ascii_case("application/json")
}

/// The kind of event that a `type` names.
pub(crate) fn kind_of(text: &str) -> Option<EventType> {
    let (_, name) = text.rsplit_once('.')?;
    EventType::from_name(name)
}

impl Attributes {
    /// The kind of the event, if its `type` names one.
    pub(crate) fn kind(&self) -> Option<EventType> {
        match &self.0[1] {
            Given::Right(text) => kind_of(text),
            _ => None,
        }
    }

    /// Reads the values, and notes all that are wrong.
    fn read(&self, errors: &mut Errors) -> (Option<EventType>, Head) {
        let [version, kind, source, id, time] = self.0.clone();
        let version = errors.required("specversion", version);
        if version.is_some_and(|version| version != "1.0") {
            errors.wrong("specversion", "It must be \"1.0\".");
        }
        let kind = errors.required("type", kind).and_then(|text| {
            let kind = kind_of(&text);
            if kind.is_none() {
                let detail = "It must end in \".start\", \".stop\" or \".update\".";
                errors.wrong("type", detail);
            }
            kind
        });
        let source = errors.required("source", source);
        let source = source.and_then(|text| errors.id("source", text));
        let own_id = errors.required("id", id);
        let own_id = own_id.and_then(|text| errors.id("id", text));
        let id = source.zip(own_id);
        let id = id.and_then(|(source, own_id)| join(&source, &own_id, errors));
        let timestamp = errors.required("time", time).and_then(|text| {
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
            let time = Timestamp::from_text(&text).filter(|_| !is_number);
            if time.is_none() {
                let detail = "It must be a time as in RFC 3339, from 1970 to 9999.";
                errors.wrong("time", detail);
            }
            time
        });
        (kind, Head { id, timestamp })
    }
}

/// Two sources may give the same id to different events.
fn join(source: &Id, id: &Id, errors: &mut Errors) -> Option<EventId> {
    let joined = Id::joined(source, id).ok();
    if joined.is_none() {
        let most = Id::LEN_MAX - 1;
        errors.wrong(
            "id",
            format!("Together with source it must be at most {most} bytes long."),
        );
    }
    joined
}

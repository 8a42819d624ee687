//! CloudEvents 1.0 as events: the attributes are in the body (structured mode) or in headers (binary
//! mode), the fields of the event are its data.

use std::str;

use axum::http::HeaderMap;
use percent_encoding::percent_decode_str;
use sampler_api as api;
use sampler_api::EventType;
use sampler_api::given::Object;
use sampler_domain::{EventId, Id, Timestamp};
use sampler_service::problem::FieldError;

use crate::event::Given;
use crate::json::Errors;

/// The beginning of the names of attributes' headers.
const PREFIX: &str = "ce-";

/// The attributes of a CloudEvent in binary mode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes<'r>(&'r HeaderMap);

/// An event in structured mode.
pub(crate) fn structured(given: api::CloudEvent) -> Given {
    let mut errors = Errors::default();
    if given.data_base64.is_some() {
        let detail = "It is not supported: the fields must be JSON, in data.";
        errors.wrong("data_base64", detail);
    }
    if given.datacontenttype.is_some_and(|it| !is_json(&it)) {
        errors.wrong("datacontenttype", "It must be application/json.");
    }
    let attribute = |name: &str| {
        let given = match name {
            "specversion" => &given.specversion,
            "type" => &given.r#type,
            "source" => &given.source,
            "id" => &given.id,
            _ => &given.time,
        };
        given.clone().ok_or("It is missing.")
    };
    let mut head = head(attribute, |name, detail| errors.wrong(name, detail));
    let data = errors.required("data", given.data);
    errors.within = Some("data");
    head.data = data.map(|Object(data)| data);
    Given { errors, ..head }
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
        let mut list = Vec::new();
        let head = head(
            |name| self.get(name),
            |name, detail| list.push(FieldError::of_header(format!("{PREFIX}{name}"), detail)),
        );
        let errors = Errors { within: None, list };
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
        let value = value.ok_or("It is missing.")?;
        if second.is_some() {
            return Err("It must be given once.");
        }
        let text = str::from_utf8(value.as_bytes()).map_err(|_| "It must be UTF-8.")?;
        let text = unquoted(text.trim());
        let decoded = percent_decode_str(&text).decode_utf8();
        let wrong = "It must be UTF-8 once it is percent-decoded.";
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
    essence.trim().eq_ignore_ascii_case("application/json")
}

/// The kind of event that a `type` names.
pub(crate) fn kind_of(text: &str) -> Option<EventType> {
    let (_, name) = text.rsplit_once('.')?;
    EventType::from_name(name)
}

/// The kind, the id and the time of an event. `attribute` gives an attribute, or says what is wrong with it.
fn head(
    attribute: impl Fn(&str) -> Result<String, &'static str>,
    mut wrong: impl FnMut(&str, String),
) -> Given {
    let mut read = |name: &str, check: &dyn Fn(&str) -> Option<String>| {
        let text = attribute(name).map_err(str::to_owned);
        let checked = text.and_then(|text| check(&text).map_or(Ok(text), Err));
        checked.map_err(|detail| wrong(name, detail)).ok()
    };
    let unless = |is_right: bool, detail: &str| (!is_right).then(|| detail.to_owned());
    let id = |text: &str| Id::new(text).err().map(|error| format!("It {error}."));
    read("specversion", &|text| {
        unless(text == "1.0", "It must be \"1.0\".")
    });
    let kind = read("type", &|text| {
        let detail = "It must end in \".start\", \".stop\" or \".update\".";
        unless(kind_of(text).is_some(), detail)
    });
    let source = read("source", &id);
    let own_id = read("id", &|text| {
        let joined = || Some(joined(source.as_deref()?, text).is_some());
        let detail = "Together with source it must be at most 1023 bytes long.";
        id(text).or_else(|| unless(joined().unwrap_or(true), detail))
    });
    let time = read("time", &|text| {
        let detail = "It must be a time as in RFC 3339, from 1970 to 9999.";
        unless(time_of(text).is_some(), detail)
    });
    Given {
        kind: kind.and_then(|text| kind_of(&text)),
        id: source
            .zip(own_id)
            .and_then(|(source, id)| joined(&source, &id)),
        timestamp: time.and_then(|text| time_of(&text)),
        data: None,
        errors: Errors::default(),
    }
}

/// Two sources may give the same id to different events.
fn joined(source: &str, id: &str) -> Option<EventId> {
    Id::joined(&Id::new(source).ok()?, &Id::new(id).ok()?).ok()
}

/// A time as in RFC 3339. A number is none.
fn time_of(text: &str) -> Option<Timestamp> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    Timestamp::from_text(text).filter(|_| !is_number)
}

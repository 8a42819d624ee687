//! CloudEvents 1.0 as events: the attributes are in the body (structured mode) or in headers (binary
//! mode), the fields of the event are its data.

use axum::http::HeaderMap;
use percent_encoding::percent_decode_str;
use sampler_api as api;
use sampler_api::EventType;
use sampler_api::given::Object;
use sampler_domain::{EventId, Id, Timestamp};
use sampler_service::problem::{FieldError, Pointer, Problem};

use crate::errors::Errors;
use crate::event::{self, Event, Head};
use crate::json;
use crate::problems::INVALID_EVENT;

/// The beginning of the names of attributes' headers.
const PREFIX: &str = "ce-";

/// The attributes that are read. Any others may be there, and mean nothing here.
const READ: [&str; 5] = ["specversion", "type", "source", "id", "time"];

/// Where attributes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Structured,
    Binary,
}

impl Mode {
    fn wrong(self, name: &str, detail: &str) -> FieldError {
        match self {
            Self::Structured => FieldError::new(Pointer::root().field(name), detail),
            Self::Binary => FieldError::of_header(format!("{PREFIX}{name}"), detail),
        }
    }
}

/// The attributes of a CloudEvent as they were sent, in the order of [`READ`].
#[derive(Debug)]
pub(crate) struct Attributes {
    mode: Mode,
    values: [Result<Option<String>, &'static str>; READ.len()],
}

struct Values {
    kind: Option<EventType>,
    head: Head,
    errors: Vec<FieldError>,
}

/// The attributes in the headers of a request, if it is in binary mode.
pub(crate) fn binary(headers: &HeaderMap) -> Option<Attributes> {
    let mut names = headers.keys().map(axum::http::HeaderName::as_str);
    let is_binary = names.any(|name| name.starts_with(PREFIX));
    is_binary.then(|| Attributes {
        mode: Mode::Binary,
        values: READ.map(|name| from_header(headers, name)),
    })
}

/// The text of a header, which may be quoted and percent-encoded.
fn from_header(headers: &HeaderMap, name: &str) -> Result<Option<String>, &'static str> {
    let mut values = headers.get_all(format!("{PREFIX}{name}")).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err("It must be given once.");
    }
    let text = std::str::from_utf8(value.as_bytes()).map_err(|_| "It must be UTF-8.")?;
    let text = unquoted(text.trim());
    let decoded = percent_decode_str(&text)
        .decode_utf8()
        .map_err(|_| "It must be UTF-8 once it is percent-decoded.")?;
    Ok(Some(decoded.into_owned()))
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
    let mut errors = Vec::new();
    if given.data_base64.is_some() {
        let detail = "It is not supported: the fields must be JSON, in data.";
        errors.push(Mode::Structured.wrong("data_base64", detail));
    }
    if given.datacontenttype.is_some_and(|it| !is_json(&it)) {
        let detail = "It must be application/json.";
        errors.push(Mode::Structured.wrong("datacontenttype", detail));
    }
    let attributes = Attributes {
        mode: Mode::Structured,
        values: [
            given.specversion,
            given.r#type,
            given.source,
            given.id,
            given.time,
        ]
        .map(Ok),
    };
    let Values {
        kind,
        head,
        errors: of_attributes,
    } = attributes.read();
    errors.extend(of_attributes);
    let mut errors = Errors::within("data", errors);
    match (given.data, kind) {
        (Some(Object(data)), Some(kind)) => return event::finish(kind, head, data, errors),
        (None, _) => errors.wrong_at(|data| data, "It is missing."),
        // Which members there should be is not known.
        (Some(_), None) => {}
    }
    Err(event::invalid(errors.into_list()))
}

pub(crate) fn read_binary(attributes: &Attributes, body: &[u8]) -> Result<Event, Problem> {
    let data: api::Event = json::read(body, &INVALID_EVENT)?;
    let Values { kind, head, errors } = attributes.read();
    match kind {
        Some(kind) => event::finish(kind, head, data, Errors::of(errors)),
        None => Err(event::invalid(errors)),
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
        let [_, named, ..] = &self.values;
        kind_of(named.as_ref().ok()?.as_deref()?)
    }

    /// Reads the values, and notes all that are wrong.
    fn read(&self) -> Values {
        let Self { mode, values } = self;
        let mut errors = Vec::new();
        let mut wrong = |name: &str, detail: &str| errors.push(mode.wrong(name, detail));
        let [version, kind, source, id, time] = values.clone();
        if let Some(version) = required("specversion", version, &mut wrong)
            && version != "1.0"
        {
            wrong("specversion", "It must be \"1.0\".");
        }
        let kind = required("type", kind, &mut wrong).and_then(|text| {
            let kind = kind_of(&text);
            if kind.is_none() {
                wrong(
                    "type",
                    "It must end in \".start\", \".stop\" or \".update\".",
                );
            }
            kind
        });
        let source = required("source", source, &mut wrong)
            .and_then(|text| id_of("source", text, &mut wrong));
        let own_id = required("id", id, &mut wrong).and_then(|text| id_of("id", text, &mut wrong));
        let id = source
            .zip(own_id)
            .and_then(|(source, own_id)| join(&source, &own_id, &mut wrong));
        let timestamp = required("time", time, &mut wrong).and_then(|text| {
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
            let time = Timestamp::from_text(&text).filter(|_| !is_number);
            if time.is_none() {
                wrong(
                    "time",
                    "It must be a time as in RFC 3339, from 1970 to 9999.",
                );
            }
            time
        });
        let head = Head { id, timestamp };
        Values { kind, head, errors }
    }
}

fn required(
    name: &str,
    value: Result<Option<String>, &'static str>,
    wrong: &mut impl FnMut(&str, &str),
) -> Option<String> {
    match value {
        Ok(Some(text)) => return Some(text),
        Ok(None) => wrong(name, "It is missing."),
        Err(detail) => wrong(name, detail),
    }
    None
}

fn id_of(name: &str, text: String, wrong: &mut impl FnMut(&str, &str)) -> Option<Id> {
    let id = Id::new(text);
    id.map_err(|error| wrong(name, &format!("It {error}.")))
        .ok()
}

/// Two sources may give the same id to different events.
fn join(source: &Id, id: &Id, wrong: &mut impl FnMut(&str, &str)) -> Option<EventId> {
    let joined = Id::joined(source, id);
    joined
        .map_err(|_| {
            let detail = format!(
                "Together with source it must be at most {} bytes long.",
                Id::LEN_MAX - 1
            );
            wrong("id", &detail);
        })
        .ok()
}

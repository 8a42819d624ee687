//! What a request that is one event says beside its body: headers and the query.

use std::borrow::Cow;

use axum::http::{HeaderMap, HeaderName, Uri};
use sampler_domain::Timestamp;
use sampler_service::problem::{FieldError, Problem};

use crate::event::Event;
use crate::form::{EventFormat, Readable};
use crate::json::Json;
use crate::problems;
use crate::reading::Parameters;

/// Another name of an event's `id`, as many APIs have it (draft-ietf-httpapi-idempotency-key-header).
const KEY: &str = "Idempotency-Key";

/// What a client would like best (RFC 7240).
const PREFER: HeaderName = HeaderName::from_static("prefer");

/// The answer that has the span in it.
pub(crate) const REPRESENTATION: &str = "return=representation";

/// The form of an event, and what its headers add.
pub(crate) struct EventForm {
    form: EventFormat,
    key: Option<String>,
    /// Whether the answer is to have the span in it.
    pub(crate) wants_span: bool,
}

impl EventForm {
    /// The form of an event that comes with these headers.
    ///
    /// # Errors
    /// 400 where the key cannot be read.
    pub(crate) fn of(form: EventFormat, headers: &HeaderMap) -> Result<Self, Problem> {
        let preferences = headers.get_all(PREFER).iter();
        let texts = preferences.filter_map(|value| value.to_str().ok());
        let mut preferences = texts.flat_map(|text| text.split([',', ';']));
        Ok(Self {
            form,
            key: key(headers).map_err(wrong)?,
            wants_span: preferences.any(is_representation),
        })
    }
}

fn is_representation(preference: &str) -> bool {
    let plain: String = preference
        .chars()
        .filter(|char| !char.is_whitespace() && *char != '"')
        .collect();
    plain.eq_ignore_ascii_case(REPRESENTATION)
}

impl From<EventFormat> for EventForm {
    fn from(form: EventFormat) -> Self {
        Self {
            form,
            key: None,
            wants_span: false,
        }
    }
}

impl Readable for EventForm {
    type Read = Event;

    fn resources<'j>(&self, body: &'j Json<'_>) -> Vec<Option<&'j str>> {
        self.form.resources(body)
    }

    fn read(self, mut body: Json<'_>) -> Result<Event, Problem> {
        let Some(key) = self.key else {
            return self.form.read(body);
        };
        let mut form = self.form;
        let fits = match &mut form {
            EventFormat::Binary(attributes) => attributes.give_id(key),
            EventFormat::Addressed(_) | EventFormat::Typed | EventFormat::CloudEvent => {
                give_id(&mut body, key)
            }
        };
        if !fits {
            return Err(wrong(
                "It must be equal to the id of the event, or one of the two left out.",
            ));
        }
        form.read(body)
    }
}

/// Makes the key the id of an event that has none. Says whether the two fit together.
fn give_id(body: &mut Json<'_>, key: String) -> bool {
    let Json::Object(members) = body else {
        return true;
    };
    match members.iter_mut().find(|member| member.0 == "id") {
        Some((_, Json::Text(id))) if id.is_empty() => *id = Cow::Owned(key),
        Some((_, Json::Text(id))) => return *id == key,
        // It is named as wrong anyway.
        Some(_) => {}
        None => members.push((Cow::Borrowed("id"), Json::Text(Cow::Owned(key)))),
    }
    true
}

fn wrong(detail: &'static str) -> Problem {
    let summary = "The header Idempotency-Key and the event do not fit together. Nothing was kept.";
    Problem::new(&problems::INVALID_EVENT, summary).errors([FieldError::of_header(KEY, detail)])
}

/// The key of a request: a string of structured fields (RFC 9651), or a text as it is.
fn key(headers: &HeaderMap) -> Result<Option<String>, &'static str> {
    let mut values = headers.get_all(KEY).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err("It must be given once.");
    }
    let text = value
        .to_str()
        .map_err(|_| "It must be plain ASCII.")?
        .trim();
    let key = match text.strip_prefix('"') {
        Some(rest) => quoted(rest).ok_or("It must be a string of structured fields (RFC 9651).")?,
        None => text.to_owned(),
    };
    let is_bare = !text.starts_with('"');
    if key.is_empty() || (is_bare && key.contains([' ', '\t', ',', ';', '"'])) {
        return Err("It must be a text in quotes, or one word.");
    }
    Ok(Some(key))
}

/// The text of a string behind its first quote. Parameters behind it mean nothing here.
fn quoted(rest: &str) -> Option<String> {
    let (mut text, mut chars) = (String::new(), rest.chars());
    loop {
        match chars.next()? {
            '"' => break,
            '\\' => text.push(chars.next().filter(|char| matches!(char, '"' | '\\'))?),
            char => text.push(char),
        }
    }
    let behind = chars.as_str().trim();
    (behind.is_empty() || behind.starts_with(';')).then_some(text)
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct DryRunQuery {
    /// Windows that end by then are shown.
    pub(crate) until: Option<Timestamp>,
}

impl DryRunQuery {
    /// The dry run that a request asks for; `None` if its events are to be kept. Other parameters are
    /// errors, unless `ignores_others`: the original ignores all parameters at its addresses.
    pub(crate) fn of(uri: &Uri, ignores_others: bool) -> Result<Option<Self>, Problem> {
        if uri.query().is_none() {
            return Ok(None);
        }
        let mut parameters = Parameters::of(uri);
        let expected = "It must be true or false.";
        let is_dry = parameters.parsed("dry_run", expected, |text| text.parse::<bool>().ok());
        let until = parameters.moment("until");
        if is_dry != Some(true) && until.is_some() {
            parameters.complain("until", "It has a meaning with dry_run=true alone.");
        }
        if is_dry == Some(true) || !ignores_others {
            parameters.finish()?;
        } else {
            // What was meant as a dry run must not take effect.
            parameters.complain_of("dry_run", is_misspelt_dry_run);
            parameters.finish_taken()?;
        }
        Ok((is_dry == Some(true)).then_some(Self { until }))
    }
}

fn is_misspelt_dry_run(name: &str) -> bool {
    let letters: String = name
        .chars()
        .filter(char::is_ascii_alphabetic)
        .map(|letter| letter.to_ascii_lowercase())
        .collect();
    letters == "dryrun"
}

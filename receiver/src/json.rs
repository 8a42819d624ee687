//! JSON of requests: read into its document, or refused with the place of what is wrong.

use std::str;

use sampler_api::given::{Object, TWICE};
use sampler_domain::{Id, Timestamp};
use sampler_service::problem::{FieldError, Pointer, Problem, ProblemType};
use serde::Deserialize;
use serde_json::Value;
use serde_json::error::Category;
use serde_path_to_error::{Path, Segment};

use crate::admission;
use crate::problems::{INVALID_BODY, MALFORMED_JSON};

/// The most values in one body. A value of two bytes takes a hundred in memory, so the size of a
/// body alone does not bound its cost.
const VALUES_MAX: usize = 50_000;

pub(crate) const MISSING: &str = "The field is missing.";
const UNKNOWN: &str = "There is no field of this name.";

/// Reads a body that is one document, an object.
///
/// # Errors
/// 400: `malformed-json` if it is no JSON, or names a member twice; `kind` with the place of a member that is
/// unknown, missing or of another type. The error never repeats the body: errors end up in logs.
pub(crate) fn read<'b, T: Deserialize<'b>>(
    body: &'b [u8],
    kind: &'static ProblemType,
) -> Result<T, Problem> {
    // Each value takes a byte at least.
    if body.len() > VALUES_MAX && admission::values(body) > VALUES_MAX {
        let detail = "The body holds more than 50,000 values.";
        return Err(Problem::new(&MALFORMED_JSON, detail));
    }
    // The texts of a text need not be checked one by one.
    let text = str::from_utf8(body).ok();
    let read = text.and_then(|text| serde_json::from_str(text).ok());
    let object = read.ok_or_else(|| refusal::<Object<T>>(body, kind));
    object.map(|Object(document)| document)
}

/// Requires that a body is JSON, down to its numbers and texts.
pub(crate) fn require_json(body: &[u8]) -> Result<(), Problem> {
    let read = serde_json::from_slice::<Value>(body);
    read.map(drop).map_err(|error| malformed(body, &error))
}

/// A body that is JSON, but not what is expected.
pub(crate) fn invalid(
    kind: &'static ProblemType,
    errors: impl IntoIterator<Item = FieldError>,
) -> Problem {
    let what = if kind == &INVALID_BODY {
        "done"
    } else {
        "kept"
    };
    let detail = format!("The body is JSON, but not what is expected here. Nothing was {what}.");
    Problem::new(kind, detail).errors(errors)
}

/// Why a body cannot be read. It is read once more, to find the place: most bodies are right.
fn refusal<'b, T: Deserialize<'b>>(body: &'b [u8], kind: &'static ProblemType) -> Problem {
    if let Err(problem) = require_json(body) {
        return problem;
    }
    let mut reader = serde_json::Deserializer::from_slice(body);
    match serde_path_to_error::deserialize::<_, T>(&mut reader) {
        Ok(_) => Problem::internal(),
        Err(error) => structural(error.path(), &error.inner().to_string(), kind),
    }
}

/// The problem of a body that is JSON of another structure. Of the reader's text only that is used which does not
/// depend on the body.
fn structural(path: &Path, text: &str, kind: &'static ProblemType) -> Problem {
    let at = pointer(path);
    let named = |before: &str| text.strip_prefix(before)?.split('`').next();
    if let Some(name) = named("duplicate field `") {
        return twice(at.field(name));
    }
    if text.starts_with(TWICE) {
        return twice(at);
    }
    let error = if let Some(name) = named("missing field `") {
        FieldError::new(at.field(name), MISSING)
    } else if text.starts_with("unknown field `") {
        FieldError::new(at, UNKNOWN)
    } else {
        FieldError::new(at, format!("The value must be {}.", expected(text)))
    };
    invalid(kind, [error])
}

/// What the reader expected, in our words.
fn expected(text: &str) -> &str {
    let expected = text.rsplit_once(", expected ").map_or("", |split| split.1);
    match expected.split(" at line ").next().unwrap_or_default() {
        "a sequence" => "a list",
        "a boolean" => "true or false",
        "f64" => "a number",
        other => other,
    }
}

fn pointer(path: &Path) -> Pointer {
    let segments = path.iter();
    segments.fold(Pointer::root(), |pointer, segment| match segment {
        Segment::Seq { index } => pointer.index(*index),
        Segment::Map { key } => pointer.field(key),
        Segment::Enum { .. } | Segment::Unknown => pointer,
    })
}

fn twice(pointer: Pointer) -> Problem {
    let detail = "An object of the body has two members of one name.";
    let error = FieldError::new(pointer, "The field is there twice.");
    Problem::new(&MALFORMED_JSON, detail).errors([error])
}

/// The problem of a body that is no JSON.
pub(crate) fn malformed(body: &[u8], error: &serde_json::Error) -> Problem {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Problem::new(&MALFORMED_JSON, "The body is empty.");
    }
    // Only these two texts are read: the rest may quote the body.
    let text = error.to_string();
    let what = if error.classify() == Category::Eof {
        "The body ends in the middle of its JSON"
    } else if text.starts_with("recursion limit exceeded") {
        "The body's JSON is nested too deep"
    } else if text.starts_with("number out of range") {
        "The body holds a number that is out of range"
    } else {
        "The body is not JSON"
    };
    let (line, column) = (error.line(), error.column());
    let detail = format!("{what}, at line {line}, column {column}.");
    Problem::new(&MALFORMED_JSON, detail)
}

/// The wrong values of an object of a body, which are told together.
#[derive(Default)]
pub(crate) struct Errors(Vec<FieldError>);

impl Errors {
    /// Says what is wrong with a member, in a full sentence.
    pub(crate) fn wrong(&mut self, name: &str, detail: impl Into<String>) {
        self.add(FieldError::new(Pointer::root().field(name), detail));
    }

    pub(crate) fn add(&mut self, error: FieldError) {
        self.0.push(error);
    }

    /// Adds what is wrong within a member, or within an element of a list.
    pub(crate) fn nest(&mut self, name: &(impl ToString + ?Sized), within: Self) {
        for mut error in within.0 {
            let inner = error.pointer.as_deref().unwrap_or("#");
            let outer = String::from(Pointer::root().field(&name.to_string()));
            error.pointer = Some(outer + inner.trim_start_matches('#'));
            self.add(error);
        }
    }

    /// Adds what is wrong within a member, or without one with the object itself.
    pub(crate) fn join(&mut self, name: Option<&str>, other: Self) {
        match name {
            Some(name) => self.nest(name, other),
            None => self.0.extend(other.0),
        }
    }

    /// A member that must be there.
    pub(crate) fn required<T>(&mut self, name: &str, given: Option<T>) -> Option<T> {
        if given.is_none() {
            self.wrong(name, MISSING);
        }
        given
    }

    /// A member that must not be there.
    pub(crate) fn unknown<T>(&mut self, name: &str, given: Option<&T>) {
        if given.is_some() {
            self.wrong(name, UNKNOWN);
        }
    }

    /// An id.
    pub(crate) fn id(&mut self, name: &str, text: String) -> Option<Id> {
        let id = Id::new(text);
        id.map_err(|error| self.wrong(name, format!("The value {error}.")))
            .ok()
    }

    /// A time.
    pub(crate) fn time(&mut self, name: &str, given: &Value) -> Option<Timestamp> {
        time(given).map_err(|detail| self.wrong(name, detail)).ok()
    }

    /// Nothing, unless something is wrong.
    pub(crate) fn finish(self, kind: &'static ProblemType) -> Result<(), Problem> {
        if self.0.is_empty() {
            return Ok(());
        }
        Err(self.refusal(kind))
    }

    pub(crate) fn refusal(self, kind: &'static ProblemType) -> Problem {
        invalid(kind, self.0)
    }
}

/// Milliseconds since the epoch as a number, or RFC 3339 as a text. A number as a text is a mistake, as it has
/// always been.
fn time(given: &Value) -> Result<Timestamp, String> {
    let millis = match given {
        Value::Number(number) => number.as_i64().or_else(|| whole(number.as_f64()?)),
        Value::String(text) if !text.bytes().all(|byte| byte.is_ascii_digit()) => {
            Timestamp::from_text(text).map(Timestamp::as_millis)
        }
        _ => None,
    };
    let expected = "The value must be a whole number of milliseconds since the epoch, or RFC 3339 \
                    with an offset.";
    Timestamp::new(millis.ok_or(expected)?)
        .map_err(|error| format!("The time is out of range: {error}."))
}

/// JSON knows one kind of number: 1.5e12 and 3.0 are whole. A double beyond `i64` is out of range as a time, too.
fn whole(double: f64) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "held at the limits of i64")]
    (double.fract() == 0.0).then_some(double as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault 17 of the original: parse errors echoed the body.
    #[test]
    fn fault_17_what_is_wrong_is_said_without_repeating_it() {
        for value in [
            r#"", expected secret""#,
            r#""duplicate field `secret`, expected secret""#,
        ] {
            let body = format!(r#"{{"reason":[{value}]}}"#);
            let read = read::<sampler_api::Reason>(body.as_bytes(), &INVALID_BODY);
            let problem = sampler_api::Problem::from(read.unwrap_err());
            assert_eq!(problem.errors.len(), 1);
            assert_eq!(problem.errors[0].detail, "The value must be a string.");
            assert_eq!(problem.errors[0].pointer.as_deref(), Some("#/reason"));
        }
    }
}

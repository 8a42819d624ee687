//! JSON of requests: read into its document, or refused with the place of what is wrong.

use std::str;

use sampler_api::given::{Object, TWICE};
use sampler_service::problem::{FieldError, Pointer, Problem, ProblemType};
use serde::Deserialize;
use serde_json::Value;
use serde_json::error::Category;
use serde_path_to_error::{Path, Segment};

use crate::problems::{INVALID_BODY, MALFORMED_JSON};

/// The most values in one body. A value of two bytes takes a hundred in memory, so the size of a
/// body alone does not bound its cost.
const VALUES_MAX: usize = 50_000;

/// Reads a body that is one document, an object.
///
/// # Errors
/// 400: `malformed-json` if it is no JSON, or names a member twice; `kind` with the place of a member that is
/// unknown, missing or of another type. The error never repeats the body: errors end up in logs.
pub(crate) fn read<'b, T: Deserialize<'b>>(
    body: &'b [u8],
    kind: &'static ProblemType,
) -> Result<T, Problem> {
    limit_values(body)?;
    let read = match str::from_utf8(body) {
        // Its texts need not be checked one by one.
        Ok(text) => serde_json::from_str(text),
        Err(_) => serde_json::from_slice(body),
    };
    let object = read.map_err(|_| refusal::<Object<T>>(body, kind));
    object.map(|Object(document)| document)
}

/// Reads a body as it is. This is where a body is refused as malformed whose document does not look at each of
/// its values.
pub(crate) fn value(body: &[u8]) -> Result<Value, Problem> {
    limit_values(body)?;
    serde_json::from_slice(body).map_err(|error| malformed(body, &error))
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
    if let Err(problem) = value(body) {
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
        FieldError::new(at.field(name), "It is missing.")
    } else if text.starts_with("unknown field `") {
        FieldError::new(at, "There is no field of this name.")
    } else {
        FieldError::new(at, format!("It must be {}.", expected(text)))
    };
    invalid(kind, [error])
}

/// What the reader expected, in our words.
fn expected(text: &str) -> &str {
    let expected = text.rsplit_once(", expected ").map_or("", |split| split.1);
    match expected
        .rsplit_once(" at line ")
        .map_or(expected, |it| it.0)
    {
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
    let error = FieldError::new(pointer, "It is there twice.");
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

/// Refuses a body of too many values. A short one cannot have so many.
fn limit_values(body: &[u8]) -> Result<(), Problem> {
    if body.len() < 2 * VALUES_MAX || values(body) <= VALUES_MAX {
        return Ok(());
    }
    let detail = "The body holds more than 50,000 values.";
    Err(Problem::new(&MALFORMED_JSON, detail))
}

/// How many values a body has: each but the first follows a comma, or what opens a container.
fn values(body: &[u8]) -> usize {
    let (mut values, mut is_text, mut is_escaped, mut is_opened) = (1, false, false, false);
    for byte in body {
        if is_text {
            is_text = is_escaped || *byte != b'"';
            is_escaped = !is_escaped && *byte == b'\\';
            continue;
        }
        let is_close = matches!(byte, b']' | b'}');
        if is_opened && !is_close && !byte.is_ascii_whitespace() {
            (values, is_opened) = (values + 1, false);
        }
        match byte {
            b'"' => is_text = true,
            b',' => values += 1,
            b'[' | b'{' => is_opened = true,
            b']' | b'}' => is_opened = false,
            _ => {}
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_as_a_reader_does() {
        for (body, count) in [
            ("1", 1),
            ("[ ]", 1),
            ("{}", 1),
            ("[[],{ },[1]]", 5),
            (r#"{"a":[1,2,{"b":"c,[\",\\"}],"d":null}"#, 7),
            (r#"["\\",",","\",[{"]"#, 4),
        ] {
            assert_eq!(values(body.as_bytes()), count, "{body}");
        }
    }

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
            assert_eq!(problem.errors[0].detail, "It must be a string.");
            assert_eq!(problem.errors[0].pointer.as_deref(), Some("#/reason"));
        }
    }
}

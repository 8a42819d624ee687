//! Documents of the API in the words of a table.

use sampler_verify::Target;
use sampler_verify::moment::{InWords, Millis};
use serde_json::Value;

use crate::failure::Failure;
use crate::output::{print, printable};

/// Shown for an absent value.
const NOTHING: &str = "-";

/// Prints a document as JSON, for machines.
pub(crate) fn print_json(document: &Value) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(document);
    let text = text.map_err(|error| Failure::Input(error.to_string()))?;
    print(&format!("{text}\n"))
}

/// A value at a JSON Pointer, as a text.
pub(crate) fn text(document: &Value, pointer: &str) -> String {
    match document.pointer(pointer) {
        None | Some(Value::Null) => NOTHING.to_owned(),
        Some(Value::String(text)) => printable(text),
        Some(other) => printable(&other.to_string()),
    }
}

/// An integer at a JSON Pointer.
pub(crate) fn integer(document: &Value, pointer: &str) -> Option<i64> {
    document.pointer(pointer).and_then(Value::as_i64)
}

/// A moment at a JSON Pointer.
pub(crate) fn moment(document: &Value, pointer: &str) -> String {
    let moment = integer(document, pointer);
    moment.map_or_else(
        || text(document, pointer),
        |moment| InWords(moment).to_string(),
    )
}

/// A length of time at a JSON Pointer, which is in ms.
pub(crate) fn length(document: &Value, pointer: &str) -> String {
    let length = integer(document, pointer);
    length.map_or_else(|| text(document, pointer), length_in_words)
}

/// A length of time as hours, minutes, seconds and milliseconds: nothing is rounded.
pub(crate) fn length_in_words(length: Millis) -> String {
    let sign = if length < 0 { "-" } else { "" };
    let millis = length.unsigned_abs();
    let (seconds, minutes, hours) = (
        millis / 1_000 % 60,
        millis / 60_000 % 60,
        millis / 3_600_000,
    );
    format!(
        "{sign}{hours}:{minutes:02}:{seconds:02}.{:03}",
        millis % 1_000
    )
}

/// The resource, plan and instance of a target.
pub(crate) fn target(document: &Value, pointer: &str) -> String {
    let part = |name: &str| text(document, &format!("{pointer}/{name}"));
    let [.., resource, plan, instance] = Target::FIELDS;
    format!("{}/{}/{}", part(resource), part(plan), part(instance))
}

/// The measures of a list, with their quantities or amounts.
pub(crate) fn measures(document: &Value, pointer: &str, what: &str) -> String {
    let measures = document.pointer(pointer).and_then(Value::as_array);
    let one = |measure: &Value| {
        let (name, quantity) = (text(measure, "/measure"), text(measure, what));
        format!("{name} {quantity}")
    };
    let all: Vec<String> = measures.into_iter().flatten().map(one).collect();
    if all.is_empty() {
        return NOTHING.to_owned();
    }
    all.join(", ")
}

/// Names and values, one pair on a line, the values below each other.
pub(crate) fn pairs(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines = pairs
        .iter()
        .map(|(name, value)| format!("{name:width$}  {value}\n"));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lengths_are_exact() {
        assert_eq!(length_in_words(0), "0:00:00.000");
        assert_eq!(length_in_words(281_712_345), "78:15:12.345");
        assert_eq!(length_in_words(-1_689_000), "-0:28:09.000");
        assert_eq!(length_in_words(i64::MIN), "-2562047788015:12:55.808");
    }

    #[test]
    fn what_is_not_there_is_a_dash() {
        let document = json!({ "a": null, "b": { "c": 5, "d": "x\u{1b}" } });
        assert_eq!(text(&document, "/a"), "-");
        assert_eq!(text(&document, "/z"), "-");
        assert_eq!(text(&document, "/b/c"), "5");
        assert_eq!(text(&document, "/b/d"), "x\u{fffd}");
        assert_eq!(moment(&document, "/b/c"), "1970-01-01T00:00:00.005Z");
        assert_eq!(moment(&document, "/a"), "-");
        assert_eq!(measures(&document, "/a", "/quantity"), "-");
    }

    #[test]
    fn values_stand_below_each_other() {
        assert_eq!(
            pairs(&[("a", "1".to_owned()), ("bcd", "2".to_owned())]),
            "a    1\nbcd  2\n"
        );
    }
}

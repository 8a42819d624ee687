//! Documents of the API in words: tables of lists, and pairs of single ones.

use std::fmt::Display;
use std::process::ExitCode;

use sampler_api::{Measure, Target};
use sampler_verify::moment::{InWords, Millis};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::Answer;
use crate::failure::Failure;
use crate::listing::Common;
use crate::output::{print, print_json_text, printable};
use crate::table::table;

/// Shown for an absent value.
const NOTHING: &str = "-";

/// How a member is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) enum As {
    Text,
    /// Aligned to the right.
    Number,
    /// Milliseconds since 1970.
    Time,
    /// Milliseconds between two times, aligned to the right.
    Length,
    Target,
    /// Something else.
    Words(fn(&Value) -> String),
}

/// A column: its name, the pointer of the member that it shows, and how.
pub(crate) type Column = (&'static str, &'static str, As);

/// Items as a table, or that there are none.
pub(crate) fn table_of(items: &[Value], columns: &[Column], nothing: &str) -> String {
    if items.is_empty() {
        return format!("{nothing}\n");
    }
    let header: Vec<&str> = columns.iter().map(|(name, ..)| *name).collect();
    let row = |item| -> Vec<String> { columns.iter().map(|it| cell(item, it)).collect() };
    let rows = items.iter().map(row);
    let is_left = |(_, (.., how)): &(usize, &Column)| !matches!(how, As::Number | As::Length);
    let left = columns.iter().enumerate().filter(is_left);
    let left: Vec<usize> = left.map(|(number, _)| number).collect();
    format!("{}\n", table(header, rows, &left))
}

/// The members of a document with their names.
pub(crate) fn facts(document: &Value, columns: &[Column]) -> Vec<(&'static str, String)> {
    let facts = columns.iter();
    facts
        .map(|column| (column.0, cell(document, column)))
        .collect()
}

fn cell(item: &Value, (_, pointer, how): &Column) -> String {
    let Some(value) = item.pointer(pointer).filter(|value| !value.is_null()) else {
        return NOTHING.to_owned();
    };
    let shown = match how {
        As::Text | As::Number => None,
        As::Time => value.as_i64().map(|at| InWords(at).to_string()),
        As::Length => value.as_i64().map(length_in_words),
        As::Target => Target::deserialize(value).ok().map(|it| target(&it)),
        As::Words(words) => Some(words(value)),
    };
    shown.unwrap_or_else(|| match value {
        Value::String(text) => printable(text),
        value => printable(&value.to_string()),
    })
}

pub(crate) fn print_json(document: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(document)
        .map_err(|error| Failure::Input(error.to_string()))?;
    print_json_text(&text)
}

/// Prints an answer as it is, for machines, or in words.
pub(crate) fn show_answer<T: DeserializeOwned>(
    common: &Common,
    answer: &Answer,
    path: &[&str],
    words: impl FnOnce(&T) -> String,
) -> Result<ExitCode, Failure> {
    if common.json {
        print_json(&answer.read::<Value>(path)?)?;
    } else {
        print(&words(&answer.read(path)?))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn text(value: Option<impl Display>) -> String {
    value.map_or_else(|| NOTHING.to_owned(), |value| printable(&value.to_string()))
}

/// A length of time as hours, minutes, seconds and milliseconds: nothing is rounded.
pub(crate) fn length_in_words(length: Millis) -> String {
    let sign = if length < 0 { "-" } else { "" };
    let millis = length.unsigned_abs();
    let (hours, minutes, seconds) = (
        millis / 3_600_000,
        millis / 60_000 % 60,
        millis / 1_000 % 60,
    );
    format!(
        "{sign}{hours}:{minutes:02}:{seconds:02}.{:03}",
        millis % 1_000
    )
}

/// The resource, plan and instance of a target.
pub(crate) fn target(target: &Target) -> String {
    let ids = [
        &target.resource_id,
        &target.plan_id,
        &target.resource_instance_id,
    ];
    ids.map(|id| printable(id)).join("/")
}

pub(crate) fn measures(measures: &[Measure]) -> String {
    named(measures.iter().map(|it| {
        let quantity = it.quantity.as_str().map(str::to_owned);
        let quantity = quantity.unwrap_or_else(|| it.quantity.to_string());
        (it.measure.as_str(), quantity)
    }))
}

/// Names, each with its value.
pub(crate) fn named<'a>(pairs: impl Iterator<Item = (&'a str, String)>) -> String {
    let all: Vec<String> = pairs
        .map(|(name, value)| format!("{} {}", printable(name), printable(&value)))
        .collect();
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
    fn members_are_shown_as_what_they_are() {
        let item = json!({ "at": 5, "length": -1_000, "word": "x\u{1b}", "none": null, "in": { "n": 1.5 } });
        for (pointer, how, shown) in [
            ("/at", As::Time, "1970-01-01T00:00:00.005Z"),
            ("/length", As::Length, "-0:00:01.000"),
            ("/word", As::Text, "x\u{fffd}"),
            ("/word", As::Time, "x\u{fffd}"),
            ("/in/n", As::Number, "1.5"),
            ("/none", As::Text, "-"),
            ("/absent", As::Target, "-"),
            ("/at", As::Words(|at| format!("{at}!")), "5!"),
        ] {
            assert_eq!(cell(&item, &("", pointer, how)), shown, "{pointer}");
        }
        let columns = [("a", "/at", As::Number), ("bcd", "/length", As::Length)];
        assert_eq!(
            pairs(&facts(&item, &columns)),
            "a    5\nbcd  -0:00:01.000\n"
        );
        assert_eq!(table_of(&[], &columns, "No."), "No.\n");
    }
}

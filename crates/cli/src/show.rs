//! Documents of the API in words: tables of lists, and the members of single ones.

use std::process::ExitCode;

use comfy_table::presets;
use comfy_table::{CellAlignment, Row, Table};
use sampler_api::Amount;
use sampler_verify::Target;
use sampler_verify::moment::{InWords, Millis};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::failure::Failure;
use crate::output::{print, print_json_text, printable, wants_json};

/// Shown for an absent value.
const NOTHING: &str = "-";
/// The members that are times, in ms since 1970.
const TIMES: &str =
    "accepted_at at back_to closes_at due_at end oldest sampled_to since start timestamp";
/// The members that are lengths of time, in ms.
const LENGTHS: &str = "billed duration unsampled";

/// Items as a table, or that there are none. The columns are the pointers of members, without the first slash and
/// separated by spaces.
pub(crate) fn table_of(items: &[Value], columns: &str, nothing: &str) -> String {
    if items.is_empty() {
        return format!("{nothing}\n");
    }
    let columns: Vec<String> = columns.split(' ').map(|it| format!("/{it}")).collect();
    let header: Vec<String> = columns
        .iter()
        .map(|it| last_of(it).replace('_', " "))
        .collect();
    let rows = items.iter().map(|item| -> Vec<String> {
        let member = |pointer| item.pointer(pointer).unwrap_or(&Value::Null);
        columns.iter().map(|it| words(it, member(it))).collect()
    });
    let is_left = |pointer: &str| {
        let has_number = |item: &Value| item.pointer(pointer).is_some_and(Value::is_number);
        is_one_of(TIMES, pointer) || !items.iter().any(has_number)
    };
    let left = (0..columns.len()).filter(|place| is_left(&columns[*place]));
    let left: Vec<usize> = left.collect();
    format!("{}\n", table(header, rows, &left))
}

/// Cells in columns; those of the given numbers to the left, the others to the right.
pub(crate) fn table<R: Into<Row>>(
    header: impl Into<Row>,
    rows: impl Iterator<Item = R>,
    left: &[usize],
) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(header)
        .add_rows(rows);
    for (number, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if !left.contains(&number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

/// All members of a document, each on a line, those of nested ones with a point before their names.
pub(crate) fn facts(document: &Value) -> String {
    let mut lines = Vec::new();
    add_facts("", document, &mut lines);
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines = lines.iter();
    let lines = lines.map(|(name, value)| format!("{name:width$}  {value}\n"));
    lines.collect()
}

fn add_facts(before: &str, document: &Value, lines: &mut Vec<(String, String)>) {
    for (name, value) in document.as_object().into_iter().flatten() {
        let name = format!("{before}{}", printable(name));
        if value.is_object() {
            add_facts(&format!("{name}."), value, lines);
        } else {
            let words = words(&name, value);
            lines.push((name, words));
        }
    }
}

/// A member in words. The last part of its name, or of its pointer, says what its numbers mean.
fn words(name: &str, value: &Value) -> String {
    match (value, value.as_i64()) {
        (Value::Null, _) => NOTHING.to_owned(),
        (_, Some(at)) if is_one_of(TIMES, name) => InWords(at).to_string(),
        (_, Some(length)) if is_one_of(LENGTHS, name) => length_in_words(length),
        (Value::String(text), _) => printable(text),
        (Value::Array(items), _) if items.is_empty() => NOTHING.to_owned(),
        (Value::Array(items), _) => joined(items.iter().map(|it| words("", it)), ", "),
        (Value::Object(members), _) => {
            let target = Target::deserialize(value).map(|target| target.to_string());
            let known = target.ok().or_else(|| by_the_hour(value));
            match known {
                Some(words) => printable(&words),
                None => joined(members.values().map(|it| words("", it)), " "),
            }
        }
        _ => printable(&value.to_string()),
    }
}

/// An amount as it is billed: by the hour, where it has a unit, with the exact one behind it.
fn by_the_hour(value: &Value) -> Option<String> {
    let amount = Amount::deserialize(value).ok()?;
    let (name, hourly) = (amount.hourly()?.name, amount.by_the_hour()?);
    let (exact, unit) = (amount.amount.as_ref()?, amount.unit.as_ref()?);
    let measure = &amount.measure;
    Some(format!("{measure} {hourly} {name} ({exact} {unit}·ms)"))
}

fn joined(words: impl Iterator<Item = String>, separator: &str) -> String {
    words.collect::<Vec<_>>().join(separator)
}

fn is_one_of(names: &str, name: &str) -> bool {
    names.split(' ').any(|it| it == last_of(name))
}

/// The last part of a name or a pointer.
fn last_of(name: &str) -> &str {
    name.rsplit(['/', '.']).next().unwrap_or(name)
}

pub(crate) fn print_json(document: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(document)
        .map_err(|error| Failure::Input(error.to_string()))?;
    print_json_text(&text)
}

/// Prints a document for machines, or words for people.
pub(crate) fn show(
    document: &impl Serialize,
    words: impl FnOnce() -> String,
) -> Result<ExitCode, Failure> {
    if wants_json() {
        print_json(document)?;
    } else {
        print(&words())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The exit code of a question that is answered: no is 1.
pub(crate) fn exit_code(is_yes: bool) -> ExitCode {
    ExitCode::from(u8::from(!is_yes))
}

/// A length of time as hours, minutes, seconds and milliseconds: nothing is rounded.
pub(crate) fn length_in_words(length: Millis) -> String {
    let sign = if length < 0 { "-" } else { "" };
    let millis = length.unsigned_abs();
    let (seconds, millis) = (millis / 1_000, millis % 1_000);
    let (minutes, seconds) = (seconds / 60, seconds % 60);
    let (hours, minutes) = (minutes / 60, minutes % 60);
    format!("{sign}{hours}:{minutes:02}:{seconds:02}.{millis:03}")
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
        let measures =
            json!([{ "measure": "memory", "quantity": 512 }, { "measure": "x", "quantity": "y" }]);
        let document = json!({
            "at": 5, "word": "x\u{1b}", "none": null, "measured_usage": measures,
            "proof": { "billed": -1_000, "usages": 3, "duration": 1.5 },
        });
        let expected = "\
at              1970-01-01T00:00:00.005Z
word            x\u{fffd}
none            -
measured_usage  memory 512, x y
proof.billed    -0:00:01.000
proof.usages    3
proof.duration  1.5
";
        assert_eq!(facts(&document), expected);
        let columns = "at proof/billed is_other";
        let table = table_of(&[document], columns, "None.");
        let words: Vec<&str> = table.split("  ").filter(|it| !it.is_empty()).collect();
        assert_eq!(words.len(), 5, "{table}");
        let row = "1970-01-01T00:00:00.005Z  -0:00:01.000  -";
        assert!(table.contains(row), "{table}");
        assert_eq!(table_of(&[], columns, "None."), "None.\n");
    }
}

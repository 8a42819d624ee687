//! A provider's events, as `examples/README.md` describes them.

mod ndjson;
mod table;

use std::io::{BufRead, BufReader, Read};

use serde_json::error::Category;

use crate::Target;
use crate::moment::Millis;
use crate::quantity::Measure;

/// What some programs write in front of a text.
const BYTE_ORDER_MARK: char = '\u{feff}';

#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Its line in the file, from 1.
    pub line: u64,
    pub kind: EventKind,
    pub target: Target,
    /// The provider's id of the event.
    pub id: Option<String>,
    pub moment: Millis,
}

#[derive(Clone, Debug, PartialEq)]
pub enum EventKind {
    Start(Vec<Measure>),
    Stop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// An event on each line.
    Ndjson,
    /// A span in each row.
    Csv,
}

/// The columns of a table whose meaning is not in their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// The columns that are measures, beside those whose names begin with `measure:`.
    pub measures: Vec<String>,
    /// Those that mean nothing here.
    pub ignored: Vec<String>,
}

impl Columns {
    /// Only a table has columns.
    pub fn check(&self, format: Format) -> Result<(), String> {
        if format == Format::Csv || *self == Self::default() {
            return Ok(());
        }
        Err("--measures and --ignore name columns, which only a CSV has".to_owned())
    }
}

impl Format {
    /// The format that files of this name have.
    pub fn of_name(name: &str) -> Option<Self> {
        let (_, extension) = name.rsplit_once('.')?;
        match extension.to_ascii_lowercase().as_str() {
            "csv" => Some(Self::Csv),
            "ndjson" | "jsonl" => Some(Self::Ndjson),
            _ => None,
        }
    }
}

impl EventKind {
    fn start(measures: Vec<Measure>) -> Result<Self, String> {
        for (place, Measure { measure, .. }) in measures.iter().enumerate() {
            if measures[..place]
                .iter()
                .any(|before| before.measure == *measure)
            {
                return Err(format!("the measure {measure:?} is repeated"));
            }
        }
        Ok(Self::Start(measures))
    }
}

/// Reads all events of a file, in its order. Only a table has columns. Relative times (`day`, `at`) count from `now`.
pub fn read(
    input: impl Read,
    format: Format,
    columns: &Columns,
    now: Millis,
) -> Result<Vec<Event>, String> {
    columns.check(format)?;
    let mut input = BufReader::new(input);
    check_text(&mut input)?;
    let events = match format {
        Format::Ndjson => ndjson::read(input, now)?,
        Format::Csv => table::read(input, columns)?,
    };
    if events.is_empty() {
        return Err("there are no events in it".to_owned());
    }
    Ok(events)
}

/// Looks at the first line, or as much of it as is there, and takes nothing.
pub fn check_text(input: &mut impl BufRead) -> Result<(), String> {
    let first = input.fill_buf().map_err(|error| error.to_string())?;
    let line = first.split(|byte| *byte == b'\n').next().unwrap_or(first);
    let is_control = |byte: &u8| byte.is_ascii_control() && !b"\t\r".contains(byte);
    // Its last character may be cut off.
    let is_broken = std::str::from_utf8(line).is_err_and(|error| error.error_len().is_some());
    if is_broken || line.iter().any(is_control) {
        let what = "it is not text (UTF-8): unpack it, or save the sheet as CSV";
        return Err(what.to_owned());
    }
    Ok(())
}

/// A mistake of JSON without its position in the line, where that is already reported: the parser sees one line,
/// and says that it is the first.
pub fn json_in_words(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let what = text.strip_suffix(&place).unwrap_or(&text);
    match error.classify() {
        Category::Data | Category::Io => what.to_owned(),
        Category::Eof => format!("not JSON: it ends too early ({what})"),
        Category::Syntax => {
            // "expected ident" says the same to people.
            let what = what.replace("expected ident", "expected value");
            let what = what.replace("expected value", "expected a value");
            format!("not JSON: {what} at column {}", error.column())
        }
    }
}

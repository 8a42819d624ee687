//! A provider's events, as `examples/README.md` describes them.

mod content;
mod ndjson;
mod table;

use std::io::{BufRead, Read};

use crate::Target;
use crate::moment::{Millis, MomentError};
use crate::quantity::Measure;
pub use content::{check_text, json_in_words};

/// The longest line, in bytes; the receiver takes no larger body either.
const LINE_LEN_MAX: u64 = 1 << 20;
/// What some programs write in front of a text.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

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

/// The origin and the shift of the times in a file.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileTimes {
    /// The time from which relative times (`day`, `at`) count.
    pub now: Millis,
    /// Added to each time, but not to those of `CloudEvents`.
    pub offset: Millis,
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
    pub fn check(&self, format: Format) -> Result<(), EventsError> {
        if format == Format::Csv || *self == Self::default() {
            return Ok(());
        }
        let what = Wrong::other("--measures and --ignore name columns, which only a CSV has");
        Err(EventsError { line: None, what })
    }
}

/// A file cannot be read as events.
#[derive(Debug, thiserror::Error)]
#[error("{}{what}", line.map(|line| format!("line {line}: ")).unwrap_or_default())]
pub struct EventsError {
    pub line: Option<u64>,
    pub what: Wrong,
}

/// The fault of a file of events.
#[derive(Debug, thiserror::Error)]
pub enum Wrong {
    #[error("{0}")]
    Read(#[from] std::io::Error),
    /// A row is not valid.
    #[error("{0}")]
    Csv(#[from] csv::Error),
    /// A line is not an event.
    #[error("{}", json_in_words(.0))]
    Json(#[from] serde_json::Error),
    #[error("{0}")]
    Moment(#[from] MomentError),
    #[error("{0}")]
    Other(String),
}

impl Wrong {
    fn other(what: impl Into<String>) -> Self {
        Self::Other(what.into())
    }

    fn in_line(self, line: u64) -> EventsError {
        EventsError {
            line: Some(line),
            what: self,
        }
    }
}

impl FileTimes {
    fn moved(self, moment: Millis) -> Result<Millis, Wrong> {
        let moved = moment.checked_add(self.offset);
        Ok(moved.ok_or(MomentError::TooFar)?)
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

/// Reads all events of a file, in its order. Only a table has columns.
pub fn read(
    input: impl Read,
    format: Format,
    columns: &Columns,
    reading: FileTimes,
) -> Result<Vec<Event>, EventsError> {
    columns.check(format)?;
    let mut input = std::io::BufReader::new(input);
    check_text(&mut input).map_err(|what| EventsError { line: None, what })?;
    let events = match format {
        Format::Ndjson => read_lines(input, reading)?,
        Format::Csv => read_rows(input, columns, reading)?,
    };
    if events.is_empty() {
        return Err(EventsError {
            line: None,
            what: Wrong::other("there are no events in it"),
        });
    }
    Ok(events)
}

fn read_rows(
    input: impl Read,
    columns: &Columns,
    reading: FileTimes,
) -> Result<Vec<Event>, EventsError> {
    let mut events = table::read(input, columns)?;
    for event in &mut events {
        let moved = reading.moved(event.moment);
        event.moment = moved.map_err(|wrong| wrong.in_line(event.line))?;
    }
    Ok(events)
}

fn read_lines(mut input: impl BufRead, reading: FileTimes) -> Result<Vec<Event>, EventsError> {
    let mut events = Vec::new();
    let mut bytes = Vec::new();
    for number in 1.. {
        bytes.clear();
        let mut line = (&mut input).take(LINE_LEN_MAX);
        let read = line.read_until(b'\n', &mut bytes);
        let length = read.map_err(|error| Wrong::from(error).in_line(number))?;
        if length == 0 {
            break;
        }
        if length as u64 == LINE_LEN_MAX && bytes.last() != Some(&b'\n') {
            return Err(Wrong::other("the line is too long").in_line(number));
        }
        let line = bytes
            .strip_prefix(BYTE_ORDER_MARK)
            .unwrap_or(&bytes)
            .trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let found = ndjson::read(line, number, reading);
        events.extend(found.map_err(|wrong| wrong.in_line(number))?);
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_file_tells_its_format() {
        assert_eq!(Format::of_name("a/b.CSV"), Some(Format::Csv));
        assert_eq!(Format::of_name("events.ndjson"), Some(Format::Ndjson));
        assert_eq!(Format::of_name("events.json"), None);
        assert_eq!(Format::of_name("events"), None);
        assert_eq!(Format::of_name("events.xml"), None);
    }

    #[test]
    fn a_line_has_a_limit() {
        let input = std::io::repeat(b'x');
        let error = read(
            input,
            Format::Ndjson,
            &Columns::default(),
            FileTimes::default(),
        )
        .unwrap_err();
        assert_eq!(error.to_string(), "line 1: the line is too long");
    }

    #[test]
    fn what_stands_in_front_of_a_text_is_passed_over() {
        let text = "\u{feff}# nothing\n";
        let error = read(
            text.as_bytes(),
            Format::Ndjson,
            &Columns::default(),
            FileTimes::default(),
        )
        .unwrap_err();
        assert_eq!(error.to_string(), "there are no events in it");
    }

    #[test]
    fn a_file_without_events_is_a_mistake() {
        let error = read(
            &b"# nothing\n\n"[..],
            Format::Ndjson,
            &Columns::default(),
            FileTimes::default(),
        )
        .unwrap_err();
        assert_eq!(error.to_string(), "there are no events in it");
    }
}

//! A provider's events, as `examples/README.md` describes them.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::iter;

use csv::{ReaderBuilder, StringRecord, Terminator};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::error::Category;

use crate::Target;
use crate::moment::{Millis, TOO_FAR, parse_length, parse_moment, parse_rfc3339, time_of_day};
use crate::quantity::{self, Measure};

/// What some programs write in front of a text.
const BYTE_ORDER_MARK: char = '\u{feff}';
/// Stands between the source and the id of a `CloudEvent` in the id of its event.
const ID_SEPARATOR: char = '\u{1f}';
/// Stands in front of the name of a measure in the first line of a table.
const MEASURE: &str = "measure:";
/// The significant digits that a double keeps.
const DIGITS_MAX: usize = 17;

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
            if measures[..place].iter().any(|it| it.measure == *measure) {
                return Err(format!("the measure {measure:?} is repeated"));
            }
        }
        Ok(Self::Start(measures))
    }
}

/// Reads all events of a file, in its order. Relative times (`day`, `at`) count from `now`.
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
        Format::Ndjson => read_lines(input, now)?,
        Format::Csv => read_table(input, columns)?,
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

/// A mistake of JSON without its line: the parser sees one line, and says that it is the first.
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

/// The fields that matter here. A provider's log may have others.
#[derive(Deserialize)]
struct Line {
    #[serde(rename = "type", default)]
    kind: String,
    id: Option<String>,
    timestamp: Option<Value>,
    at: Option<String>,
    day: Option<i64>,
    time: Option<String>,
    #[serde(flatten)]
    target: Target,
    measured_usage: Option<Vec<Measure>>,
    #[serde(default)]
    previous: BTreeMap<String, String>,
}

/// A `CloudEvent`: `source` and `id` together are the id of the event, the other fields are in `data`.
#[derive(Deserialize)]
struct CloudEvent {
    #[serde(rename = "type")]
    kind: String,
    source: String,
    id: String,
    time: String,
    data: Line,
}

/// Tells `CloudEvents` from other events.
#[derive(Deserialize)]
struct FormatMark {
    specversion: Option<IgnoredAny>,
}

/// Reads the lines of a file, without those that are empty or comments.
fn read_lines(input: impl BufRead, now: Millis) -> Result<Vec<Event>, String> {
    let mut events = Vec::new();
    for (number, line) in (1..).zip(input.lines()) {
        let line = line.map_err(|error| error.to_string());
        let found = line.and_then(|line| {
            let text = line.trim_start_matches(BYTE_ORDER_MARK).trim();
            if text.is_empty() || text.starts_with('#') {
                return Ok(Vec::new());
            }
            let (line, moment) = line_of(text, now)?;
            line.events(number, moment)
        });
        events.extend(found.map_err(|what| format!("line {number}: {what}"))?);
    }
    Ok(events)
}

fn line_of(text: &str, now: Millis) -> Result<(Line, Millis), String> {
    let wrong = |error: serde_json::Error| json_in_words(&error);
    let mark: FormatMark = serde_json::from_str(text).map_err(wrong)?;
    if mark.specversion.is_none() {
        let line: Line = serde_json::from_str(text).map_err(wrong)?;
        let moment = line.moment(now)?;
        return Ok((line, moment));
    }
    let event: CloudEvent = serde_json::from_str(text).map_err(wrong)?;
    let moment = parse_rfc3339(&event.time).ok_or("\"time\" is not a valid time of RFC 3339")?;
    let kind = event.kind.rsplit_once('.').map(|(_, kind)| kind);
    let line = Line {
        kind: kind.unwrap_or_default().to_owned(),
        id: Some(format!("{}{ID_SEPARATOR}{}", event.source, event.id)),
        ..event.data
    };
    Ok((line, moment))
}

impl Line {
    fn moment(&self, now: Millis) -> Result<Millis, String> {
        match (&self.timestamp, &self.at, self.day, &self.time) {
            (Some(timestamp), None, None, None) => {
                let moment = match timestamp {
                    Value::String(text) => parse_rfc3339(text),
                    other => quantity::unified(other.clone()).as_i64(),
                };
                Ok(moment.ok_or("\"timestamp\" is neither a whole number nor RFC 3339")?)
            }
            (None, Some(at), None, None) => {
                Ok(now.checked_add(parse_length(at)?).ok_or(TOO_FAR)?)
            }
            (None, None, Some(day), Some(time)) => time_of_day(now, day, time),
            _ => {
                let what = "an event has either \"timestamp\", or \"at\", or \"day\" and \"time\"";
                Err(what.to_owned())
            }
        }
    }

    /// The event of a line; two where it is an update, which is a stop and a start at the same time.
    fn events(self, line: u64, moment: Millis) -> Result<Vec<Event>, String> {
        let before = self.target_before()?;
        // An empty id counts as none.
        let id = self.id.filter(|id| !id.is_empty());
        let event = |kind, target| Event {
            line,
            kind,
            target,
            id: id.clone(),
            moment,
        };
        let stop = event(EventKind::Stop, before);
        let stop = match self.kind.as_str() {
            "stop" => return Ok(vec![stop]),
            "start" => None,
            "update" => Some(stop),
            _ => return Err("\"type\" is neither \"start\" nor \"stop\" nor \"update\"".to_owned()),
        };
        let measures = self.measured_usage.ok_or("\"measured_usage\" is missing")?;
        let start = event(EventKind::start(measures)?, self.target);
        Ok(stop.into_iter().chain([start]).collect())
    }

    /// The target before an update; of other events, the target.
    fn target_before(&self) -> Result<Target, String> {
        let mut ids = self.target.ids().map(str::to_owned);
        for (name, id) in self.previous.iter().filter(|_| self.kind == "update") {
            let place = Target::FIELDS.iter().position(|field| field == name);
            let place = place.ok_or_else(|| format!("\"previous\" has no {name:?}"))?;
            ids[place].clone_from(id);
        }
        Ok(Target::from_ids(ids))
    }
}

fn read_table(input: impl Read, named: &Columns) -> Result<Vec<Event>, String> {
    // Each line ends with a line feed, so that lines are counted as editors do; spreadsheets write CR before.
    let mut reader = ReaderBuilder::new()
        .flexible(true)
        .terminator(Terminator::Any(b'\n'))
        .from_reader(input.chain(&b"\n"[..]));
    let headers = without_cr(reader.headers().map_err(|error| words_of(&error))?);
    if !headers.iter().any(|name| name == "start") {
        let what = "line 1: there is no column \"start\"; commas separate columns";
        return Err(what.to_owned());
    }
    let (mut events, mut row) = (Vec::new(), StringRecord::new());
    while reader
        .read_record(&mut row)
        .map_err(|error| words_of(&error))?
    {
        if row.iter().any(|cell| !cell.trim().is_empty()) {
            let inside: usize = row.iter().map(|cell| cell.matches('\n').count()).sum();
            let line = reader.position().line() - 1 - inside as u64;
            let row = without_cr(&row);
            let cells = cells_of(&headers, &row);
            let found = cells.and_then(|cells| named.events(cells, line));
            events.extend(found.map_err(|what| format!("line {line}: {what}"))?);
        }
    }
    Ok(events)
}

fn without_cr(row: &StringRecord) -> StringRecord {
    let last = row.len().saturating_sub(1);
    let cells = row.iter().enumerate();
    let cell = |(place, cell): (usize, &str)| {
        let is_last = place == last;
        let cut = cell.strip_suffix('\r').filter(|_| is_last);
        cut.unwrap_or(cell).to_owned()
    };
    cells.map(cell).collect()
}

fn words_of(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::Utf8 { pos, .. } => {
            let line = pos.as_ref().map_or(0, csv::Position::line);
            format!("line {line}: the text is not UTF-8: save the sheet as \"CSV UTF-8\"")
        }
        _ => error.to_string(),
    }
}

/// The cells of a row by the names of their columns. Those without a name must be empty.
fn cells_of<'a>(
    headers: &'a StringRecord,
    row: &'a StringRecord,
) -> Result<BTreeMap<&'a str, &'a str>, String> {
    let (fields, columns) = (row.len(), headers.len());
    if fields < columns {
        let what = format!("the row has {fields} fields, and the first line {columns}");
        return Err(what);
    }
    let mut cells = BTreeMap::new();
    let names = headers.iter().chain(iter::repeat(""));
    for (number, (name, cell)) in (1..).zip(names.zip(row)) {
        if name.trim().is_empty() {
            if !cell.trim().is_empty() {
                let what = format!("{cell:?} stands in the column {number}, which has no name");
                return Err(what);
            }
        } else if cells.insert(name, cell).is_some() {
            return Err(format!("the column {name:?} is repeated"));
        }
    }
    Ok(cells)
}

impl Columns {
    /// The start of the span of a row, and its stop. Each column has one meaning. The numbers in a column do not
    /// decide: the same column would be billed in some files and not in others.
    fn events(&self, mut cells: BTreeMap<&str, &str>, line: u64) -> Result<Vec<Event>, String> {
        let mut take = |name: &str| {
            let cell = cells.remove(name);
            cell.ok_or_else(|| format!("there is no column {name:?}, or it means something else; commas separate columns"))
        };
        let (start, end) = (moment(take("start")?)?, moment(take("end")?)?);
        let mut ids = [const { String::new() }; 6];
        for (id, name) in ids.iter_mut().zip(Target::FIELDS) {
            take(name)?.clone_into(id);
        }
        for name in &self.ignored {
            take(name)?;
        }
        let named = self.measures.iter().map(|name| measure(name, take(name)?));
        let mut measures: Vec<Measure> = named.collect::<Result<_, _>>()?;
        for (header, cell) in cells {
            let name = header.strip_prefix(MEASURE).ok_or_else(|| {
                format!(
                    "the column {header:?} is neither part of a span nor named as a measure: if it is one, call it \
                     \"{MEASURE}{header}\" in the first line, or add --measures {header:?}; otherwise add --ignore \
                     {header:?}"
                )
            })?;
            measures.push(measure(name, cell)?);
        }
        // The id of an event follows from what it says, so the order must not.
        measures.sort_by(|one, other| one.measure.cmp(&other.measure));
        let start = start.ok_or("a span without a start")?;
        if end.is_some_and(|end| end < start) {
            return Err("a span that ends before it starts".to_owned());
        }
        let target = Target::from_ids(ids);
        let stop = end.map(|end| (EventKind::Stop, end));
        let events = iter::once((EventKind::start(measures)?, start)).chain(stop);
        let events = events.map(|(kind, moment)| Event {
            line,
            kind,
            target: target.clone(),
            id: None,
            moment,
        });
        Ok(events.collect())
    }
}

fn moment(cell: &str) -> Result<Option<Millis>, String> {
    let given = Some(cell).filter(|cell| !cell.is_empty());
    given.map(parse_moment).transpose()
}

/// A measure, whose quantity is a number as JSON writes it, and says what its text says.
fn measure(name: &str, cell: &str) -> Result<Measure, String> {
    let is_exact = |cell: &str| {
        let digits = cell.split(['e', 'E']).next().unwrap_or(cell);
        let digits = digits.trim_start_matches(['-', '0', '.']);
        digits.bytes().filter(u8::is_ascii_digit).count() <= DIGITS_MAX
    };
    let quantity = quantity::read(cell).ok();
    let quantity = quantity.filter(|it| it.is_i64() || (it.is_f64() && is_exact(cell)));
    let quantity = quantity.ok_or_else(|| {
        format!("the measure {name:?} is {cell:?}: not a number, or too large or too exact")
    })?;
    let measure = name.to_owned();
    Ok(Measure { measure, quantity })
}

//! Spans as rows of a CSV file.

use std::io::Read;

use csv::{ReaderBuilder, StringRecord};

use super::{Columns, Event, EventKind};
use crate::Target;
use crate::moment::{Millis, parse_moment};
use crate::quantity::{self, Measure};

/// Stands in front of the name of a measure in the first line.
const MEASURE: &str = "measure:";
/// The significant digits that a double keeps.
const DIGITS_MAX: usize = 17;

/// The meaning of a column.
enum Column {
    Start,
    End,
    /// The place of an id in a target.
    Id(usize),
    Measure(String),
    Ignored,
    /// Without a name: spreadsheets write them. They must be empty.
    Nameless,
}

pub(super) fn read(input: impl Read, named: &Columns) -> Result<Vec<Event>, String> {
    let mut reader = ReaderBuilder::new().flexible(true).from_reader(input);
    let headers = reader.headers().map_err(|error| error.to_string())?;
    let columns = columns(headers, named)?;
    let mut events = Vec::new();
    for row in reader.records() {
        let row = row.map_err(|error| error.to_string())?;
        if row.iter().any(|cell| !cell.trim().is_empty()) {
            let line = row.position().map_or(0, csv::Position::line);
            let found = events_of(&columns, &row, line);
            events.extend(found.map_err(|what| format!("line {line}: {what}"))?);
        }
    }
    Ok(events)
}

fn columns(headers: &StringRecord, named: &Columns) -> Result<Vec<Column>, String> {
    let named_here = named.measures.iter().chain(&named.ignored);
    let needed = ["start", "end"].into_iter().chain(Target::FIELDS);
    for name in needed.chain(named_here.map(String::as_str)) {
        match headers.iter().filter(|header| *header == name).count() {
            0 => {
                return Err(format!(
                    "there is no column {name:?}; commas separate columns"
                ));
            }
            1 => {}
            _ => return Err(format!("the column {name:?} is repeated")),
        }
    }
    headers.iter().map(|header| column(header, named)).collect()
}

/// The meaning of a column. The numbers in it do not decide: the same column would be billed in some files and not
/// in others.
fn column(header: &str, named: &Columns) -> Result<Column, String> {
    let id = Target::FIELDS.iter().position(|name| *name == header);
    let of_span = match header {
        "start" => Some(Column::Start),
        "end" => Some(Column::End),
        _ => id.map(Column::Id),
    };
    let is_measure = named.measures.iter().any(|name| name == header);
    let is_ignored = named.ignored.iter().any(|name| name == header);
    match (
        of_span,
        is_measure,
        is_ignored,
        header.strip_prefix(MEASURE),
    ) {
        (Some(column), false, false, _) => Ok(column),
        (None, true, false, _) => Ok(Column::Measure(header.to_owned())),
        (None, false, true, _) => Ok(Column::Ignored),
        (None, false, false, Some(measure)) => Ok(Column::Measure(measure.to_owned())),
        (None, false, false, None) if header.trim().is_empty() => Ok(Column::Nameless),
        (None, false, false, None) => Err(format!(
            "the column {header:?} is neither part of a span nor named as a measure: if it is one, call it \
             \"{MEASURE}{header}\" in the first line, or add --measures {header:?}; otherwise add --ignore {header:?}"
        )),
        _ => Err(format!("the column {header:?} has more than one meaning")),
    }
}

/// The start of a span, and its stop.
fn events_of(columns: &[Column], row: &StringRecord, line: u64) -> Result<Vec<Event>, String> {
    if row.len() < columns.len() {
        let (cells, columns) = (row.len(), columns.len());
        return Err(format!(
            "the row has {cells} fields, and the first line {columns}"
        ));
    }
    let (mut start, mut end, mut measures) = (None, None, Vec::new());
    let mut ids = [const { String::new() }; 6];
    for (number, cell) in row.iter().enumerate() {
        match columns.get(number).unwrap_or(&Column::Nameless) {
            Column::Start => start = moment(cell)?,
            Column::End => end = moment(cell)?,
            Column::Id(place) => cell.clone_into(&mut ids[*place]),
            Column::Measure(name) => measures.push(measure(name, cell)?),
            Column::Nameless if !cell.trim().is_empty() => {
                let number = number + 1;
                return Err(format!(
                    "{cell:?} stands in the column {number}, which has no name"
                ));
            }
            Column::Nameless | Column::Ignored => {}
        }
    }
    let start = start.ok_or("a span without a start")?;
    if end.is_some_and(|end| end < start) {
        return Err("a span that ends before it starts".to_owned());
    }
    let target = Target::from_ids(ids);
    let stop = end.map(|end| (EventKind::Stop, end));
    let events = [(EventKind::start(measures)?, start)]
        .into_iter()
        .chain(stop);
    let events = events.map(|(kind, moment)| Event {
        line,
        kind,
        target: target.clone(),
        id: None,
        moment,
    });
    Ok(events.collect())
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

//! Spans as rows of a CSV file.

use std::collections::BTreeSet;
use std::io::Read;

use csv::{ReaderBuilder, StringRecord};
use serde_json::value::RawValue;

use super::{Columns, Event, EventKind, EventsError, Wrong};
use crate::Target;
use crate::moment::{Millis, parse_moment};
use crate::quantity::{Measure, Quantity};

/// Stands in front of the name of a measure in the first line.
const MEASURE: &str = "measure:";
/// The significant digits that a double keeps.
const DIGITS_MAX: usize = 17;

/// Which columns mean what.
struct Layout {
    start: usize,
    end: usize,
    target: [usize; 6],
    /// The measures, with the columns of their quantities.
    measures: Vec<(String, usize)>,
    /// Columns without a name, which must be empty: spreadsheets write them.
    nameless: Vec<usize>,
    columns: usize,
}

pub(super) fn read(input: impl Read, named: &Columns) -> Result<Vec<Event>, EventsError> {
    let in_no_line = |what: Wrong| EventsError { line: None, what };
    let mut reader = ReaderBuilder::new().flexible(true).from_reader(input);
    let headers = reader.headers().cloned();
    let headers = headers.map_err(|error| in_no_line(error.into()))?;
    let layout = Layout::new(&headers, named).map_err(in_no_line)?;
    let mut events = Vec::new();
    for row in reader.into_records() {
        let row = row.map_err(|error| in_no_line(error.into()))?;
        if row.iter().all(|cell| cell.trim().is_empty()) {
            continue;
        }
        let line = row.position().map_or(0, csv::Position::line);
        let found = layout.events(&row, line);
        events.extend(found.map_err(|wrong| wrong.in_line(line))?);
    }
    Ok(events)
}

impl Layout {
    fn new(headers: &StringRecord, named: &Columns) -> Result<Self, Wrong> {
        check_separator(headers)?;
        let (start, end) = (column(headers, "start")?, column(headers, "end")?);
        let mut target = [0; 6];
        for (place, name) in target.iter_mut().zip(Target::FIELDS) {
            *place = column(headers, name)?;
        }
        for other in named.measures.iter().chain(&named.ignored) {
            column(headers, other)?;
        }
        let (mut measures, mut nameless) = (Vec::new(), Vec::new());
        let mut seen = BTreeSet::new();
        for (number, header) in headers.iter().enumerate() {
            if header.trim().is_empty() {
                nameless.push(number);
                continue;
            }
            let is_known = [start, end].contains(&number) || target.contains(&number);
            let Some(measure) = measure_of(header, is_known, named)? else {
                continue;
            };
            if !seen.insert(measure) {
                return Err(Wrong::other(format!("the measure {measure:?} is repeated")));
            }
            measures.push((measure.to_owned(), number));
        }
        Ok(Self {
            start,
            end,
            target,
            measures,
            nameless,
            columns: headers.len(),
        })
    }

    fn events(&self, row: &StringRecord, line: u64) -> Result<Vec<Event>, Wrong> {
        self.check_width(row)?;
        let target = Target::from_ids(self.target.map(|column| row[column].to_owned()));
        let event = |kind, moment| Event {
            line,
            kind,
            target: target.clone(),
            id: None,
            moment,
        };
        let start = moment(&row[self.start])?;
        let start = start.ok_or_else(|| Wrong::other("a span without a start"))?;
        let measures = self.measures.iter().map(|(name, column)| {
            let quantity = quantity(name, &row[*column])?;
            let measure = name.clone();
            Ok::<_, Wrong>(Measure { measure, quantity })
        });
        let measures = measures.collect::<Result<_, Wrong>>()?;
        let mut events = vec![event(EventKind::Start(measures), start)];
        if let Some(end) = moment(&row[self.end])? {
            if end < start {
                return Err(Wrong::other("a span that ends before it starts"));
            }
            events.push(event(EventKind::Stop, end));
        }
        Ok(events)
    }

    /// A cell that has no column would be lost.
    fn check_width(&self, row: &StringRecord) -> Result<(), Wrong> {
        if row.len() < self.columns {
            let (cells, columns) = (row.len(), self.columns);
            let what = format!("the row has {cells} fields, and the first line {columns}");
            return Err(Wrong::other(what));
        }
        let beyond = self.nameless.iter().copied().chain(self.columns..row.len());
        for column in beyond {
            if !row[column].trim().is_empty() {
                let (cell, number) = (&row[column], column + 1);
                let what = format!("{cell:?} stands in the column {number}, which has no name");
                return Err(Wrong::other(what));
            }
        }
        Ok(())
    }
}

fn moment(text: &str) -> Result<Option<Millis>, Wrong> {
    if text.is_empty() {
        return Ok(None);
    }
    let moment = parse_moment(text);
    let what = || Wrong::other(format!("{text:?} is neither a whole number nor RFC 3339"));
    moment.map(Some).map_err(|_| what())
}

fn column(headers: &StringRecord, name: &str) -> Result<usize, Wrong> {
    let found = headers.iter().position(|header| header == name);
    found.ok_or_else(|| Wrong::other(format!("there is no column {name:?}")))
}

/// A first line of one column that holds another separator is one of several columns.
fn check_separator(headers: &StringRecord) -> Result<(), Wrong> {
    let Some(line) = headers.get(0).filter(|_| headers.len() == 1) else {
        return Ok(());
    };
    let known = [(';', "semicolons"), ('\t', "tabs"), ('|', "bars")];
    match known.into_iter().find(|(sign, _)| line.contains(*sign)) {
        Some((_, name)) => Err(Wrong::other(format!(
            "its columns are separated by {name}: save it with commas, and with points in numbers"
        ))),
        None => Ok(()),
    }
}

/// The measure of a column, if it is of a measure. The numbers in it do not decide: the same column
/// would be billed in some files and not in others.
fn measure_of<'a>(
    header: &'a str,
    is_known: bool,
    named: &Columns,
) -> Result<Option<&'a str>, Wrong> {
    let is_measure = named.measures.iter().any(|name| name == header);
    let is_ignored = named.ignored.iter().any(|name| name == header);
    if is_known && (is_measure || is_ignored) {
        let what = format!("the column {header:?} is part of the span, and can be nothing else");
        return Err(Wrong::other(what));
    }
    if is_measure && is_ignored {
        let what = format!("the column {header:?} is named as a measure, and as one to ignore");
        return Err(Wrong::other(what));
    }
    match header.strip_prefix(MEASURE) {
        _ if is_known || is_ignored => Ok(None),
        _ if is_measure => Ok(Some(header)),
        Some(measure) => Ok(Some(measure)),
        None => Err(Wrong::other(format!(
            "the column {header:?} is neither part of a span nor named as a measure: if it is one, call it \
             \"{MEASURE}{header}\" in the first line, or add --measures {header:?}; otherwise add --ignore {header:?}"
        ))),
    }
}

/// A quantity, which is a number as JSON writes it.
fn quantity(name: &str, text: &str) -> Result<Quantity, Wrong> {
    let read = serde_json::from_str::<&RawValue>(text).and_then(Quantity::read);
    match read {
        Ok(Quantity::Integer(integer)) if i64::try_from(integer).is_ok() => {
            Ok(Quantity::Integer(integer))
        }
        Ok(Quantity::Double(double)) if is_kept(double, text) => Ok(Quantity::Double(double)),
        _ => Err(Wrong::other(format!(
            "the measure {name:?} is {text:?}: not a number, or too large or too exact"
        ))),
    }
}

/// Whether a double says what its text says: it has up to 17 significant digits, and is neither infinite
/// nor zero in place of what is almost zero.
fn is_kept(double: f64, text: &str) -> bool {
    let digits = text.split(['e', 'E']).next().unwrap_or(text);
    let digits = digits.trim_start_matches(['-', '0', '.']);
    let count = digits.bytes().filter(u8::is_ascii_digit).count();
    double.is_finite() && count <= DIGITS_MAX && (double != 0.0 || count == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: &str = "organization_id,space_id,consumer_id,resource_id,plan_id,\
                          resource_instance_id,start,end";

    fn read_with(measures: &[&str], ignored: &[&str], text: &str) -> Result<Vec<Event>, String> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let named = Columns {
            measures: owned(measures),
            ignored: owned(ignored),
        };
        read(text.as_bytes(), &named).map_err(|error| error.to_string())
    }

    #[test]
    fn reads_spans_of_named_targets() {
        let text = format!(
            "\u{feff}{TARGET},measure:memory,cpu,note\r\no,s,c,r,p,1,100,200,512,0.5,x\r\n\
             o,s,c,r,p,2,1970-01-01T01:00:02+01:00,,512.5,2,\r\n"
        );
        let events = read_with(&["cpu"], &["note"], &text).unwrap();
        let moments: Vec<Millis> = events.iter().map(|event| event.moment).collect();
        assert_eq!(moments, [100, 200, 2_000]);
        assert_eq!(events[1].target.ids(), ["o", "s", "c", "r", "p", "1"]);
        for (event, memory, cpu) in [
            (&events[0], Quantity::Integer(512), Quantity::Double(0.5)),
            (&events[2], Quantity::Double(512.5), Quantity::Integer(2)),
        ] {
            let measures = [("memory", memory), ("cpu", cpu)];
            let measures = measures.map(|(measure, quantity)| Measure {
                measure: measure.to_owned(),
                quantity,
            });
            assert_eq!(event.kind, EventKind::Start(measures.to_vec()));
        }
    }

    /// What spreadsheets leave behind the rows and the columns.
    #[test]
    fn what_is_wholly_empty_is_passed_over() {
        let row = "o,s,c,r,p,1,100,200";
        for text in [
            format!("{TARGET}\n\n{row}\n,,,,,,,\n"),
            format!("{TARGET},,\n{row},,\n,,,,,,,,,\n , ,\n"),
            format!("{TARGET}\n{row},,\n"),
            format!("{TARGET}, \r\n{row}, \r\n\r\n"),
        ] {
            assert_eq!(read_with(&[], &[], &text).unwrap().len(), 2, "{text}");
        }
        for text in [
            format!("{TARGET},\n{row},512\n"),
            format!("{TARGET}\n{row},,512\n"),
        ] {
            let message = read_with(&[], &[], &text).unwrap_err();
            assert!(
                message.starts_with("line 2: \"512\" stands in the column"),
                "{message}"
            );
        }
    }

    #[test]
    fn another_separator_is_told() {
        for (sign, name) in [(";", "semicolons"), ("\t", "tabs"), ("|", "bars")] {
            let message = read_with(&[], &[], &TARGET.replace(',', sign)).unwrap_err();
            assert!(message.contains(name), "{message}");
        }
    }

    /// Numbers do not make a column a measure, and a measure is not lost because of a text.
    #[test]
    fn a_column_that_is_not_named_is_a_mistake() {
        let table =
            |header: &str, cell: &str| format!("{TARGET},{header}\no,s,c,r,p,1,1,2,{cell}\n");
        for cell in ["512", "", "x"] {
            let message = read_with(&[], &[], &table("memory", cell)).unwrap_err();
            let advice = "call it \"measure:memory\" in the first line, or add --measures \"memory\"; \
                          otherwise add --ignore \"memory\"";
            assert!(message.contains(advice), "{message}");
        }
        for cell in [
            "",
            "x",
            "NaN",
            "1e999",
            "1e-999",
            "0.123456789012345678",
            "0x1",
            "true",
            "9223372036854775808",
        ] {
            for (header, named) in [("measure:memory", &[][..]), ("memory", &["memory"])] {
                let message = read_with(named, &[], &table(header, cell)).unwrap_err();
                assert!(
                    message.starts_with("line 2: the measure \"memory\""),
                    "{message}"
                );
            }
        }
        let (one, two) = (table("memory", "1"), table("memory,measure:memory", "1,1"));
        for (measures, ignored, text, part) in [
            (&["disk"][..], &[][..], &one, "no column \"disk\""),
            (&["memory"], &["disk"], &one, "no column \"disk\""),
            (&["memory"], &["memory"], &one, "to ignore"),
            (&["memory", "start"], &[], &one, "part of the span"),
            (&["memory"], &["plan_id"], &one, "part of the span"),
            (&["memory"], &[], &two, "repeated"),
        ] {
            let message = read_with(measures, ignored, text).unwrap_err();
            assert!(message.contains(part), "{part}: {message}");
        }
    }

    #[test]
    fn says_what_is_missing_or_wrong() {
        let message = |text: &str| read_with(&[], &[], text).unwrap_err();
        assert!(message("start,end\n1,2\n").contains("organization_id"));
        for (row, part) in [
            ("o,s,c,r,p,1,2,1", "line 2: a span that ends before"),
            ("o,s,c,r,p,1,x,1", "whole number"),
            ("o,s,c,r,p,1,,1", "without a start"),
            ("o,s,c,r,p,1", "6 fields"),
        ] {
            assert!(
                message(&format!("{TARGET}\n{row}\n")).contains(part),
                "{part}"
            );
        }
    }
}

//! Spans as rows of a CSV file.

use std::collections::BTreeSet;
use std::io::Read;

use csv::StringRecord;
use serde_json::value::RawValue;

use super::{Columns, Event, EventKind, EventsError, Wrong};
use crate::Target;
use crate::moment::{Millis, MomentError, parse_moment};
use crate::quantity::{Measure, Quantity};

/// Stands in front of the name of a measure in the first line.
const MEASURE: &str = "measure:";
/// The significant digits that a double keeps.
const DIGITS_MAX: usize = 17;
/// What a cluster trace measures, and what else it says.
const TRACE_MEASURES: [&str; 4] = ["cpu_milli", "memory_mib", "num_gpu", "gpu_milli"];
const TRACE_NOTES: [&str; 4] = ["gpu_spec", "qos", "pod_phase", "scheduled_time"];

/// Which columns mean what.
struct Layout {
    start: usize,
    end: usize,
    /// How many ms the unit of both is.
    unit: Millis,
    target: TargetColumns,
    /// The measures, with the columns of their quantities.
    measures: Vec<(String, usize)>,
}

enum TargetColumns {
    Fields([usize; 6]),
    /// A cluster trace: the name of a pod.
    Name(usize),
}

pub(super) fn read(input: impl Read, named: &Columns) -> Result<Vec<Event>, EventsError> {
    let mut reader = csv::Reader::from_reader(input);
    let headers = reader
        .headers()
        .map_err(|error| in_no_line(error.into()))?
        .clone();
    let layout = Layout::new(&headers, named).map_err(in_no_line)?;
    let mut events = Vec::new();
    for row in reader.into_records() {
        let row = row.map_err(|error| in_no_line(error.into()))?;
        let line = row.position().map_or(0, csv::Position::line);
        let found = layout.events(&row, line);
        events.extend(found.map_err(|wrong| wrong.in_line(line))?);
    }
    Ok(events)
}

fn in_no_line(what: Wrong) -> EventsError {
    EventsError { line: None, what }
}

impl Layout {
    fn new(headers: &StringRecord, named: &Columns) -> Result<Self, Wrong> {
        check_separator(headers)?;
        let is_trace = headers.iter().any(|header| header == "creation_time");
        let (start, end, unit) = if is_trace {
            ("creation_time", "deletion_time", 1000)
        } else {
            ("start", "end", 1)
        };
        let (start, end) = (column(headers, start)?, column(headers, end)?);
        let target = if is_trace {
            TargetColumns::Name(column(headers, "name")?)
        } else {
            let mut fields = [0; 6];
            for (field, name) in fields.iter_mut().zip(Target::FIELDS) {
                *field = column(headers, name)?;
            }
            TargetColumns::Fields(fields)
        };
        for name in named.measures.iter().chain(&named.ignored) {
            column(headers, name)?;
        }
        let mut layout = Self {
            start,
            end,
            unit,
            target,
            measures: Vec::new(),
        };
        for (number, header) in headers.iter().enumerate() {
            let is_known = [start, end].contains(&number) || layout.target.contains(number);
            if let Some(measure) = measure_of(header, is_known, is_trace, named)? {
                layout.measures.push((measure.to_owned(), number));
            }
        }
        layout.check_names()?;
        Ok(layout)
    }

    fn check_names(&self) -> Result<(), Wrong> {
        let mut names = BTreeSet::new();
        for (name, _) in &self.measures {
            if !names.insert(name) {
                return Err(Wrong::other(format!("the measure {name:?} is repeated")));
            }
        }
        Ok(())
    }

    fn events(&self, row: &StringRecord, line: u64) -> Result<Vec<Event>, Wrong> {
        let target = self.target.read(row);
        let event = |kind, moment| Event {
            line,
            kind,
            target: target.clone(),
            id: None,
            moment,
        };
        let start = self.moment(&row[self.start])?;
        let start = start.ok_or_else(|| Wrong::other("a span without a start"))?;
        let measures = self
            .measures
            .iter()
            .map(|(name, column)| {
                let quantity = quantity(name, &row[*column])?;
                let measure = name.clone();
                Ok::<_, Wrong>(Measure { measure, quantity })
            })
            .collect::<Result<_, Wrong>>()?;
        let mut events = vec![event(EventKind::Start(measures), start)];
        if let Some(end) = self.moment(&row[self.end])? {
            if end < start {
                return Err(Wrong::other("a span that ends before it starts"));
            }
            events.push(event(EventKind::Stop, end));
        }
        Ok(events)
    }

    fn moment(&self, text: &str) -> Result<Option<Millis>, Wrong> {
        if text.is_empty() {
            return Ok(None);
        }
        let Ok(number) = text.parse::<Millis>() else {
            let moment = parse_moment(text);
            return Ok(Some(moment.map_err(|_| {
                Wrong::other(format!("{text:?} is neither a whole number nor RFC 3339"))
            })?));
        };
        let moment = number.checked_mul(self.unit);
        Ok(Some(moment.ok_or(MomentError::TooFar)?))
    }
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
    is_trace: bool,
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
    if is_known || is_ignored {
        return Ok(None);
    }
    if is_measure {
        return Ok(Some(header));
    }
    match header.strip_prefix(MEASURE) {
        Some(measure) => Ok(Some(measure)),
        None if is_trace && TRACE_MEASURES.contains(&header) => Ok(Some(header)),
        None if is_trace && TRACE_NOTES.contains(&header) => Ok(None),
        None => Err(Wrong::other(format!(
            "the column {header:?} is neither part of a span nor named as a measure: if it is one, call it \
             \"{MEASURE}{header}\" in the first line, or add --measures {header}; otherwise add --ignore {header}"
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
    let digits = text
        .split(['e', 'E'])
        .next()
        .unwrap_or(text)
        .trim_start_matches(['-', '0', '.']);
    let count = digits.bytes().filter(u8::is_ascii_digit).count();
    double.is_finite() && count <= DIGITS_MAX && (double != 0.0 || count == 0)
}

impl TargetColumns {
    fn contains(&self, number: usize) -> bool {
        match self {
            Self::Fields(fields) => fields.contains(&number),
            Self::Name(name) => *name == number,
        }
    }

    /// A pod of a trace is the target that `cargo xtask up` makes of it.
    fn read(&self, row: &StringRecord) -> Target {
        match self {
            Self::Fields(fields) => Target::from_ids(fields.map(|column| row[column].to_owned())),
            Self::Name(name) => {
                let name = &row[*name];
                let ids = ["cluster", "default", name, "pod", "standard", name];
                Target::from_ids(ids.map(str::to_owned))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: &str = "organization_id,space_id,consumer_id,resource_id,plan_id,\
                          resource_instance_id,start,end";

    fn read_text(text: &str) -> Result<Vec<Event>, EventsError> {
        read(text.as_bytes(), &Columns::default())
    }

    fn read_with(measures: &[&str], ignored: &[&str], text: &str) -> Result<Vec<Event>, String> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let named = Columns {
            measures: owned(measures),
            ignored: owned(ignored),
        };
        read(text.as_bytes(), &named).map_err(|error| error.to_string())
    }

    fn measures(event: &Event) -> Vec<(String, Quantity)> {
        let EventKind::Start(measures) = &event.kind else {
            panic!("{event:?}");
        };
        let measures = measures.iter();
        measures
            .map(|measure| (measure.measure.clone(), measure.quantity.clone()))
            .collect()
    }

    #[test]
    fn reads_a_cluster_trace() {
        let text = "name,cpu_milli,gpu_spec,creation_time,deletion_time,scheduled_time\n\
                    pod-1,12,,5,7,6\n\
                    pod-2,3,V100,9,9,9\n";
        let events = read_text(text).unwrap();
        assert_eq!(events.len(), 4);
        assert_eq!((events[0].moment, events[1].moment), (5000, 7000));
        let cpu = ("cpu_milli".to_owned(), Quantity::Integer(12));
        assert_eq!(measures(&events[0]), [cpu]);
        assert_eq!(events[2].target.resource_instance_id, "pod-2");
        assert_eq!((events[2].line, events[1].line), (3, 2));
        let other = "name,disk,creation_time,deletion_time\np,1,2,3\n";
        assert!(read_text(other).unwrap_err().to_string().contains("disk"));
    }

    #[test]
    fn another_separator_is_told() {
        for (sign, name) in [(";", "semicolons"), ("\t", "tabs"), ("|", "bars")] {
            let message = read_text(&TARGET.replace(',', sign))
                .unwrap_err()
                .to_string();
            assert!(message.contains(name), "{message}");
        }
    }

    #[test]
    fn times_may_be_rfc_3339() {
        let text =
            format!("{TARGET}\no,s,c,r,p,1,1970-01-01T00:00:01Z,1970-01-01T01:00:02+01:00\n");
        let moments: Vec<Millis> = read_text(&text)
            .unwrap()
            .iter()
            .map(|it| it.moment)
            .collect();
        assert_eq!(moments, [1_000, 2_000]);
    }

    #[test]
    fn reads_spans_of_named_targets() {
        let text = format!(
            "{TARGET},measure:memory,cpu,note\no,s,c,r,p,1,100,200,512,0.5,x\n\
             o,s,c,r,p,2,100,,512.5,2,\n"
        );
        let events = read_with(&["cpu"], &["note"], &text).unwrap();
        assert_eq!(events.len(), 3);
        assert_eq!(events[1].target.ids(), ["o", "s", "c", "r", "p", "1"]);
        let of = |memory, cpu| [("memory".to_owned(), memory), ("cpu".to_owned(), cpu)];
        let first = of(Quantity::Integer(512), Quantity::Double(0.5));
        assert_eq!(measures(&events[0]), first);
        let second = of(Quantity::Double(512.5), Quantity::Integer(2));
        assert_eq!(measures(&events[2]), second);
    }

    /// Numbers do not make a column a measure, and a measure is not lost because of a text.
    #[test]
    fn a_column_that_is_not_named_is_a_mistake() {
        let table =
            |header: &str, cell: &str| format!("{TARGET},{header}\no,s,c,r,p,1,1,2,{cell}\n");
        for cell in ["512", "512.5", "", "x"] {
            let message = read_with(&[], &[], &table("memory", cell)).unwrap_err();
            for part in [
                "\"memory\"",
                "measure:memory",
                "--measures memory",
                "--ignore memory",
            ] {
                assert!(message.contains(part), "{part}: {message}");
            }
        }
        for cell in [
            "",
            "x",
            "NaN",
            "1e999",
            "1e-999",
            "0.123456789012345678",
            "0x1",
            "1;",
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
        let message = |text: &str| read_text(text).unwrap_err().to_string();
        assert!(message("start,end\n1,2\n").contains("organization_id"));
        let columns = "name,creation_time,deletion_time\n";
        assert!(message(&format!("{columns}a,2,1\n")).starts_with("line 2: "));
        assert!(message(&format!("{columns}a,x,1\n")).contains("whole number"));
        assert!(message(&format!("{columns}a,1\n")).contains("2 fields"));
    }
}

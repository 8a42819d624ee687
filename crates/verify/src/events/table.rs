//! Spans as rows of a CSV file.

use std::io::Read;

use csv::StringRecord;

use super::{Event, EventsError, Kind, Wrong};
use crate::Target;
use crate::moment::{Millis, MomentError};
use crate::quantity::{Measure, Quantity};

/// Which columns mean what.
struct Columns {
    start: usize,
    end: usize,
    /// How many ms the unit of both is.
    unit: Millis,
    target: TargetColumns,
    /// Columns that may be measures, with their names; the rows decide.
    measures: Vec<(String, usize)>,
}

enum TargetColumns {
    Fields([usize; 6]),
    /// A cluster trace: the name of a pod.
    Name(usize),
}

pub(super) fn read(input: impl Read) -> Result<Vec<Event>, EventsError> {
    let whole = |what: Wrong| EventsError { line: None, what };
    let mut reader = csv::Reader::from_reader(input);
    let headers = reader
        .headers()
        .map_err(|error| whole(error.into()))?
        .clone();
    let mut columns = Columns::new(&headers).map_err(whole)?;
    let rows: Vec<StringRecord> = reader
        .into_records()
        .collect::<Result<_, _>>()
        .map_err(|error| whole(error.into()))?;
    columns.keep_measures(&rows);
    let mut events = Vec::with_capacity(2 * rows.len());
    for row in &rows {
        let line = row.position().map_or(0, csv::Position::line);
        let found = columns.events(row, line);
        events.extend(found.map_err(|wrong| wrong.in_line(line))?);
    }
    Ok(events)
}

impl Columns {
    fn new(headers: &StringRecord) -> Result<Self, Wrong> {
        let find = |name: &str| headers.iter().position(|header| header == name);
        let column = |name: &str| {
            find(name).ok_or_else(|| Wrong::other(format!("there is no column {name:?}")))
        };
        let is_trace = find("creation_time").is_some();
        let (start, end, unit) = if is_trace {
            (column("creation_time")?, column("deletion_time")?, 1000)
        } else {
            (column("start")?, column("end")?, 1)
        };
        let target = if is_trace {
            TargetColumns::Name(column("name")?)
        } else {
            let mut fields = [0; 6];
            for (field, name) in fields.iter_mut().zip(Target::FIELDS) {
                *field = column(name)?;
            }
            TargetColumns::Fields(fields)
        };
        let measures = headers.iter().enumerate().filter(|(number, name)| {
            let is_time = [start, end].contains(number) || name.ends_with("_time");
            !is_time && !target.contains(*number)
        });
        let measures = measures.map(|(number, name)| (name.to_owned(), number));
        Ok(Self {
            start,
            end,
            unit,
            measures: measures.collect(),
            target,
        })
    }

    /// A measure is a column that holds nothing but integers.
    fn keep_measures(&mut self, rows: &[StringRecord]) {
        self.measures.retain(|(_, column)| {
            let is_integer = |row: &StringRecord| row[*column].parse::<i64>().is_ok();
            rows.iter().all(is_integer)
        });
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
        let measures = self.measures.iter().map(|(name, column)| {
            let quantity = row[*column].parse().expect("the column holds integers");
            Measure {
                measure: name.clone(),
                quantity: Quantity::Integer(quantity),
            }
        });
        let mut events = vec![event(Kind::Start(measures.collect()), start)];
        if let Some(end) = self.moment(&row[self.end])? {
            if end < start {
                return Err(Wrong::other("a span that ends before it starts"));
            }
            events.push(event(Kind::Stop, end));
        }
        Ok(events)
    }

    fn moment(&self, text: &str) -> Result<Option<Millis>, Wrong> {
        if text.is_empty() {
            return Ok(None);
        }
        let number: Millis = text
            .parse()
            .map_err(|_| Wrong::other(format!("{text:?} is no whole number")))?;
        let moment = number.checked_mul(self.unit);
        Ok(Some(moment.ok_or(MomentError::TooFar)?))
    }
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

    fn read_text(text: &str) -> Result<Vec<Event>, EventsError> {
        read(text.as_bytes())
    }

    #[test]
    fn reads_a_cluster_trace() {
        let text = "name,cpu,gpu_spec,creation_time,deletion_time,scheduled_time\n\
                    pod-1,12,,5,7,6\n\
                    pod-2,3,V100,9,9,9\n";
        let events = read_text(text).unwrap();
        assert_eq!(events.len(), 4);
        assert_eq!((events[0].moment, events[1].moment), (5000, 7000));
        let Kind::Start(measures) = &events[0].kind else {
            panic!("{events:?}");
        };
        assert_eq!(measures.len(), 1);
        assert_eq!(measures[0].quantity, Quantity::Integer(12));
        assert_eq!(events[2].target.resource_instance_id, "pod-2");
        assert_eq!((events[2].line, events[1].line), (3, 2));
    }

    #[test]
    fn reads_spans_of_named_targets() {
        let text = "organization_id,space_id,consumer_id,resource_id,plan_id,\
                    resource_instance_id,start,end,memory,note\n\
                    o,s,c,r,p,1,100,200,5,x\n\
                    o,s,c,r,p,2,100,,6,7\n";
        let events = read_text(text).unwrap();
        assert_eq!(events.len(), 3);
        assert_eq!(events[1].target.ids(), ["o", "s", "c", "r", "p", "1"]);
        assert!(matches!(&events[2].kind, Kind::Start(measures) if measures.len() == 1));
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

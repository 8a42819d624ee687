//! Spans as rows of a CSV file.

use anyhow::{Context, Result, ensure};
use csv::StringRecord;
use serde_json::{Value, json};

use super::{Event, Kind, Target};

/// Which columns mean what.
struct Columns {
    start: usize,
    end: usize,
    /// How many ms the unit of both is.
    unit: i64,
    target: TargetColumns,
    /// Names and numbers of the columns that are measures.
    measures: Vec<(String, usize)>,
}

enum TargetColumns {
    Fields([usize; 6]),
    /// A cluster trace: the name of a pod.
    Name(usize),
}

pub(super) fn parse(text: &str) -> Result<Vec<Event>> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let headers = reader
        .headers()
        .context("reading the names of the columns")?
        .clone();
    let rows: Vec<StringRecord> = reader.records().collect::<Result<_, _>>()?;
    let columns = Columns::new(&headers, &rows)?;
    let mut events = Vec::with_capacity(2 * rows.len());
    for (number, row) in rows.iter().enumerate() {
        // The first row is in line 2.
        let span = columns
            .span(row)
            .with_context(|| format!("line {}", number + 2))?;
        events.extend(span);
    }
    Ok(events)
}

impl Columns {
    fn new(headers: &StringRecord, rows: &[StringRecord]) -> Result<Self> {
        let find = |name: &str| headers.iter().position(|header| header == name);
        let column = |name: &str| find(name).with_context(|| format!("no column {name:?}"));
        let (start, end, unit, target) = if find("creation_time").is_some() {
            let name = TargetColumns::Name(column("name")?);
            (
                column("creation_time")?,
                column("deletion_time")?,
                1000,
                name,
            )
        } else {
            let mut fields = [0; 6];
            for (field, name) in fields.iter_mut().zip(Target::FIELDS) {
                *field = column(name)?;
            }
            (
                column("start")?,
                column("end")?,
                1,
                TargetColumns::Fields(fields),
            )
        };
        let is_measure = |number: usize, name: &str| {
            let is_time = [start, end].contains(&number) || name.ends_with("_time");
            !is_time && !target.contains(number) && is_numeric(rows, number)
        };
        let measures = headers
            .iter()
            .enumerate()
            .filter(|(number, name)| is_measure(*number, name));
        let measures = measures
            .map(|(number, name)| (name.to_owned(), number))
            .collect();
        Ok(Self {
            start,
            end,
            unit,
            target,
            measures,
        })
    }

    fn span(&self, row: &StringRecord) -> Result<Vec<Event>> {
        let target = self.target.read(row);
        let start = self
            .moment(row, self.start)?
            .context("a span without start")?;
        let measures = self.measured_usage(row)?;
        let event = |kind, timestamp| Event {
            kind,
            timestamp,
            target: target.clone(),
            fields: target.body(timestamp),
            after_sampled: false,
        };
        let mut events = vec![event(Kind::Start, start)];
        events[0].fields["measured_usage"] = measures;
        if let Some(end) = self.moment(row, self.end)? {
            ensure!(start <= end, "a span that ends before it starts");
            events.push(event(Kind::Stop, end));
        }
        Ok(events)
    }

    fn moment(&self, row: &StringRecord, column: usize) -> Result<Option<i64>> {
        let text = &row[column];
        if text.is_empty() {
            return Ok(None);
        }
        let number: i64 = text
            .parse()
            .with_context(|| format!("not a whole number: {text}"))?;
        Ok(Some(
            number
                .checked_mul(self.unit)
                .context("a moment too far away")?,
        ))
    }

    fn measured_usage(&self, row: &StringRecord) -> Result<Value> {
        let mut measures = Vec::with_capacity(self.measures.len());
        for (name, column) in &self.measures {
            let quantity: i64 = row[*column].parse().context("not a whole number")?;
            measures.push(json!({ "measure": name, "quantity": quantity }));
        }
        Ok(Value::Array(measures))
    }
}

impl TargetColumns {
    fn contains(&self, number: usize) -> bool {
        match self {
            Self::Fields(fields) => fields.contains(&number),
            Self::Name(name) => *name == number,
        }
    }

    fn read(&self, row: &StringRecord) -> Target {
        match self {
            Self::Fields(fields) => Target(fields.map(|column| row[column].to_owned())),
            Self::Name(name) => {
                let name = &row[*name];
                Target(["cluster", "default", name, "pod", "standard", name].map(str::to_owned))
            }
        }
    }
}

fn is_numeric(rows: &[StringRecord], column: usize) -> bool {
    let is_number = |row: &StringRecord| row[column].parse::<i64>().is_ok();
    !rows.is_empty() && rows.iter().all(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_cluster_trace() {
        let text = "name,cpu,gpu_spec,creation_time,deletion_time,scheduled_time\n\
                    pod-1,12,,5,7,6\n\
                    pod-2,3,V100,9,9,9\n";
        let events = parse(text).unwrap();
        assert_eq!(events.len(), 4);
        let cpu = json!([{ "measure": "cpu", "quantity": 12 }]);
        assert_eq!((events[0].timestamp, events[0].measures()), (5000, &cpu));
        assert_eq!((events[1].kind, events[1].timestamp), (Kind::Stop, 7000));
        assert_eq!(events[1].measures(), &Value::Null);
        assert_eq!(events[2].target.instance(), "pod-2");
    }

    #[test]
    fn reads_spans_of_named_targets() {
        let text = "organization_id,space_id,consumer_id,resource_id,plan_id,\
                    resource_instance_id,start,end,memory,note\n\
                    o,s,c,r,p,1,100,200,5,x\n\
                    o,s,c,r,p,2,100,,6,7\n";
        let events = parse(text).unwrap();
        assert_eq!(events.len(), 3);
        let memory = json!([{ "measure": "memory", "quantity": 6 }]);
        assert_eq!((events[2].timestamp, events[2].measures()), (100, &memory));
        assert_eq!(events[1].target.0, ["o", "s", "c", "r", "p", "1"]);
    }

    #[test]
    fn says_what_is_missing_or_wrong() {
        let message = |text: &str| format!("{:#}", parse(text).unwrap_err());
        assert!(message("start,end\n1,2\n").contains("organization_id"));
        assert!(message("name,creation_time,deletion_time\na,2,1\n").contains("line 2"));
        assert!(message("name,creation_time,deletion_time\na,x,1\n").contains("whole number"));
    }
}

//! The real trace: what it must come to follows from the file alone.

use std::fs::File;

use sampler_verify::events::{self, Columns, FileTimes, Format};
use sampler_verify::{Granularity, History, Policy, Report};

use crate::truth::{DAY, NOW, bill, policy};

const PATH: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../../shared/traces/openb_pod_list_default.csv"
);

#[test]
fn the_real_trace_comes_to_what_its_rows_add_up_to() {
    let Ok(file) = File::open(PATH) else {
        eprintln!("skipped: the trace is not at {PATH}");
        return;
    };
    let reading = FileTimes {
        now: NOW,
        offset: NOW - 150 * DAY,
    };
    let history =
        History::of(events::read(file, Format::Csv, &Columns::default(), reading).unwrap());
    assert_eq!(history.used.len(), 8_152);
    assert!(history.contradictions.is_empty());
    let policy = Policy {
        granularity: Some(Granularity::Day),
        ..policy()
    };
    let mut report = Report::new(history.contradictions);
    for used in &history.used {
        let ledger = bill(used, DAY, true, NOW);
        report.add(&ledger.span, Some(used), ledger.check_by(used, &policy));
    }
    let report = report.finish(true);
    assert_eq!(report.totals.wrong, 0);
    // Sums of (deletion_time - creation_time) * 1000, and of those times the column.
    for (name, expected) in expected() {
        let total = match name {
            "duration" => report.totals.duration,
            name => report.totals.measures[name],
        };
        assert_eq!(
            (total.used, total.billed, total.difference),
            (expected, expected, 0),
            "{name}"
        );
    }
}

/// The same sums, by splitting lines at commas.
fn expected() -> Vec<(&'static str, i128)> {
    let text = std::fs::read_to_string(PATH).unwrap();
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let place = |name: &str| names.iter().position(|it| *it == name).unwrap();
    let (start, end) = (place("creation_time"), place("deletion_time"));
    let mut sums = vec![("duration", 0)];
    let measures = ["cpu_milli", "memory_mib", "num_gpu", "gpu_milli"];
    sums.extend(measures.map(|name| (name, 0)));
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |place: usize| fields[place].parse::<i128>().unwrap();
        let length = (number(end) - number(start)) * 1000;
        for (name, sum) in &mut sums {
            let quantity = if *name == "duration" {
                1
            } else {
                number(place(name))
            };
            *sum += length * quantity;
        }
    }
    sums
}

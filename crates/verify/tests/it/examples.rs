//! The examples of the repository, without any program.

use std::fs::File;

use sampler_verify::events::{self, Columns, FileTimes, Format};
use sampler_verify::{History, Report};

use crate::truth::{HOUR, NOW, bill, policy};

fn history() -> History {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/events.ndjson");
    let reading = FileTimes {
        now: NOW,
        offset: 0,
    };
    let events = events::read(
        File::open(path).unwrap(),
        Format::Ndjson,
        &Columns::default(),
        reading,
    )
    .unwrap();
    History::of(events)
}

#[test]
fn the_examples_go_together() {
    let history = history();
    assert!(
        history.contradictions.is_empty(),
        "{:#?}",
        history.contradictions
    );
    assert!(history.used.len() >= 8);
    assert!(history.used.iter().all(|used| used.start < NOW));
    assert!(history.used.iter().any(|used| used.end.is_none()));
    assert!(history.used.iter().any(|used| used.end == Some(used.start)));
}

#[test]
fn the_examples_are_billed_to_the_millisecond() {
    let history = history();
    let mut report = Report::new(history.contradictions);
    for used in &history.used {
        let ledger = bill(used, HOUR, true, NOW);
        report.add(&ledger.span, Some(used), ledger.check_by(used, &policy()));
    }
    let report = report.finish(true);
    assert!(report.fits, "{report:#?}");
    let duration = report.totals.duration;
    assert!(duration.used > 0);
    assert_eq!((duration.billed, duration.difference), (duration.used, 0));
    assert!(report.totals.measures["memory"].used > duration.used);
    assert_eq!(report.totals.measures["memory"].difference, 0);
}

//! The examples of the repository, without any program.

use std::fs::File;

use sampler_verify::api::Span;
use sampler_verify::events::{self, Columns, Event, FileTimes, Format};
use sampler_verify::{FindingKind, History, check};

use crate::truth::{HOUR, Ledger, NOW, bill, policy};

fn events() -> Vec<Event> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/events.ndjson");
    let reading = FileTimes {
        now: NOW,
        offset: 0,
    };
    events::read(
        File::open(path).unwrap(),
        Format::Ndjson,
        &Columns::default(),
        reading,
    )
    .unwrap()
}

fn history() -> History {
    History::of(events())
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
    let ledgers: Vec<Ledger> = history()
        .used
        .iter()
        .map(|used| bill(used, HOUR, true, NOW))
        .collect();
    let spans: Vec<Span> = ledgers.iter().map(|it| it.span.clone()).collect();
    let usages = |span: &Span| {
        let ledger = ledgers.iter().find(|it| it.span.id == span.id);
        ledger.unwrap().entries.clone()
    };
    let report = check(events(), spans.clone(), usages, &policy());
    assert!(report.fits, "{report:#?}");
    let duration = report.totals.duration;
    assert!(duration.used > 0);
    assert_eq!((duration.billed, duration.difference), (duration.used, 0));
    assert!(report.totals.measures["memory"].used > duration.used);
    assert_eq!(report.totals.measures["memory"].difference, 0);
    // One span fewer, and one that nobody reported.
    let mut others = spans;
    others[0].target.resource_instance_id = "ghost".into();
    let report = check(events(), others, usages, &policy());
    let kinds: Vec<FindingKind> = report
        .spans
        .iter()
        .flat_map(|row| &row.findings)
        .map(|it| it.kind)
        .collect();
    assert!(kinds.contains(&FindingKind::EventsWithoutSpan), "{kinds:?}");
    assert!(kinds.contains(&FindingKind::SpanWithoutEvents), "{kinds:?}");
    assert_eq!(report.totals.wrong, 2);
}

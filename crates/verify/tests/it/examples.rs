//! The examples of the repository, without any program.

use std::fs::File;

use sampler_verify::api::Span;
use sampler_verify::events::{self, Columns, Format};
use sampler_verify::moment::HOUR;
use sampler_verify::{FindingKind, History, check};

use crate::truth::{Ledger, NOW, bill, kinds, policy};

#[test]
fn the_examples_are_billed_to_the_millisecond() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/events.ndjson");
    let file = File::open(path).unwrap();
    let events = events::read(file, Format::Ndjson, &Columns::default(), NOW).unwrap();
    let history = History::of(events.clone());
    assert_eq!(history.contradictions, []);
    assert!(history.used.len() >= 8);
    assert!(history.used.iter().any(|used| used.end.is_none()));
    assert!(history.used.iter().any(|used| used.end == Some(used.start)));

    let ledgers = history.used.iter().map(|used| bill(used, HOUR, true, NOW));
    let ledgers: Vec<Ledger> = ledgers.collect();
    let mut spans: Vec<Span> = ledgers.iter().map(|it| it.span.clone()).collect();
    let usages = |span: &Span| {
        let ledger = ledgers.iter().find(|it| it.span.id == span.id);
        ledger.unwrap().entries.clone()
    };
    let report = check(events.clone(), &spans, usages, &policy());
    assert!(report.fits, "{report:#?}");
    let (duration, memory) = (report.totals.duration, report.totals.measures["memory"]);
    assert!(duration.used > 0 && memory.used > duration.used);
    assert_eq!((duration.billed, duration.difference), (duration.used, 0));
    assert_eq!((memory.billed, memory.difference), (memory.used, 0));
    // One span fewer, and one that nobody reported.
    spans[0].target.resource_instance_id = "ghost".into();
    let report = check(events, &spans, usages, &policy());
    let kinds: Vec<FindingKind> = report.spans.iter().flat_map(kinds).collect();
    assert!(kinds.contains(&FindingKind::EventsWithoutSpan), "{kinds:?}");
    assert!(kinds.contains(&FindingKind::SpanWithoutEvents), "{kinds:?}");
    assert_eq!(report.totals.wrong, 2);
}

//! A verifier that trusts nothing of Sampler.
//!
//! It takes the events of a provider ([`events`]) and the answers of the API ([`api`]), and works
//! out by itself whether each millisecond of each usage is billed once ([`check`]). It has no I/O,
//! no clock, and no code in common with the programs that bill: a mistake that both share would
//! stay unnoticed. The calendar, the numbers and the order of events are written here once more,
//! from the documents and not from the code.

pub mod api;
pub mod check;
pub mod events;
pub mod finding;
pub mod history;
pub mod matching;
pub mod moment;
pub mod quantity;
pub mod report;
pub mod target;
pub mod words;

pub use check::{Policy, SpanCheck, Verdict};
pub use finding::{Finding, FindingKind};
pub use history::{Contradiction, History, Used};
pub use matching::Matcher;
pub use moment::Granularity;
pub use report::Report;
pub use target::Target;

/// Compares events with all spans of their resources. `usages` has the ledger of each span, in its order.
pub fn check(
    events: Vec<events::Event>,
    spans: Vec<api::Span>,
    usages: impl Fn(&api::Span) -> Vec<api::Entry>,
    policy: &Policy,
) -> Report {
    let history = History::of(events);
    let mut report = Report::new(history.contradictions);
    let mut matcher = Matcher::new(history.used);
    for (span, place) in matcher.pairs(spans) {
        let used = place.map(|place| matcher.used(place));
        let mut check = SpanCheck::new(&span, used, policy);
        for entry in &usages(&span) {
            check.entry(entry);
        }
        report.add(&span, used, check.finish());
    }
    for place in matcher.left() {
        report.add_without_span(matcher.used(place), policy.now);
    }
    report.finish(false)
}

//! A verifier that trusts nothing of Sampler.
//!
//! It takes the events of a provider ([`events`]) and the answers of the API ([`api`]), and works out by itself
//! whether each millisecond of each usage is billed once ([`check`]). It has no I/O, no clock, and no code in
//! common with the programs that bill: a mistake that both share would stay unnoticed.

pub mod api;
pub mod check;
mod coverage;
pub mod events;
pub mod history;
pub mod matching;
pub mod moment;
pub mod quantity;
pub mod report;
pub mod target;
pub mod words;

pub use check::{Policy, SpanCheck};
pub use history::{Contradiction, History, Used};
pub use moment::Granularity;
pub use report::{Finding, FindingKind, Report, Row};
pub use target::Target;

/// Compares events with all spans of their resources. `usages` has the ledger of each span.
pub fn check(
    events: Vec<events::Event>,
    spans: &[api::Span],
    usages: impl Fn(&api::Span) -> Vec<api::Entry>,
    policy: &Policy,
) -> Report {
    let history = History::of(events);
    let places = matching::pairs(&history.used, spans);
    let rows = spans.iter().zip(&places).map(|(span, place)| {
        let used = place.map(|place| &history.used[place]);
        let mut check = SpanCheck::new(span, used, policy);
        for entry in usages(span) {
            check.entry(&entry);
        }
        check.finish()
    });
    let left = matching::left(&history.used, &places);
    let rows = rows.chain(left.map(|used| Row::without_span(used, policy.now)));
    Report::of(rows.collect(), history.contradictions, false)
}

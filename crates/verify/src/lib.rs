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

pub use check::{Policy, SpanCheck};
pub use history::{Contradiction, History, Used};
pub use moment::Granularity;
pub use report::{Finding, FindingKind, Report, Row};
pub use target::Target;

/// Counts in sentences.
pub mod words {
    use std::fmt::Display;

    /// `1 span`, `812 spans`.
    pub fn counted(count: impl Display, noun: &str) -> String {
        let ending = form(&count, "", "s");
        format!("{count} {noun}{ending}")
    }

    /// The form of a word that goes with a count: of one, or of none and many.
    pub fn form<'a>(count: impl Display, one: &'a str, many: &'a str) -> &'a str {
        if count.to_string() == "1" { one } else { many }
    }
}

/// Compares events with all spans of their resources. `usages` has the ledger of each span.
pub fn check(
    events: Vec<events::Event>,
    spans: &[api::Span],
    usages: impl Fn(&api::Span) -> Vec<api::Entry>,
    policy: &Policy,
) -> Report {
    let history = History::of(events);
    let (pairs, left) = matching::pairs(&history.used, spans);
    let rows = spans.iter().zip(pairs).map(|(span, used)| {
        let mut check = SpanCheck::new(span, used, policy);
        for entry in usages(span) {
            check.entry(&entry);
        }
        check.finish()
    });
    let left = left.into_iter();
    let rows = rows.chain(left.map(|used| Row::without_span(used, policy.now)));
    Report::of(rows.collect(), history.contradictions, false)
}

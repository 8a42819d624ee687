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
pub use history::{History, Used};
pub use matching::Matcher;
pub use moment::Granularity;
pub use report::Report;
pub use target::Target;

//! The backlog, and how fast it is sampled.

use sampler_domain::{ClosingMonth, Timestamp};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug)]
pub struct BacklogQuery {
    /// The time by which spans are due.
    pub now: Timestamp,
    pub closing: Option<ClosingMonth>,
}

/// The backlog: spans that wait for the workers. It is kept as it is declared here.
///
/// A span waits if it is due, or if its usage failed and is tried again later. Suspended spans are
/// counted apart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Backlog {
    /// Spans that wait.
    pub due: u64,
    /// Whether more than `due` wait: counting all would have taken too long.
    pub at_least: bool,
    /// When the one that waits longest fell due.
    pub oldest: Option<Timestamp>,
    pub suspended: u64,
    /// Intervals that all workers do in a second, while they have something to do.
    pub rate: f64,
    pub closing: Option<ClosingBacklog>,
    /// How long counting took, ms. The pause until the next count grows with it.
    pub cost: i64,
}

/// The backlog of the month that closes next, without suspended spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClosingBacklog {
    /// The first millisecond of the month.
    pub start: Timestamp,
    pub end: Timestamp,
    /// Spans with something left; the first of them, where very many are due.
    pub spans: u64,
}

/// Something that one instance writes for all.
#[derive(Clone, Debug, PartialEq)]
pub struct Published<T> {
    pub value: T,
    /// How long ago it was written, ms, by the store's own clock.
    pub age: i64,
}

//! The answers of the API, as far as they matter here. Other members are ignored.

use serde::Deserialize;

use crate::Target;
use crate::moment::Millis;
use crate::quantity::Measure;

#[derive(Clone, Debug, Deserialize)]
pub struct ListPage<T> {
    pub items: Vec<T>,
}

/// A span, as `GET /v1/spans/{id}` shows it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Span {
    pub id: String,
    pub target: Target,
    /// The quantities of each of its usages.
    pub measured_usage: Vec<Measure>,
    pub start: Millis,
    pub end: Option<Millis>,
    /// `open`, `stopped`, `complete` or `suspended`.
    pub state: String,
    pub start_event_id: Option<String>,
    /// Up to where it is billed.
    pub sampled_to: Millis,
    /// The usage that comes next.
    pub planned: Option<Planned>,
    /// Sampler's own proof.
    pub proof: Proof,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Planned {
    pub start: Millis,
    pub end: Millis,
    pub usage_id: String,
}

/// The totals of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Proof {
    /// From `since` to where it is billed.
    pub used: Millis,
    /// Signed durations that Abacus accepted.
    pub billed: Millis,
    /// Signed durations that an operator skipped.
    pub skipped: Millis,
    /// The part of `skipped` that the upstream may count, because a post had no answer.
    pub unanswered: Millis,
    /// Time that is neither billed nor skipped.
    pub difference: Millis,
    pub usages: u64,
    /// The start, or where the original Sampler had left off.
    pub since: Millis,
}

/// From where to where; backwards where usage is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Interval {
    pub start: Millis,
    pub end: Millis,
}

/// A usage of a span, as `GET /v1/spans/{id}/usages` shows it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Entry {
    /// The id under which Abacus knows it.
    pub id: String,
    pub span: String,
    pub interval: Interval,
    /// When Abacus counts it.
    pub timestamp: Millis,
    /// How many ms it bills.
    pub duration: Millis,
    /// `planned`, `refused`, `accepted`, `counted`, `set_aside` or `skipped`.
    pub state: String,
    /// Abacus's answer.
    pub status: Option<u16>,
    /// Its measures as they are posted: those of the span, and `duration`.
    pub measured_usage: Vec<Measure>,
    /// It was skipped after a post without an answer, so the upstream may count it.
    #[serde(default)]
    pub unanswered: bool,
}

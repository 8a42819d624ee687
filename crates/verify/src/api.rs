//! The answers of the API, as far as they matter here. Other members are ignored.

use std::fmt;

use serde::Deserialize;

use crate::Target;
use crate::moment::{InWords, Millis};
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
    /// Up to where it is billed, or skipped.
    pub sampled_to: Millis,
    /// What does not count upstream.
    #[serde(default)]
    pub excluded: Vec<Excluded>,
    /// What of that is sent again.
    #[serde(default)]
    pub again: Vec<Excluded>,
    /// Sampler's own proof.
    pub proof: Proof,
}

impl Span {
    /// All that was sampled and is not billed.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = &Excluded> {
        self.excluded.iter().chain(&self.again)
    }
}

/// Time that was sampled and does not count upstream; backwards where a correction was skipped.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Excluded {
    pub start: Millis,
    pub end: Millis,
    /// A late stop has taken back what is behind this time.
    #[serde(default)]
    pub back_to: Option<Millis>,
    /// A post of it had no answer, so the upstream may count it.
    #[serde(default)]
    pub unanswered: bool,
}

impl Excluded {
    /// The time that it leaves out, once what a late stop took back is gone.
    pub fn interval(&self) -> Interval {
        let (start, end) = (self.start, self.back_to.unwrap_or(self.end));
        Interval { start, end }
    }

    /// The time of its usages, whatever a late stop took back.
    pub fn whole(&self) -> Interval {
        let (start, end) = (self.start, self.end);
        Interval { start, end }
    }
}

/// What a span says about itself, ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Proof {
    /// From the start to where it is sampled.
    pub used: Millis,
    /// `used` without `skipped`.
    pub billed: Millis,
    pub skipped: Millis,
    /// What the upstream may count of `excluded` and `again`, in whole usages.
    pub unanswered: Millis,
    /// `billed`, less what its ledger says; not in lists.
    #[serde(default)]
    pub difference: Option<Millis>,
}

/// From where to where; backwards where usage is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Interval {
    pub start: Millis,
    pub end: Millis,
}

impl Interval {
    /// Its signed length, ms.
    pub fn length(self) -> i128 {
        i128::from(self.end) - i128::from(self.start)
    }

    /// Its earlier end and its later one.
    pub(crate) fn bounds(self) -> (Millis, Millis) {
        (self.start.min(self.end), self.start.max(self.end))
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (length, start, end) = (self.length(), InWords(self.start), InWords(self.end));
        write!(f, "{length} ms from {start} to {end}")
    }
}

/// A usage that the upstream has accepted, as `GET /v1/spans/{id}/usages` shows it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Entry {
    pub id: String,
    pub span: String,
    pub interval: Interval,
    /// When the upstream counts it.
    pub timestamp: Millis,
    /// How many ms it bills.
    pub duration: Millis,
    /// The upstream's answer.
    pub status: Option<u16>,
    /// The measures of the span, and `duration`.
    pub measured_usage: Vec<Measure>,
}

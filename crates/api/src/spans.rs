//! Spans, with proof of what was billed.

use sampler_domain::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Interval, Measure, Moment, Target};

/// A span.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Span {
    #[schema(example = "6b0067e75a449b4a91561b99")]
    pub id: String,
    pub target: Target,
    pub measured_usage: Vec<Measure>,
    #[schema(value_type = Moment)]
    pub start: Timestamp,
    #[schema(value_type = Option<Moment>)]
    pub end: Option<Timestamp>,
    #[schema(example = "open")]
    pub state: String,
    pub start_event_id: Option<String>,
    pub end_event_id: Option<String>,
    #[schema(value_type = Moment)]
    pub sampled_to: Timestamp,
    #[schema(value_type = Option<Moment>)]
    pub due_at: Option<Timestamp>,
    pub planned: Option<Plan>,
    pub delivery: Delivery,
    /// What was sampled and does not count upstream, by time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<Excluded>,
    /// What is sent again. It does not count until then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub again: Vec<Excluded>,
    pub proof: Proof,
}

/// The planned interval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Plan {
    #[schema(value_type = Moment)]
    pub start: Timestamp,
    #[schema(value_type = Moment)]
    pub end: Timestamp,
    pub usage_id: String,
}

/// The attempts to deliver the planned usage so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Delivery {
    /// Posts and lookups that failed.
    pub attempts: u32,
    /// A post of the planned usage had no answer: it may count upstream.
    pub unanswered: bool,
    pub last_error: Option<LastError>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LastError {
    #[schema(value_type = Moment)]
    pub at: Timestamp,
    pub status: Option<u16>,
    pub error: String,
}

/// A range of time that does not count upstream. It ends before it starts where a correction was skipped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Excluded {
    #[schema(value_type = Moment)]
    pub start: Timestamp,
    #[schema(value_type = Moment)]
    pub end: Timestamp,
    /// A late stop has taken back what is behind this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Moment>)]
    pub back_to: Option<Timestamp>,
    /// A post of it had no answer: it may count upstream.
    pub unanswered: bool,
    /// Why the upstream refused it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Excluded {
    /// The time that it leaves out, once what a late stop took back is gone.
    pub fn interval(&self) -> Interval {
        Interval {
            start: self.start,
            end: self.back_to.unwrap_or(self.end),
        }
    }
}

impl Proof {
    /// Whether all that has run is billed or skipped, once, as far as the ledger was read.
    pub fn is_settled(&self) -> bool {
        self.difference.unwrap_or_default() == 0 && self.unsampled == 0
    }

    /// Whether the ledger says something else, although every post was answered.
    pub fn is_broken(&self) -> bool {
        self.difference.unwrap_or_default() != 0 && self.unanswered == 0
    }
}

/// What the span says is billed, and what the ledger says. Lists leave the ledger out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Proof {
    /// From the start to `sampled_to`, in ms.
    pub used: i64,
    /// `used` without `skipped`.
    pub billed: i64,
    /// What does not count upstream: all of `excluded` and `again`.
    pub skipped: i64,
    /// What may count upstream all the same, because a post had no answer: whole usages, also where a stop has
    /// trimmed them.
    pub unanswered: i64,
    /// What has run and is not sampled yet: from `sampled_to` to the end, or to now. Negative where
    /// sampling went beyond the end, and is to be taken back.
    pub unsampled: i64,
    /// Entries of the ledger that are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usages: Option<u64>,
    /// Their durations together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<i64>,
    /// What the span says is billed since the first of these entries, less `ledger`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<i64>,
}

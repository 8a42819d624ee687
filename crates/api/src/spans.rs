//! Spans, with proof of what was billed.

use sampler_domain::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Measure, Moment, Target};

/// A span.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Span {
    #[schema(example = "6b0067e75a449b4a91561b99")]
    pub id: String,
    pub target: Target,
    pub measured_usage: Vec<Measure>,
    #[schema(value_type = Moment)]
    pub start: Timestamp,
    #[schema(value_type = Option<Moment>, required)]
    pub end: Option<Timestamp>,
    #[schema(example = "open")]
    pub state: String,
    #[schema(required)]
    pub start_event_id: Option<String>,
    #[schema(required)]
    pub end_event_id: Option<String>,
    #[schema(value_type = Moment)]
    pub sampled_to: Timestamp,
    #[schema(value_type = Option<Moment>, required)]
    pub due_at: Option<Timestamp>,
    #[schema(required)]
    pub planned: Option<Plan>,
    pub delivery: Delivery,
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
    pub attempts: u32,
    /// A post of the planned usage had no answer: it may count upstream.
    pub unanswered: bool,
    #[schema(required)]
    pub last_error: Option<LastError>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LastError {
    #[schema(value_type = Moment)]
    pub at: Timestamp,
    #[schema(required)]
    pub status: Option<u16>,
    pub error: String,
}

impl Proof {
    /// Whether all that has run is billed or skipped, once.
    pub fn is_settled(&self) -> bool {
        self.difference == 0 && self.unsampled == 0
    }
}

/// That each millisecond that is used is billed once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Proof {
    pub used: i64,
    pub billed: i64,
    pub skipped: i64,
    /// The part of `skipped` that may count upstream all the same: a post of it had no answer.
    pub unanswered: i64,
    pub difference: i64,
    /// What has run and is not billed yet: from `sampled_to` to the end, or to now. Negative where
    /// sampling went beyond the end, and is to be taken back.
    #[serde(default)]
    #[schema(required)]
    pub unsampled: i64,
    pub usages: u64,
    #[schema(value_type = Moment)]
    pub since: Timestamp,
}

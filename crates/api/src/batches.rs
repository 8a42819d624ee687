//! The answers to batches and dry runs.

use sampler_domain::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Measure, Moment, Problem};

/// The answer to a batch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Batch {
    pub accepted: usize,
    pub replayed: usize,
    pub refused: usize,
    pub failed: usize,
    pub results: Vec<BatchResult>,
}

/// The answer to one event of a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BatchResult {
    pub index: usize,
    pub status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub replayed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub span: Option<String>,
    /// Seconds, as in `Retry-After`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub retry_after: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub problem: Option<Problem>,
}

/// The answer to an event in a dry run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DryRun {
    /// The status of the answer that the event would get.
    pub would: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub replayed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub usages: Option<Vec<PostedUsage>>,
    /// There are more usages than are shown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub problem: Option<Problem>,
}

/// A usage as it is posted to the upstream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PostedUsage {
    pub dedup_id: String,
    #[schema(value_type = Moment)]
    pub start: Timestamp,
    #[schema(value_type = Moment)]
    pub end: Timestamp,
    pub organization_id: String,
    pub space_id: String,
    pub consumer_id: String,
    pub resource_id: String,
    pub plan_id: String,
    pub resource_instance_id: String,
    pub measured_usage: Vec<Measure>,
}

impl From<sampler_domain::Usage> for PostedUsage {
    fn from(usage: sampler_domain::Usage) -> Self {
        let target = usage.target;
        Self {
            dedup_id: usage.dedup_id,
            start: usage.start,
            end: usage.end,
            organization_id: target.organization_id.into(),
            space_id: target.space_id.into(),
            consumer_id: target.consumer_id.into(),
            resource_id: target.resource_id.into(),
            plan_id: target.plan_id.into(),
            resource_instance_id: target.resource_instance_id.into(),
            measured_usage: crate::measures(&usage.measured_usage),
        }
    }
}

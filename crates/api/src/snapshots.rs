//! Snapshots, and the answers to them.

use sampler_domain::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Event, Measure, Moment, Target};

/// The instances that really run, as their provider knows them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Snapshot {
    #[schema(example = "postgres")]
    pub resource_id: String,
    #[schema(value_type = Moment)]
    pub at: Timestamp,
    pub instances: Vec<SnapshotInstance>,
}

/// An instance that runs. Where `measured_usage` is left out, it is not compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotInstance {
    #[schema(example = "o")]
    pub organization_id: String,
    #[schema(example = "s")]
    pub space_id: String,
    #[schema(example = "c")]
    pub consumer_id: String,
    #[schema(example = "large")]
    pub plan_id: String,
    #[schema(example = "i")]
    pub resource_instance_id: String,
    /// Since when it runs, under any plan. It dates a proposed start, and is never compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Moment>, nullable = false)]
    pub since: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub measured_usage: Option<Vec<Measure>>,
}

/// The differences between spans and a snapshot, and events that would make them agree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotReport {
    #[schema(value_type = Moment)]
    pub at: Timestamp,
    /// Instances in the body.
    pub checked: u64,
    pub open_without_instance: Vec<OpenWithoutInstance>,
    pub instance_without_span: Vec<InstanceWithoutSpan>,
    pub differs: Vec<Differs>,
    /// There are more differences than are shown. An instance whose spans with other plans do not all
    /// fit is left out of all lists, together with these spans.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}

/// An open span whose instance does not run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OpenWithoutInstance {
    pub span: String,
    pub target: Target,
    #[schema(value_type = Moment)]
    pub start: Timestamp,
    pub proposal: Event,
}

/// An instance without a span.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InstanceWithoutSpan {
    pub target: Target,
    pub proposal: Event,
}

/// An instance whose span has another plan or other quantities.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Differs {
    pub span: String,
    pub expected: Said,
    pub kept: Said,
    pub proposal: Event,
}

/// The fields that differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Said {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub plan_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub measured_usage: Option<Vec<Measure>>,
}

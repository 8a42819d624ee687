//! The bodies of requests that report usage, and the answers to batches of them.

use std::collections::BTreeMap;

use sampler_domain::{Timestamp, named};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::given::{Distinct, Object, given};
use crate::{Measure, Moment, Problem, Target};

/// A usage of a resource starts.
#[derive(ToSchema)]
pub struct StartEvent {
    /// Tells a repeat from a new event.
    #[schema(example = "start-1", max_length = 1024, nullable = false)]
    pub id: Option<String>,
    #[schema(value_type = Moment)]
    pub timestamp: Timestamp,
    #[serde(flatten)]
    pub target: Target,
    pub measured_usage: Vec<Measure>,
}

/// A usage of a resource stops.
#[derive(ToSchema)]
pub struct StopEvent {
    /// Tells a repeat from a new event.
    #[schema(example = "stop-1", max_length = 1024, nullable = false)]
    pub id: Option<String>,
    #[schema(value_type = Moment)]
    pub timestamp: Timestamp,
    #[serde(flatten)]
    pub target: Target,
}

/// A usage continues with another plan or other quantities.
#[derive(ToSchema)]
pub struct UpdateEvent {
    #[schema(example = "update-1", min_length = 1, max_length = 1024)]
    pub id: String,
    #[schema(value_type = Moment)]
    pub timestamp: Timestamp,
    #[serde(flatten)]
    pub target: Target,
    pub measured_usage: Vec<Measure>,
    /// The fields of the target that were different before.
    #[schema(example = json!({ "plan_id": "small" }), nullable = false)]
    pub previous: Option<BTreeMap<String, String>>,
}

/// An event of any kind, as a receiver reads it. Which members it must have depends on its kind, which
/// in a batch is its `type`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Event {
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = EventType, required)]
    pub r#type: Option<String>,
    /// Tells a repeat from a new event.
    #[serde(default, deserialize_with = "given")]
    #[schema(example = "start-1", max_length = 1024, nullable = false)]
    pub id: Option<String>,
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Moment, required)]
    pub timestamp: Option<Value>,
    #[serde(default, deserialize_with = "given")]
    #[schema(required, nullable = false, example = "o")]
    pub organization_id: Option<String>,
    #[serde(default, deserialize_with = "given")]
    #[schema(required, nullable = false, example = "s")]
    pub space_id: Option<String>,
    #[serde(default, deserialize_with = "given")]
    #[schema(required, nullable = false, example = "c")]
    pub consumer_id: Option<String>,
    #[serde(default, deserialize_with = "given")]
    #[schema(required, nullable = false, example = "postgres")]
    pub resource_id: Option<String>,
    #[serde(default, deserialize_with = "given")]
    #[schema(required, nullable = false, example = "large")]
    pub plan_id: Option<String>,
    #[serde(default, deserialize_with = "given")]
    #[schema(required, nullable = false, example = "i")]
    pub resource_instance_id: Option<String>,
    /// Of a start or an update.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<Vec<Measure>>, nullable = false)]
    pub measured_usage: Option<Vec<Object<GivenMeasure>>>,
    /// Of an update: the fields of the target that were different before.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<BTreeMap<String, String>>, nullable = false)]
    pub previous: Option<Distinct<String>>,
}

/// A measure as a receiver reads it. The digits of its quantity are those that were sent.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GivenMeasure {
    #[serde(deserialize_with = "given")]
    pub measure: Option<String>,
    #[serde(deserialize_with = "given")]
    pub quantity: Option<Box<RawValue>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum EventType {
    Start,
    Stop,
    Update,
}

named! {
    pub EventType: Start = "start", Stop = "stop", Update = "update"
}

/// A `CloudEvent` 1.0, whose `data` has the other members of the event. Other attributes may be there, and mean
/// nothing. An attribute that is null counts as none.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub struct CloudEvent {
    #[schema(value_type = String, required, example = "1.0")]
    pub specversion: Option<String>,
    /// Ends in `.start`, `.stop` or `.update`.
    #[schema(value_type = String, required, example = "com.example.usage.start")]
    pub r#type: Option<String>,
    #[schema(value_type = String, required, example = "/brokers/postgres")]
    pub source: Option<String>,
    #[schema(value_type = String, required, example = "start-1")]
    pub id: Option<String>,
    #[schema(value_type = String, required, example = "2026-11-20T15:10:11.766Z")]
    pub time: Option<String>,
    #[schema(ignore)]
    pub datacontenttype: Option<String>,
    #[schema(ignore)]
    pub data_base64: Option<IgnoredAny>,
    #[schema(value_type = CloudEventData, required)]
    pub data: Option<Object<Event>>,
}

/// The `data` of a `CloudEvent`.
#[derive(ToSchema)]
pub struct CloudEventData {
    #[serde(flatten)]
    pub target: Target,
    /// Of a start or an update.
    #[schema(nullable = false)]
    pub measured_usage: Option<Vec<Measure>>,
    /// Of an update: the fields of the target that were different before.
    #[schema(example = json!({ "plan_id": "small" }), nullable = false)]
    pub previous: Option<BTreeMap<String, String>>,
}

/// A plan of a resource, and the plans of Abacus that it is mapped to. None of them may be empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[allow(clippy::struct_field_names, reason = "these are the names of the API")]
pub struct Mapping {
    #[serde(default)]
    #[schema(required, example = "postgres")]
    pub resource_id: String,
    #[serde(default)]
    #[schema(required, example = "large")]
    pub plan_id: String,
    #[serde(default)]
    #[schema(required, example = "standard")]
    pub metering_plan: String,
    #[serde(default)]
    #[schema(required, example = "standard")]
    pub rating_plan: String,
    #[serde(default)]
    #[schema(required, example = "standard")]
    pub pricing_plan: String,
}

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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BatchResult {
    pub index: usize,
    pub status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replayed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub span: Option<String>,
    /// Seconds, as in `Retry-After`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

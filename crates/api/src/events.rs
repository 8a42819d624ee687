//! The bodies of requests that report usage. The receiver reads them by hand, to name each wrong
//! field.

use std::collections::BTreeMap;

use sampler_domain::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::{Measure, Moment};

/// A usage of a resource starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StartEvent {
    /// Tells a repeat from a new event.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "start-1", max_length = 1024, nullable = false)]
    pub id: Option<String>,
    #[schema(value_type = Moment)]
    pub timestamp: Timestamp,
    #[schema(example = "o")]
    pub organization_id: String,
    #[schema(example = "s")]
    pub space_id: String,
    #[schema(example = "c")]
    pub consumer_id: String,
    #[schema(example = "postgres")]
    pub resource_id: String,
    #[schema(example = "large")]
    pub plan_id: String,
    #[schema(example = "i")]
    pub resource_instance_id: String,
    pub measured_usage: Vec<Measure>,
}

/// A usage of a resource stops.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StopEvent {
    /// Tells a repeat from a new event.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "stop-1", max_length = 1024, nullable = false)]
    pub id: Option<String>,
    #[schema(value_type = Moment)]
    pub timestamp: Timestamp,
    #[schema(example = "o")]
    pub organization_id: String,
    #[schema(example = "s")]
    pub space_id: String,
    #[schema(example = "c")]
    pub consumer_id: String,
    #[schema(example = "postgres")]
    pub resource_id: String,
    #[schema(example = "large")]
    pub plan_id: String,
    #[schema(example = "i")]
    pub resource_instance_id: String,
}

/// A usage continues with another plan or other quantities.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UpdateEvent {
    #[schema(example = "update-1", min_length = 1, max_length = 1024)]
    pub id: String,
    #[schema(value_type = Moment)]
    pub timestamp: Timestamp,
    #[schema(example = "o")]
    pub organization_id: String,
    #[schema(example = "s")]
    pub space_id: String,
    #[schema(example = "c")]
    pub consumer_id: String,
    #[schema(example = "postgres")]
    pub resource_id: String,
    #[schema(example = "large")]
    pub plan_id: String,
    #[schema(example = "i")]
    pub resource_instance_id: String,
    pub measured_usage: Vec<Measure>,
    /// The fields of the target that were different before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = json!({ "plan_id": "small" }), nullable = false)]
    pub previous: Option<BTreeMap<String, String>>,
}

/// One of the events of a batch: a start, a stop or an update, with its kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    pub r#type: EventType,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "start-1", max_length = 1024, nullable = false)]
    pub id: Option<String>,
    #[schema(value_type = Moment)]
    pub timestamp: Timestamp,
    #[schema(example = "o")]
    pub organization_id: String,
    #[schema(example = "s")]
    pub space_id: String,
    #[schema(example = "c")]
    pub consumer_id: String,
    #[schema(example = "postgres")]
    pub resource_id: String,
    #[schema(example = "large")]
    pub plan_id: String,
    #[schema(example = "i")]
    pub resource_instance_id: String,
    /// Of a start or an update.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub measured_usage: Option<Vec<Measure>>,
    /// Of an update.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = json!({ "plan_id": "small" }), nullable = false)]
    pub previous: Option<BTreeMap<String, String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum EventType {
    Start,
    Stop,
    Update,
}

impl EventType {
    pub fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Update => "update",
        }
    }
}

/// A `CloudEvent` 1.0, whose `data` has the other fields of the event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CloudEvent {
    #[schema(example = "1.0")]
    pub specversion: String,
    /// It ends in `.start`, `.stop` or `.update`.
    #[schema(example = "com.example.usage.start")]
    pub r#type: String,
    #[schema(example = "/brokers/postgres")]
    pub source: String,
    #[schema(example = "start-1")]
    pub id: String,
    #[schema(example = "2026-11-20T15:10:11.766Z")]
    pub time: String,
    #[schema(value_type = CloudEventData)]
    pub data: Value,
}

/// The `data` of a `CloudEvent`: that of a stop has no `measured_usage`, that of an update may have
/// `previous`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CloudEventData {
    #[schema(example = "o", min_length = 1, max_length = 1024)]
    pub organization_id: String,
    #[schema(example = "s", min_length = 1, max_length = 1024)]
    pub space_id: String,
    #[schema(example = "c", min_length = 1, max_length = 1024)]
    pub consumer_id: String,
    #[schema(example = "postgres", min_length = 1, max_length = 1024)]
    pub resource_id: String,
    #[schema(example = "large", min_length = 1, max_length = 1024)]
    pub plan_id: String,
    #[schema(example = "i", min_length = 1, max_length = 1024)]
    pub resource_instance_id: String,
    /// Of a start or an update.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub measured_usage: Option<Vec<Measure>>,
    /// The fields of the target that were different before an update.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = json!({ "plan_id": "small" }), nullable = false)]
    pub previous: Option<BTreeMap<String, String>>,
}

/// A plan of a resource, and the plans of Abacus that it is mapped to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[allow(clippy::struct_field_names, reason = "these are the names of the API")]
pub struct Mapping {
    #[schema(example = "postgres")]
    pub resource_id: String,
    #[schema(example = "large")]
    pub plan_id: String,
    #[schema(example = "standard")]
    pub metering_plan: String,
    #[schema(example = "standard")]
    pub rating_plan: String,
    #[schema(example = "standard")]
    pub pricing_plan: String,
}

//! The bodies of requests that report usage.

use std::collections::BTreeMap;

use sampler_domain::{Id, Quantity, Timestamp, named};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use crate::given::{Given, Member, Object, Read};
use crate::{Measure, Moment};

/// A usage of a resource starts.
#[derive(ToSchema)]
pub struct StartEvent {
    /// Tells a repeat from a new event.
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
#[derive(ToSchema)]
pub struct StopEvent {
    /// Tells a repeat from a new event.
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
#[derive(ToSchema)]
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
    #[schema(example = json!({ "plan_id": "small" }), nullable = false)]
    pub previous: Option<BTreeMap<String, String>>,
}

/// An event as a receiver reads it, with the members of all kinds. In a batch `type` says its kind.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Event {
    #[serde(default)]
    #[schema(value_type = EventType, required)]
    pub r#type: Given<EventType>,
    /// Tells a repeat from a new event.
    #[serde(default)]
    #[schema(value_type = Option<String>, example = "start-1", max_length = 1024, nullable = false)]
    pub id: Given<String>,
    #[serde(default)]
    #[schema(value_type = Moment, required)]
    pub timestamp: Given<Timestamp>,
    #[serde(default)]
    #[schema(value_type = String, required, example = "o")]
    pub organization_id: Given<Id>,
    #[serde(default)]
    #[schema(value_type = String, required, example = "s")]
    pub space_id: Given<Id>,
    #[serde(default)]
    #[schema(value_type = String, required, example = "c")]
    pub consumer_id: Given<Id>,
    #[serde(default)]
    #[schema(value_type = String, required, example = "postgres")]
    pub resource_id: Given<Id>,
    #[serde(default)]
    #[schema(value_type = String, required, example = "large")]
    pub plan_id: Given<Id>,
    #[serde(default)]
    #[schema(value_type = String, required, example = "i")]
    pub resource_instance_id: Given<Id>,
    /// Of a start or an update.
    #[serde(default)]
    #[schema(value_type = Option<Vec<Measure>>, nullable = false)]
    pub measured_usage: Given<Vec<Object<GivenMeasure>>>,
    /// Of an update.
    #[serde(default)]
    #[schema(value_type = Option<BTreeMap<String, String>>, example = json!({ "plan_id": "small" }), nullable = false)]
    pub previous: Given<Object<Previous>>,
}

/// A measure as a receiver reads it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GivenMeasure {
    pub measure: Given<Id>,
    pub quantity: Given<Quantity>,
}

/// The fields of the target that were different before an update.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(clippy::struct_field_names, reason = "these are the names of the API")]
pub struct Previous {
    pub organization_id: Given<Id>,
    pub space_id: Given<Id>,
    pub consumer_id: Given<Id>,
    pub resource_id: Given<Id>,
    pub plan_id: Given<Id>,
    pub resource_instance_id: Given<Id>,
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

impl Member for EventType {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Read<'de, Self, D> {
        let named = Self::from_name(&String::deserialize(deserializer)?);
        Ok(named.ok_or_else(|| "It must be \"start\", \"stop\" or \"update\".".to_owned()))
    }
}

/// A `CloudEvent` 1.0, whose `data` has the other members of the event. Other attributes may be there, and mean
/// nothing. An attribute that is null counts as none.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub struct CloudEvent {
    #[schema(value_type = String, required, example = "1.0")]
    pub specversion: Option<String>,
    /// It ends in `.start`, `.stop` or `.update`.
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

/// The `data` of a `CloudEvent`: that of a stop has no `measured_usage`, that of an update may have
/// `previous`.
#[derive(ToSchema)]
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
    #[schema(nullable = false)]
    pub measured_usage: Option<Vec<Measure>>,
    /// The fields of the target that were different before an update.
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

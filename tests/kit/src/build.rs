//! Events: their kinds, targets and bodies.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What an event says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The usage of something starts.
    Start,
    Stop,
}

impl Kind {
    /// The path that such events are posted to.
    pub fn path(self) -> &'static str {
        match self {
            Self::Start => "/v1/events/start",
            Self::Stop => "/v1/events/stop",
        }
    }
}

/// The values of a target's fields, in order. Unlike the product's own target, they may be anything.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Target(pub [String; 6]);

impl Target {
    /// The names of the fields.
    pub const FIELDS: [&'static str; 6] = sampler_domain::Target::FIELDS;

    /// Reads the fields, each by its name.
    pub fn read<'a>(text_of: impl Fn(&str) -> Option<&'a str>) -> Result<Self> {
        let mut target = Self::default();
        for (value, name) in target.0.iter_mut().zip(Self::FIELDS) {
            let text = text_of(name).with_context(|| format!("{name:?} is missing or not a text"));
            text?.clone_into(value);
        }
        Ok(target)
    }

    /// The body of a stop, without `id`.
    pub fn body(&self, timestamp: i64) -> Value {
        let mut body = json!({ "timestamp": timestamp });
        for (name, value) in Self::FIELDS.iter().zip(&self.0) {
            body[*name] = json!(value);
        }
        body
    }

    /// The instance alone.
    pub fn instance(&self) -> &str {
        let [.., instance] = &self.0;
        instance
    }
}

/// A start event for the target of that number: one measure of an integer quantity, and no `id`.
pub fn start_event(target: u64, timestamp: i64) -> Value {
    let mut event = stop_event(target, timestamp);
    event["measured_usage"] = json!([{ "measure": "memory", "quantity": 512 }]);
    event
}

/// A stop event for the target of that number, without `id`.
pub fn stop_event(target: u64, timestamp: i64) -> Value {
    let target = Target([
        format!("organization-{}", target % 10),
        format!("space-{}", target % 100),
        format!("consumer-{target}"),
        "postgres".to_owned(),
        "large".to_owned(),
        format!("instance-{target}"),
    ]);
    target.body(timestamp)
}

/// The same event with one field set to something else.
#[must_use]
pub fn with(mut event: Value, field: &str, value: impl Into<Value>) -> Value {
    event[field] = value.into();
    event
}

#[must_use]
pub fn without(mut event: Value, field: &str) -> Value {
    if let Some(fields) = event.as_object_mut() {
        fields.shift_remove(field);
    }
    event
}

//! Bodies of events.

use serde_json::{Value, json};

/// A start event for the target of that number: one measure of an integer quantity, and no `id`.
pub fn start_event(target: u64, timestamp: i64) -> Value {
    let mut event = stop_event(target, timestamp);
    event["measured_usage"] = json!([{ "measure": "memory", "quantity": 512 }]);
    event
}

/// A stop event for the target of that number, without `id`.
pub fn stop_event(target: u64, timestamp: i64) -> Value {
    json!({
        "timestamp": timestamp,
        "organization_id": format!("organization-{}", target % 10),
        "space_id": format!("space-{}", target % 100),
        "consumer_id": format!("consumer-{target}"),
        "resource_id": "postgres",
        "plan_id": "large",
        "resource_instance_id": format!("instance-{target}"),
    })
}

/// The same event with one field set to something else.
#[must_use]
pub fn with(mut event: Value, field: &str, value: impl Into<Value>) -> Value {
    event[field] = value.into();
    event
}

/// The same event without one field.
#[must_use]
pub fn without(mut event: Value, field: &str) -> Value {
    if let Some(fields) = event.as_object_mut() {
        fields.shift_remove(field);
    }
    event
}

//! Events and mappings as a provider writes them.

use serde_json::{Value, json};

use crate::world::{NOW, START, STOP};

/// The fields of a target, in their order.
pub(crate) const TARGET: [&str; 6] = [
    "organization_id",
    "space_id",
    "consumer_id",
    "resource_id",
    "plan_id",
    "resource_instance_id",
];

/// A start event without an id.
pub(crate) fn start(timestamp: i64) -> Value {
    let mut event = stop(timestamp);
    event["measured_usage"] = json!([
        {"measure": "instances", "quantity": 1},
        {"measure": "memory", "quantity": 0.5},
    ]);
    event
}

/// A stop event without an id.
pub(crate) fn stop(timestamp: i64) -> Value {
    json!({
        "timestamp": timestamp,
        "organization_id": "an organization",
        "space_id": "a space",
        "consumer_id": "app:a consumer",
        "resource_id": "postgres",
        "plan_id": "large",
        "resource_instance_id": "an instance",
    })
}

/// An update of the quantities.
pub(crate) fn resized(id: &str, at: i64) -> Value {
    let measures = json!([{"measure": "memory", "quantity": 4}]);
    by(id, &with(&start(at), "measured_usage", measures))
}

/// An update from the plan `large` to another one.
pub(crate) fn moved(at: i64) -> Value {
    let event = by("u", &with(&start(at), "plan_id", "larger"));
    with(&event, "previous", json!({"plan_id": "large"}))
}

pub(crate) fn mapping() -> Value {
    json!({
        "resource_id": "postgres",
        "plan_id": "large",
        "metering_plan": "standard",
        "rating_plan": "cheap",
        "pricing_plan": "fair",
    })
}

/// The same with a member set.
pub(crate) fn with(event: &Value, name: &str, value: impl Into<Value>) -> Value {
    let mut event = event.clone();
    event[name] = value.into();
    event
}

/// The same without a member.
pub(crate) fn without(event: &Value, name: &str) -> Value {
    let mut event = event.clone();
    let removed = event.as_object_mut().unwrap().shift_remove(name);
    assert!(removed.is_some(), "{name} is no member");
    event
}

/// The same of another instance.
pub(crate) fn on(instance: &str, event: &Value) -> Value {
    with(event, "resource_instance_id", instance)
}

pub(crate) fn by(id: &str, event: &Value) -> Value {
    with(event, "id", id)
}

/// A valid body for an address.
pub(crate) fn valid(path: &str) -> Value {
    match path {
        START => start(NOW),
        STOP => stop(NOW),
        _ => mapping(),
    }
}

/// The same as it is kept: an empty `id` is none, and a timestamp is an integer.
pub(crate) fn as_kept(event: &Value) -> Value {
    let mut event = event.clone();
    let members = event.as_object_mut().unwrap();
    if members.get("id") == Some(&json!("")) {
        members.shift_remove("id");
    }
    #[expect(clippy::cast_possible_truncation, reason = "what was accepted fits")]
    let millis = event["timestamp"].as_f64().map(|millis| millis as i64);
    millis.map_or_else(|| event.clone(), |millis| with(&event, "timestamp", millis))
}

/// The same with a value at a JSON Pointer, or without what is there.
pub(crate) fn put(event: &Value, at: &str, value: Option<Value>) -> Value {
    let mut event = event.clone();
    let (parent, name) = at.rsplit_once('/').unwrap();
    match (event.pointer_mut(parent).unwrap(), value) {
        (Value::Array(items), Some(value)) => items[name.parse::<usize>().unwrap()] = value,
        (Value::Object(members), Some(value)) => {
            members.insert(name.to_owned(), value);
        }
        (Value::Object(members), None) => {
            members.shift_remove(name);
        }
        (leaf, _) => panic!("nothing to put at {at} of {leaf}"),
    }
    event
}

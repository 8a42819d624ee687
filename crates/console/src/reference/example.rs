//! An example of a schema, made of the examples that its fields have.

use serde_json::{Map, Value, json};

use super::{requires, resolved};

/// Schemas within schemas that an example goes into.
const DEPTH_MAX: usize = 6;

/// An example; null where the schema says nothing.
pub(super) fn of(document: &Value, schema: &Value) -> Value {
    made(document, schema, DEPTH_MAX)
}

fn made(document: &Value, schema: &Value, depth: usize) -> Value {
    let schema = resolved(document, schema);
    let given = schema.get("example").or_else(|| schema["examples"].get(0));
    if let Some(given) = given {
        return given.clone();
    }
    if depth == 0 {
        return Value::Null;
    }
    let variants = schema.get("oneOf").or_else(|| schema.get("anyOf"));
    if let Some(variants) = variants.and_then(Value::as_array) {
        let first = variants.iter().find(|it| it["type"] != "null");
        return first.map_or(Value::Null, |it| made(document, it, depth - 1));
    }
    if let Some(first) = schema["enum"].get(0) {
        return first.clone();
    }
    let types = match &schema["type"] {
        Value::Array(types) => types.first().cloned().unwrap_or_default(),
        one => one.clone(),
    };
    match types.as_str() {
        Some("object") => object(document, schema, depth),
        Some("array") => json!([made(document, &schema["items"], depth - 1)]),
        Some("string") => json!("…"),
        Some("integer" | "number") => schema.get("minimum").cloned().unwrap_or(json!(0)),
        Some("boolean") => json!(false),
        _ => Value::Null,
    }
}

/// The fields that are required, and those that have an example.
fn object(document: &Value, schema: &Value, depth: usize) -> Value {
    let fields = schema["properties"].as_object().into_iter().flatten();
    let shown = fields.filter(|(name, field)| {
        let has_example = field.get("example").is_some() || field.get("examples").is_some();
        requires(schema, name) || has_example
    });
    let made = shown.map(|(name, field)| (name.clone(), made(document, field, depth - 1)));
    Value::Object(made.collect::<Map<String, Value>>())
}

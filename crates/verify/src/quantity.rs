//! Measures and their quantities, compared by value.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Smaller whole numbers are the same as doubles and as integers.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// A named quantity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    pub measure: String,
    #[serde(deserialize_with = "exact")]
    pub quantity: Value,
}

/// Reads a quantity so that numbers of one value are equal: `512`, `512.0` and `5.12e2`.
pub fn read(text: &str) -> Result<Value, serde_json::Error> {
    let value: Value = serde_json::from_str(text)?;
    // serde_json does not always find the nearest double.
    let nearest = text.parse::<f64>().ok().filter(|_| value.is_f64());
    Ok(unified(nearest.map_or(value, Value::from)))
}

fn exact<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    let raw = Box::<RawValue>::deserialize(deserializer)?;
    read(raw.get()).map_err(D::Error::custom)
}

/// Makes integers of whole numbers, also within lists and objects.
pub(crate) fn unified(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(unified).collect(),
        Value::Object(members) => {
            let members = members.into_iter();
            let members = members.map(|(name, value)| (name, unified(value)));
            members.collect()
        }
        Value::Number(number) => match number.as_f64() {
            Some(double) if double.fract() == 0.0 && double.abs() < EXACT_MAX => {
                #[expect(clippy::cast_possible_truncation, reason = "whole, and within 2^53")]
                let whole = double as i64;
                json!(whole)
            }
            _ => Value::Number(number),
        },
        other => other,
    }
}

/// The first measure in which two lists differ; their order means nothing.
pub fn difference<'a>(ours: &'a [Measure], theirs: &'a [Measure]) -> Option<&'a str> {
    let mut missing = ours.iter().filter(|measure| !theirs.contains(measure));
    let mut unknown = theirs.iter().filter(|measure| !ours.contains(measure));
    let repeated = theirs.last().filter(|_| ours.len() != theirs.len());
    let found = missing.next().or_else(|| unknown.next()).or(repeated)?;
    Some(&found.measure)
}

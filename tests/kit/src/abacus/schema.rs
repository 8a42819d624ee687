//! Usage documents, as strictly as Abacus reads them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A discrete usage that fits the schema.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// By which repeats are recognised, together with most of the other fields.
    pub dedup_id: String,
    /// The moment of the usage, ms since epoch.
    pub start: i64,
    /// The same moment again.
    pub end: i64,
    /// Who is charged.
    pub organization_id: String,
    /// The space in that organization.
    pub space_id: String,
    /// The consumer in that space.
    pub consumer_id: String,
    /// The kind of resource.
    pub resource_id: String,
    /// The plan of that resource.
    pub plan_id: String,
    pub resource_instance_id: String,
    /// What was used.
    pub measured_usage: Vec<Measure>,
}

/// One measure of a usage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// Its name.
    pub measure: String,
    /// Anything but null and a boolean.
    pub quantity: Value,
}

/// Why a document is answered with 400; the text is the `name` in the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Schema,
    Instance,
}

impl Refusal {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Schema => "Invalid usage: invalid schema",
            Self::Instance => "Invalid usage: invalid resource instance",
        }
    }
}

impl Usage {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Refusal> {
        let usage: Self = serde_json::from_slice(body).map_err(|_| Refusal::Schema)?;
        if !usage.is_sound() {
            return Err(Refusal::Schema);
        }
        if usage.target().iter().any(|id| id.is_empty()) {
            return Err(Refusal::Instance);
        }
        Ok(usage)
    }

    fn is_sound(&self) -> bool {
        let sound = |measure: &Measure| {
            let kind = !matches!(measure.quantity, Value::Null | Value::Bool(_));
            kind && !measure.measure.is_empty()
        };
        let timely = 0 <= self.start && self.start <= self.end;
        timely
            && !self.dedup_id.is_empty()
            && !self.measured_usage.is_empty()
            && self.measured_usage.iter().all(sound)
    }

    /// Organization, space, consumer, resource, plan and instance.
    pub fn target(&self) -> [&str; 6] {
        [
            &self.organization_id,
            &self.space_id,
            &self.consumer_id,
            &self.resource_id,
            &self.plan_id,
            &self.resource_instance_id,
        ]
    }

    /// The quantity of a measure as the metering function sees it: the last of a name wins.
    pub fn quantity(&self, measure: &str) -> Option<&Value> {
        let last = self
            .measured_usage
            .iter()
            .rev()
            .find(|entry| entry.measure == measure)?;
        Some(&last.quantity)
    }

    /// The length of the usage's interval in ms, negative for a correction; 0 if it has none.
    pub fn duration(&self) -> i128 {
        self.quantity("duration")
            .and_then(Value::as_i64)
            .map_or(0, i128::from)
    }

    /// The day (UTC) whose window the usage falls into, in days since epoch.
    pub fn day(&self) -> i64 {
        self.end.div_euclid(super::state::DAY)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::build::{with, without};

    fn usage() -> Value {
        json!({
            "dedup_id": "1", "start": 10, "end": 10, "organization_id": "o", "space_id": "s",
            "consumer_id": "c", "resource_id": "r", "plan_id": "p", "resource_instance_id": "i",
            "measured_usage": [
                { "measure": "memory", "quantity": 1 },
                { "measure": "duration", "quantity": -5 },
                { "measure": "memory", "quantity": 2 },
            ],
        })
    }

    fn parse(usage: &Value) -> Result<Usage, Refusal> {
        Usage::parse(usage.to_string().as_bytes())
    }

    #[test]
    fn reads_measures() {
        let usage = parse(&usage()).unwrap();
        assert_eq!(usage.duration(), -5);
        assert_eq!(usage.quantity("memory"), Some(&json!(2)));
        assert_eq!(usage.quantity("cores"), None);
    }

    #[test]
    fn every_field_is_required_and_no_other_taken() {
        for field in usage().as_object().unwrap().keys() {
            assert_eq!(
                parse(&without(usage(), field)),
                Err(Refusal::Schema),
                "{field}"
            );
        }
        assert_eq!(parse(&with(usage(), "more", 1)), Err(Refusal::Schema));
        assert_eq!(Usage::parse(b"not JSON"), Err(Refusal::Schema));
    }

    #[test]
    fn empty_ids_are_no_instance() {
        for field in [
            "organization_id",
            "space_id",
            "resource_instance_id",
            "plan_id",
        ] {
            assert_eq!(
                parse(&with(usage(), field, "")),
                Err(Refusal::Instance),
                "{field}"
            );
        }
        assert_eq!(parse(&with(usage(), "dedup_id", "")), Err(Refusal::Schema));
    }

    #[test]
    fn quantities_are_neither_null_nor_boolean() {
        let measured = |quantity: Value| {
            let measures = json!([{ "measure": "m", "quantity": quantity }]);
            parse(&with(usage(), "measured_usage", measures)).is_ok()
        };
        for quantity in [
            json!(1),
            json!(1.5),
            json!("x"),
            json!({ "a": null }),
            json!([]),
        ] {
            assert!(measured(quantity.clone()), "{quantity}");
        }
        assert!(!measured(Value::Null) && !measured(json!(true)));
        assert!(parse(&with(usage(), "measured_usage", json!([]))).is_err());
        let more = json!([{ "measure": "m", "quantity": 1, "unit": "x" }]);
        assert!(parse(&with(usage(), "measured_usage", more)).is_err());
    }

    #[test]
    fn moments_are_whole_and_in_order() {
        for (field, value) in [
            ("start", json!(11)),
            ("end", json!(9)),
            ("end", json!(10.5)),
        ] {
            assert!(
                parse(&with(usage(), field, value.clone())).is_err(),
                "{field} {value}"
            );
        }
    }
}

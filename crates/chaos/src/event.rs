//! Events as they are sent, and read back from the history.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The measure whose quantity is the name of the event that started the span. Quantities are kept
/// as given, so each usage says by itself which span it belongs to.
pub(crate) const TAG: &str = "span";

/// What the sampler appends to each usage.
pub(crate) const DURATION: &str = "duration";

/// The fields of a target, in order.
const TARGET_FIELDS: [&str; 6] = [
    "organization_id",
    "space_id",
    "consumer_id",
    "resource_id",
    "plan_id",
    "resource_instance_id",
];

/// What an event says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The usage of something starts.
    Start,
    /// It stops.
    Stop,
}

impl Kind {
    /// Where such events are posted.
    pub fn path(self) -> &'static str {
        match self {
            Self::Start => "/v1/events/start",
            Self::Stop => "/v1/events/stop",
        }
    }
}

/// What is used, and by whom: organization, space, consumer, resource, plan and instance.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Target(pub [String; 6]);

impl Target {
    /// The target of that number among those of a client.
    pub(crate) fn new(client: usize, number: usize) -> Self {
        Self([
            format!("organization-{}", client % 7),
            format!("space-{}", client % 13),
            format!("consumer-{client}"),
            "postgres".to_owned(),
            if number.is_multiple_of(2) {
                "small"
            } else {
                "large"
            }
            .to_owned(),
            format!("c{client}-t{number}"),
        ])
    }

    /// The instance alone, which names a target of a run.
    pub fn instance(&self) -> &str {
        let [.., instance] = &self.0;
        instance
    }
}

/// One measure of an event or a usage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// Its name.
    pub measure: String,
    /// How much.
    pub quantity: Value,
}

/// The body of a stop.
pub(crate) fn stop_body(id: &str, timestamp: i64, target: &Target) -> Value {
    let mut body = json!({ "id": id, "timestamp": timestamp });
    for (field, text) in TARGET_FIELDS.iter().zip(&target.0) {
        body[*field] = json!(text);
    }
    body
}

/// The body of a start. `tag` names the event.
pub(crate) fn start_body(
    id: &str,
    timestamp: i64,
    target: &Target,
    memory: i64,
    tag: &str,
) -> Value {
    let mut body = stop_body(id, timestamp, target);
    body["measured_usage"] = json!([
        { "measure": "memory", "quantity": memory },
        { "measure": TAG, "quantity": tag },
        { "measure": "share", "quantity": 0.25 },
    ]);
    body
}

/// What a valid body says; what is not valid says nothing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Said {
    /// By which repeats are recognised.
    pub(crate) id: String,
    /// When.
    pub(crate) timestamp: i64,
    /// Of what.
    pub(crate) target: Target,
    /// How much of it; empty in a stop.
    pub(crate) measures: Vec<Measure>,
}

impl Said {
    /// Reads a body; `None` where it lacks something, and so must be refused.
    pub(crate) fn read(kind: Kind, body: &Value) -> Option<Self> {
        let text = |field: &&str| body[*field].as_str().map(str::to_owned);
        let fields: Option<Vec<String>> = TARGET_FIELDS.iter().map(text).collect();
        let measures = match kind {
            Kind::Start => serde_json::from_value(body["measured_usage"].clone()).ok()?,
            Kind::Stop => Vec::new(),
        };
        Some(Self {
            id: body["id"].as_str()?.to_owned(),
            timestamp: body["timestamp"].as_i64()?,
            target: Target(fields?.try_into().ok()?),
            measures,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        let target = Target::new(3, 4);
        let start = start_body("a", 5, &target, 6, "tag");
        let said = Said::read(Kind::Start, &start).unwrap();
        assert_eq!(
            (said.id.as_str(), said.timestamp, &said.target),
            ("a", 5, &target)
        );
        assert_eq!(said.measures[1].quantity, json!("tag"));
        let stop = stop_body("a", 5, &target);
        assert_eq!(Said::read(Kind::Stop, &stop).unwrap().measures, []);
        assert_eq!(Said::read(Kind::Start, &stop), None);
    }

    #[test]
    fn what_lacks_a_field_says_nothing() {
        let body = stop_body("a", 5, &Target::new(3, 4));
        for field in ["id", "timestamp", "plan_id", "resource_instance_id"] {
            let mut lacking = body.clone();
            lacking.as_object_mut().unwrap().shift_remove(field);
            assert_eq!(Said::read(Kind::Stop, &lacking), None, "{field}");
        }
    }
}

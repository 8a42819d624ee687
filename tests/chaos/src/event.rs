//! Events as they are sent, and read back from the history.

use sampler_testkit::build::with;
pub use sampler_testkit::build::{Kind, Target};
use sampler_verify::quantity::Measure;
use serde_json::{Value, json};

/// The measure whose quantity is the name of the event that started the span. Quantities are kept
/// as given, so each usage says by itself which span it belongs to.
pub(crate) const TAG: &str = "span";

/// The resource of all targets.
pub(crate) const RESOURCE: &str = "postgres";

/// What the sampler appends to each usage.
pub(crate) const DURATION: &str = "duration";

/// The target of that number among those of a client.
pub(crate) fn target(client: usize, number: usize) -> Target {
    let plan = if number.is_multiple_of(2) {
        "small"
    } else {
        "large"
    };
    Target([
        format!("organization-{}", client % 7),
        format!("space-{}", client % 13),
        format!("consumer-{client}"),
        RESOURCE.to_owned(),
        plan.to_owned(),
        format!("c{client}-t{number}"),
    ])
}

pub(crate) fn stop_body(id: &str, timestamp: i64, target: &Target) -> Value {
    with(target.body(timestamp), "id", id)
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

/// The fields of a valid event.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EventFields {
    pub(crate) id: String,
    pub(crate) timestamp: i64,
    pub(crate) target: Target,
    /// How much of it; empty in a stop.
    pub(crate) measures: Vec<Measure>,
}

impl EventFields {
    /// Reads a body; `None` where it lacks something, and so must be refused.
    pub(crate) fn read(kind: Kind, body: &Value) -> Option<Self> {
        let measures = match kind {
            Kind::Start => serde_json::from_value(body["measured_usage"].clone()).ok()?,
            Kind::Stop => Vec::new(),
        };
        Some(Self {
            id: body["id"].as_str()?.to_owned(),
            timestamp: body["timestamp"].as_i64()?,
            target: Target::read(|field| body[field].as_str()).ok()?,
            measures,
        })
    }
}

//! Events as they are sent.

use sampler_testkit::build::with;
pub(crate) use sampler_testkit::build::{Kind, Target};
use serde_json::{Value, json};

/// The resource of all targets.
pub(crate) const RESOURCE: &str = "postgres";

/// The target of that number among those of a client.
pub(crate) fn target(client: usize, number: usize) -> Target {
    let plan = ["small", "large"][number % 2];
    Target([
        format!("organization-{}", client % 7),
        format!("space-{}", client % 13),
        format!("consumer-{client}"),
        RESOURCE.to_owned(),
        plan.to_owned(),
        format!("c{client}-t{number}"),
    ])
}

/// The body of an event. Measures of a start differ from one to the next.
pub(crate) fn body(kind: Kind, id: &str, timestamp: i64, target: &Target, memory: i64) -> Value {
    let body = with(target.body(timestamp), "id", id);
    if kind == Kind::Stop {
        return body;
    }
    let measures = json!([
        { "measure": "memory", "quantity": memory },
        { "measure": "share", "quantity": 0.25 },
    ]);
    with(body, "measured_usage", measures)
}

/// A body as one of a batch, and as a line of a file.
pub(crate) fn item(kind: &str, body: &Value) -> Value {
    with(body.clone(), "type", kind)
}

/// The name of a kind.
pub(crate) fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Start => "start",
        Kind::Stop => "stop",
    }
}

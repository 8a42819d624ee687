//! Events that would make the spans agree with a snapshot. Each can be posted as it is.

use sampler_domain::{Measures, Target, Timestamp};
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

/// An event. Its id follows from all else that it says, so proposing it again proposes the same.
#[derive(Serialize)]
pub(super) struct Proposal<'a> {
    r#type: &'static str,
    id: String,
    #[serde(flatten)]
    event: Event<'a>,
}

#[derive(Serialize)]
struct Event<'a> {
    timestamp: Timestamp,
    #[serde(flatten)]
    target: &'a Target,
    #[serde(skip_serializing_if = "Option::is_none")]
    measured_usage: Option<&'a Measures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    previous: Option<Previous<'a>>,
}

/// The fields that were different before an update.
#[derive(Serialize)]
struct Previous<'a> {
    plan_id: &'a str,
}

impl<'a> Proposal<'a> {
    pub(super) fn stop(target: &'a Target, at: Timestamp) -> Self {
        Self::new(
            "stop",
            Event {
                timestamp: at,
                target,
                measured_usage: None,
                previous: None,
            },
        )
    }

    pub(super) fn start(target: &'a Target, measures: &'a Measures, at: Timestamp) -> Self {
        Self::new(
            "start",
            Event {
                timestamp: at,
                target,
                measured_usage: Some(measures),
                previous: None,
            },
        )
    }

    /// The usage goes on with another plan than `plan`, or with other measures.
    pub(super) fn update(
        target: &'a Target,
        measures: &'a Measures,
        plan: &'a str,
        at: Timestamp,
    ) -> Self {
        let is_other = target.plan_id.as_str() != plan;
        Self::new(
            "update",
            Event {
                timestamp: at,
                target,
                measured_usage: Some(measures),
                previous: is_other.then_some(Previous { plan_id: plan }),
            },
        )
    }

    fn new(r#type: &'static str, event: Event<'a>) -> Self {
        // Without a version of its own, the text of a value has its members in order.
        let said =
            serde_json::to_value(&event).map(|event| Value::from(vec![r#type.into(), event]));
        let said = said.map(|said| said.to_string()).unwrap_or_default();
        let digest = Uuid::new_v5(&Uuid::NAMESPACE_OID, said.as_bytes());
        Self {
            r#type,
            id: format!("snapshot-{}", digest.simple()),
            event,
        }
    }
}

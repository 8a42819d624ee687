//! Events that would make the spans agree with a snapshot. Each can be posted as it is.

use std::collections::BTreeMap;

use sampler_api::{Event, EventType};
use sampler_domain::{Measures, Target, Timestamp};
use uuid::Uuid;

pub(super) fn stop(target: &Target, at: Timestamp) -> Event {
    with_id(event(EventType::Stop, target, at))
}

pub(super) fn start(target: &Target, measures: &Measures, at: Timestamp) -> Event {
    with_id(Event {
        measured_usage: Some(sampler_api::measures(measures.as_slice())),
        ..event(EventType::Start, target, at)
    })
}

/// The usage continues with another plan than `plan`, or with other measures.
pub(super) fn update(target: &Target, measures: &Measures, plan: &str, at: Timestamp) -> Event {
    let is_other = target.plan_id.as_str() != plan;
    with_id(Event {
        measured_usage: Some(sampler_api::measures(measures.as_slice())),
        previous: is_other.then(|| BTreeMap::from([("plan_id".to_owned(), plan.to_owned())])),
        ..event(EventType::Update, target, at)
    })
}

fn event(r#type: EventType, target: &Target, timestamp: Timestamp) -> Event {
    Event {
        r#type,
        id: None,
        timestamp,
        organization_id: target.organization_id.to_string(),
        space_id: target.space_id.to_string(),
        consumer_id: target.consumer_id.to_string(),
        resource_id: target.resource_id.to_string(),
        plan_id: target.plan_id.to_string(),
        resource_instance_id: target.resource_instance_id.to_string(),
        measured_usage: None,
        previous: None,
    }
}

/// The id follows from all else that the event says, so proposing it again proposes the same.
fn with_id(event: Event) -> Event {
    let said = serde_json::to_vec(&event).expect("texts, numbers and lists of these");
    let digest = Uuid::new_v5(&Uuid::NAMESPACE_OID, &said);
    Event {
        id: Some(format!("snapshot-{}", digest.simple())),
        ..event
    }
}

//! From JSON to events.

use std::mem::take;

use sampler_api as api;
use sampler_api::given::{Given, Object};
use sampler_api::{EventType, GivenMeasure, Previous};
use sampler_domain::{
    EventId, Id, Measure, Measures, MeasuresError, Quantity, StartEvent, StopEvent, Target,
    Timestamp, UpdateEvent,
};
use sampler_service::problem::{FieldError, Pointer, Problem};
use serde_json::Value;

use crate::errors::Errors;
use crate::json;
use crate::problems::INVALID_EVENT;

/// An event, as a provider reports it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Event {
    Start(StartEvent),
    Stop(StopEvent),
    Update(UpdateEvent),
}

impl Event {
    pub(crate) fn timestamp(&self) -> Timestamp {
        match self {
            Self::Start(event) => event.timestamp,
            Self::Stop(event) => event.timestamp,
            Self::Update(event) => event.timestamp,
        }
    }

    /// The resources that the event is about; an update may be about two.
    pub(crate) fn resources(&self) -> Vec<&str> {
        let (target, previous) = match self {
            Self::Start(event) => (&event.target, None),
            Self::Stop(event) => (&event.target, None),
            Self::Update(event) => (&event.target, Some(&event.previous)),
        };
        let targets = [Some(target), previous].into_iter().flatten();
        targets.map(|it| it.resource_id.as_str()).collect()
    }
}

/// The id and the timestamp of an event, as far as they could be read. A CloudEvent has them in its attributes.
pub(crate) struct Head {
    pub(crate) id: Option<EventId>,
    pub(crate) timestamp: Option<Timestamp>,
}

/// Reads an event of the kind that its address says.
pub(crate) fn read(kind: EventType, body: &[u8]) -> Result<Event, Problem> {
    let given: api::Event = json::read(body, &INVALID_EVENT)?;
    of_kind(kind, given)
}

/// Reads an event whose member `type` is its kind.
pub(crate) fn typed(body: &[u8]) -> Result<Event, Problem> {
    let mut given: api::Event = json::read(body, &INVALID_EVENT)?;
    let mut errors = Errors::default();
    let kind = errors.required("type", take(&mut given.r#type));
    errors.finish().map_err(invalid)?;
    of_kind(kind.expect("what could not be read was named"), given)
}

fn of_kind(kind: EventType, mut given: api::Event) -> Result<Event, Problem> {
    let mut errors = Errors::default();
    let head = Head {
        id: event_id(kind, take(&mut given.id), &mut errors),
        timestamp: errors.required("timestamp", take(&mut given.timestamp)),
    };
    finish(kind, head, given, errors)
}

/// The `id` of a start or stop may be left out; an empty one counts as none. Only by its id can a
/// repeat complete a half-kept update.
fn event_id(kind: EventType, given: Given<String>, errors: &mut Errors) -> Option<EventId> {
    match given {
        Given::Right(text) if !text.is_empty() => errors.id("id", text),
        _ if kind == EventType::Update => errors.required("id", Given::Missing),
        _ => None,
    }
}

/// Checks the other members of an event, whose kind, id and time are known or in `errors`.
pub(crate) fn finish(
    kind: EventType,
    head: Head,
    given: api::Event,
    mut errors: Errors,
) -> Result<Event, Problem> {
    let ids = [
        given.organization_id,
        given.space_id,
        given.consumer_id,
        given.resource_id,
        given.plan_id,
        given.resource_instance_id,
    ];
    let target = target(ids, &mut errors);
    let previous = if kind == EventType::Update {
        previous(given.previous, target.as_ref(), &mut errors)
    } else {
        errors.unknown("previous", &given.previous);
        None
    };
    let measures = if kind == EventType::Stop {
        errors.unknown("measured_usage", &given.measured_usage);
        None
    } else {
        measures(given.measured_usage, &mut errors)
    };
    errors.unknown("type", &given.r#type);
    errors.unknown("id", &given.id);
    errors.unknown("timestamp", &given.timestamp);
    errors.finish().map_err(invalid)?;
    let event = event_of(kind, head, target, previous, measures);
    Ok(event.expect("what could not be read was named"))
}

fn event_of(
    kind: EventType,
    Head { id, timestamp }: Head,
    target: Option<Target>,
    previous: Option<Target>,
    measures: Option<Measures>,
) -> Option<Event> {
    let (timestamp, target) = (timestamp?, target?);
    Some(match kind {
        EventType::Start => Event::Start(StartEvent {
            id,
            timestamp,
            target,
            measures: measures?,
        }),
        EventType::Stop => Event::Stop(StopEvent {
            id,
            timestamp,
            target,
        }),
        EventType::Update => Event::Update(UpdateEvent {
            id: id?,
            timestamp,
            previous: previous?,
            target,
            measures: measures?,
        }),
    })
}

/// The target of the ids in the order of [`Target::FIELDS`].
fn target(given: [Given<Id>; 6], errors: &mut Errors) -> Option<Target> {
    // All are read before any is missed, so that all are named.
    let mut given = Target::FIELDS.into_iter().zip(given);
    let ids: [Option<Id>; 6] = std::array::from_fn(|_| {
        let (name, id) = given.next()?;
        errors.required(name, id)
    });
    let [
        organization_id,
        space_id,
        consumer_id,
        resource_id,
        plan_id,
        resource_instance_id,
    ] = ids;
    Some(Target {
        organization_id: organization_id?,
        space_id: space_id?,
        consumer_id: consumer_id?,
        resource_id: resource_id?,
        plan_id: plan_id?,
        resource_instance_id: resource_instance_id?,
    })
}

/// The target of an update before it: the fields in `previous` are those that were different.
fn previous(
    given: Given<Object<Previous>>,
    target: Option<&Target>,
    errors: &mut Errors,
) -> Option<Target> {
    let mut target = target.cloned();
    let Given::Right(Object(given)) = given else {
        return target;
    };
    let ids = [
        given.organization_id,
        given.space_id,
        given.consumer_id,
        given.resource_id,
        given.plan_id,
        given.resource_instance_id,
    ];
    for (name, id) in Target::FIELDS.into_iter().zip(ids) {
        if id.is_missing() {
            continue;
        }
        let id = errors.required_at(id, |event| event.field("previous").field(name));
        if let (Some(target), Some(id)) = (&mut target, id) {
            target.set(name, id);
        }
    }
    target
}

const LIST: &str = "measured_usage";

fn measures(given: Given<Vec<Object<GivenMeasure>>>, errors: &mut Errors) -> Option<Measures> {
    let items = errors.required(LIST, given)?;
    let (mut measures, mut indices) = (Vec::with_capacity(items.len()), Vec::new());
    for (index, Object(item)) in items.into_iter().enumerate() {
        if let Some(measure) = measure(index, item, errors) {
            measures.push(measure);
            indices.push(index);
        }
    }
    let measures = Measures::new(measures);
    for error in measures.as_ref().err().into_iter().flatten() {
        let (MeasuresError::Duration(position) | MeasuresError::Twice(position, _)) = error;
        let at = |event: Pointer| event.field(LIST).index(indices[*position]).field("measure");
        errors.wrong_at(at, format!("The {error}."));
    }
    measures.ok()
}

/// One measure: exactly a name and a quantity. Where only the name can be read, null replaces the
/// quantity: names are compared with each other whatever else is wrong. The event is refused anyway.
fn measure(index: usize, given: GivenMeasure, errors: &mut Errors) -> Option<Measure> {
    let item = |event: Pointer| event.field(LIST).index(index);
    let measure = errors.required_at(given.measure, |event| item(event).field("measure"));
    let quantity = errors.required_at(given.quantity, |event| item(event).field("quantity"));
    Some(Measure {
        measure: measure?,
        quantity: quantity.unwrap_or_else(|| Quantity::from_store(Value::Null)),
    })
}

pub(crate) fn invalid(errors: Vec<FieldError>) -> Problem {
    json::invalid(&INVALID_EVENT, errors)
}

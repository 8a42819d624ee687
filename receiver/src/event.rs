//! From JSON to events.

use sampler_domain::{
    EventId, Measure, Measures, MeasuresError, Quantity, QuantityError, StartEvent, StopEvent,
    Target, Timestamp, UpdateEvent,
};
use sampler_service::problem::{FieldError, Pointer, Problem};
use serde_json::Value;

use crate::fields::{self, Fields, Step};
use crate::json::Json;
use crate::problems;

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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    Start,
    Stop,
    Update,
}

sampler_domain::named! {
    pub(crate) EventKind: Start = "start", Stop = "stop", Update = "update"
}

/// The id and the timestamp of an event, as far as they could be read. A CloudEvent has them in its attributes,
/// so they are read apart from the other fields.
pub(crate) struct Head {
    pub(crate) id: Option<EventId>,
    pub(crate) timestamp: Option<Timestamp>,
}

pub(crate) fn read(kind: EventKind, body: Json<'_>) -> Result<Event, Problem> {
    let mut fields = Fields::of(body).map_err(invalid)?;
    let head = Head {
        id: event_id(&mut fields, kind),
        timestamp: fields.required("timestamp", fields::timestamp),
    };
    finish(kind, fields, head)
}

/// Reads an event whose field `type` is its kind.
pub(crate) fn typed(mut body: Json<'_>) -> Result<Event, Problem> {
    let Json::Object(members) = &mut body else {
        return Err(invalid(no_object()));
    };
    let named = members
        .iter()
        .position(|member| member.0 == "type")
        .map(|position| members.remove(position).1);
    let detail = match named {
        None => "It is missing.",
        Some(named) => match named.as_str().and_then(EventKind::from_name) {
            Some(kind) => return read(kind, body),
            None => "It must be \"start\", \"stop\" or \"update\".",
        },
    };
    let pointer = Pointer::root().field("type");
    Err(invalid(vec![FieldError::new(pointer, detail)]))
}

/// Reads what is left of an event whose head is known.
pub(crate) fn finish(
    kind: EventKind,
    mut fields: Fields<'_>,
    head: Head,
) -> Result<Event, Problem> {
    let target = target(&mut fields);
    let previous = (kind == EventKind::Update).then(|| previous(&mut fields, target.as_ref()));
    let measures = (kind != EventKind::Stop).then(|| measures(&mut fields));
    fields.finish().map_err(invalid)?;
    let event = event_of(kind, head, target, previous.flatten(), measures.flatten());
    Ok(event.expect("what could not be read was named"))
}

fn event_of(
    kind: EventKind,
    Head { id, timestamp }: Head,
    target: Option<Target>,
    previous: Option<Target>,
    measures: Option<Measures>,
) -> Option<Event> {
    let (timestamp, target) = (timestamp?, target?);
    Some(match kind {
        EventKind::Start => Event::Start(StartEvent {
            id,
            timestamp,
            target,
            measures: measures?,
        }),
        EventKind::Stop => Event::Stop(StopEvent {
            id,
            timestamp,
            target,
        }),
        EventKind::Update => Event::Update(UpdateEvent {
            id: id?,
            timestamp,
            previous: previous?,
            target,
            measures: measures?,
        }),
    })
}

/// The `id` of a start or stop may be left out; an empty one counts as none. Only by its id can a
/// repeat complete a half-kept update.
fn event_id(fields: &mut Fields<'_>, kind: EventKind) -> Option<EventId> {
    if kind == EventKind::Update {
        return fields.required("id", |value| match value.as_str() {
            Some("") => Err("It is missing.".to_owned()),
            _ => fields::id(value),
        });
    }
    let id = fields.optional("id", |value| match value.as_str() {
        Some("") => Ok(None),
        _ => fields::id(value).map(Some),
    });
    id.flatten()
}

pub(crate) fn target(fields: &mut Fields<'_>) -> Option<Target> {
    // All are read before any is missed, so that all are named.
    let organization_id = fields.required("organization_id", fields::id);
    let space_id = fields.required("space_id", fields::id);
    let consumer_id = fields.required("consumer_id", fields::id);
    let resource_id = fields.required("resource_id", fields::id);
    let plan_id = fields.required("plan_id", fields::id);
    let resource_instance_id = fields.required("resource_instance_id", fields::id);
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
fn previous(fields: &mut Fields<'_>, target: Option<&Target>) -> Option<Target> {
    let mut previous = target.cloned();
    if let Some(value) = fields.take("previous") {
        fields.within(&[Step::Field("previous")], value, |fields| {
            for name in Target::FIELDS {
                let id = fields.optional(name, fields::id);
                if let (Some(previous), Some(id)) = (&mut previous, id) {
                    previous.set(name, id);
                }
            }
            Some(())
        });
    }
    previous
}

pub(crate) fn measures(fields: &mut Fields<'_>) -> Option<Measures> {
    const LIST: Step = Step::Field("measured_usage");
    let items = fields.required("measured_usage", fields::list)?;
    let (mut measures, mut indices) = (Vec::with_capacity(items.len()), Vec::new());
    for (index, item) in items.into_iter().enumerate() {
        if let Some(measure) = fields.within(&[LIST, Step::Index(index)], item, measure) {
            measures.push(measure);
            indices.push(index);
        }
    }
    let measures = Measures::new(measures);
    for error in measures.as_ref().err().into_iter().flatten() {
        let (MeasuresError::Duration(position) | MeasuresError::Twice(position, _)) = error;
        let name = [
            LIST,
            Step::Index(indices[*position]),
            Step::Field("measure"),
        ];
        fields.wrong_at(&name, format!("The {error}."));
    }
    measures.ok()
}

/// One measure: exactly a name and a quantity. Where only the name can be read, null replaces the
/// quantity: names are compared with each other whatever else is wrong. The event is refused anyway.
fn measure(fields: &mut Fields<'_>) -> Option<Measure> {
    let measure = fields.required("measure", fields::id);
    let quantity = fields.required("quantity", quantity);
    Some(Measure {
        measure: measure?,
        quantity: quantity.unwrap_or_else(|| Quantity::from_store(Value::Null)),
    })
}

fn quantity(value: Json<'_>) -> Result<Quantity, String> {
    let quantity = value
        .into_value()
        .map_err(QuantityError::from)
        .and_then(Quantity::new);
    quantity.map_err(|error| format!("It {error}."))
}

pub(crate) fn no_object() -> Vec<FieldError> {
    vec![FieldError::new(Pointer::root(), "It must be an object.")]
}

pub(crate) fn invalid(errors: Vec<FieldError>) -> Problem {
    let detail = "The body is JSON, but not what is expected here. Nothing was kept.";
    Problem::new(&problems::INVALID_EVENT, detail).errors(errors)
}

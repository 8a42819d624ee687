//! From JSON to events.

use sampler_api as api;
use sampler_api::given::{Distinct, Object, TWICE};
use sampler_api::{EventType, GivenMeasure};
use sampler_domain::{
    EventId, Measure, Measures, MeasuresError, Quantity, QuantityError, StartEvent, StopEvent,
    Target, Timestamp, UpdateEvent, number,
};
use sampler_service::problem::Problem;
use sampler_service::security::Grant;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::cloud_event::{self, Attributes};
use crate::json::{self, Errors};
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

    pub(crate) fn target(&self) -> &Target {
        match self {
            Self::Start(event) => &event.target,
            Self::Stop(event) => &event.target,
            Self::Update(event) => &event.target,
        }
    }
}

/// How an event is written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form<'r> {
    /// The address names its kind.
    Addressed(EventType),
    /// A member `type` says so.
    Typed,
    /// A CloudEvent in structured mode.
    CloudEvent,
    /// The data of a CloudEvent in binary mode.
    Binary(Attributes<'r>),
}

/// An event as it was given. A CloudEvent has its kind, its id and its time in its attributes.
#[derive(Default)]
pub(crate) struct Given {
    pub(crate) kind: Option<EventType>,
    pub(crate) id: Option<EventId>,
    pub(crate) timestamp: Option<Timestamp>,
    /// The other fields, and the member of the body in which they are, if they are in one.
    pub(crate) data: Option<api::Event>,
    pub(crate) within: Option<&'static str>,
    pub(crate) errors: Errors,
}

/// Reads an event: its structure, then whether the token is for its resources, then its values. So a client
/// that may not write to a resource learns nothing of its values.
pub(crate) fn read(body: &[u8], form: Form<'_>, grant: &Grant) -> Result<Event, Problem> {
    let given = match form {
        Form::Addressed(kind) => Given::of_kind(kind, json::read(body, &INVALID_EVENT)?),
        Form::Typed => typed(json::read(body, &INVALID_EVENT)?)?,
        Form::CloudEvent => cloud_event::structured(json::read(body, &INVALID_EVENT)?),
        Form::Binary(attributes) => attributes.with(json::read(body, &INVALID_EVENT)?),
    };
    given.require(grant)?;
    given.check().map_err(|problem| {
        // No quantity was looked into before.
        json::require_json(body).err().unwrap_or(problem)
    })
}

fn typed(mut given: api::Event) -> Result<Given, Problem> {
    let named = given.r#type.take();
    if let Some(kind) = named.as_deref().and_then(EventType::from_name) {
        return Ok(Given::of_kind(kind, given));
    }
    let mut errors = Errors::default();
    if errors.required("type", named).is_some() {
        let expected = "The value must be \"start\", \"stop\" or \"update\".";
        errors.wrong("type", expected);
    }
    Err(errors.refusal(&INVALID_EVENT))
}

impl Given {
    /// The `id` of a start or stop may be left out; an empty one counts as none. Only by its id can a
    /// repeat complete a half-kept update.
    fn of_kind(kind: EventType, mut data: api::Event) -> Self {
        let mut errors = Errors::default();
        let mut id = data.id.take().filter(|id| !id.is_empty());
        if kind == EventType::Update {
            id = errors.required("id", id);
        }
        let id = id.and_then(|id| errors.id("id", id));
        let timestamp = errors.required("timestamp", data.timestamp.take());
        let timestamp = timestamp.and_then(|given| errors.time("timestamp", &given));
        Self {
            kind: Some(kind),
            id,
            timestamp,
            data: Some(data),
            within: None,
            errors,
        }
    }

    /// Requires that the token is for the resource, and for the one that an update leaves.
    fn require(&self, grant: &Grant) -> Result<(), Problem> {
        let data = self.data.as_ref();
        grant.require(data.and_then(|data| data.resource_id.as_deref()))?;
        let Some(Distinct(previous)) = data.and_then(|data| data.previous.as_ref()) else {
            return Ok(());
        };
        let resource = previous.iter().find(|(name, _)| name == "resource_id");
        resource.map_or(Ok(()), |(_, id)| grant.require(Some(id)))
    }

    fn check(self) -> Result<Event, Problem> {
        let Self {
            id,
            timestamp,
            within,
            mut errors,
            ..
        } = self;
        let (Some(kind), Some(mut given)) = (self.kind, self.data) else {
            // Which members there should be is not known.
            return Err(errors.refusal(&INVALID_EVENT));
        };
        let mut of_data = Errors::default();
        let target = target(&mut given, &mut of_data);
        let mut previous = None;
        match given.previous.take() {
            Some(Distinct(fields)) if kind == EventType::Update => {
                previous = Some(before(target.clone(), fields, &mut of_data));
            }
            other => of_data.unknown("previous", other.as_ref()),
        }
        let mut measures = Measures::default();
        if kind == EventType::Stop {
            of_data.unknown(LIST, given.measured_usage.as_ref());
        } else if let Some(items) = of_data.required(LIST, given.measured_usage) {
            measures = read_measures(items, &mut of_data);
        }
        of_data.unknown("type", given.r#type.as_ref());
        of_data.unknown("id", given.id.as_ref());
        of_data.unknown("timestamp", given.timestamp.as_ref());
        errors.join(within, of_data);
        errors.finish(&INVALID_EVENT)?;
        let timestamp = timestamp.expect("a time that is missing is an error");
        Ok(match kind {
            EventType::Start => Event::Start(StartEvent {
                id,
                timestamp,
                target,
                measures,
            }),
            EventType::Stop => Event::Stop(StopEvent {
                id,
                timestamp,
                target,
            }),
            EventType::Update => Event::Update(UpdateEvent {
                id: id.expect("an id that is missing is an error"),
                timestamp,
                previous: previous.unwrap_or_else(|| target.clone()),
                target,
                measures,
            }),
        })
    }
}

/// The target; where a field is wrong, that is in `errors`.
fn target(given: &mut api::Event, errors: &mut Errors) -> Target {
    let ids = [
        &mut given.organization_id,
        &mut given.space_id,
        &mut given.consumer_id,
        &mut given.resource_id,
        &mut given.plan_id,
        &mut given.resource_instance_id,
    ];
    let mut target = Target::from_store([""; 6]);
    for (name, given) in Target::FIELDS.into_iter().zip(ids) {
        let text = errors.required(name, given.take());
        if let Some(id) = text.and_then(|text| errors.id(name, text)) {
            target.set(name, id);
        }
    }
    target
}

/// The target of an update before it: the fields in `previous` are those that were different.
fn before(mut target: Target, previous: Vec<(String, String)>, errors: &mut Errors) -> Target {
    let mut within = Errors::default();
    for (name, text) in previous {
        if !Target::FIELDS.contains(&name.as_str()) {
            within.unknown(&name, Some(&text));
        } else if let Some(id) = within.id(&name, text) {
            target.set(&name, id);
        }
    }
    errors.nest("previous", within);
    target
}

const LIST: &str = "measured_usage";

/// The measures; where one is wrong, that is in `errors`.
fn read_measures(items: Vec<Object<GivenMeasure>>, errors: &mut Errors) -> Measures {
    let mut within = Errors::default();
    let (mut measures, mut indices) = (Vec::with_capacity(items.len()), Vec::new());
    for (index, Object(item)) in items.into_iter().enumerate() {
        let mut of_item = Errors::default();
        if let Some(measure) = measure(item, &mut of_item) {
            measures.push(measure);
            indices.push(index);
        }
        within.nest(&index, of_item);
    }
    let measures = Measures::new(measures).unwrap_or_else(|wrong| {
        for error in wrong {
            let (MeasuresError::Duration(position) | MeasuresError::Twice(position, _)) = error;
            let mut of_item = Errors::default();
            of_item.wrong("measure", format!("The {error}."));
            within.nest(&indices[position], of_item);
        }
        Measures::default()
    });
    errors.nest(LIST, within);
    measures
}

/// One measure: exactly a name and a quantity. Where only the name can be read, null replaces the
/// quantity: names are compared with each other whatever else is wrong. The event is refused anyway.
fn measure(given: GivenMeasure, errors: &mut Errors) -> Option<Measure> {
    let name = errors.required("measure", given.measure);
    let name = name.and_then(|name| errors.id("measure", name));
    let written = errors.required("quantity", given.quantity);
    let quantity = written.and_then(|written| {
        let read = quantity(&written);
        read.map_err(|detail| errors.wrong("quantity", detail)).ok()
    });
    Some(Measure {
        measure: name?,
        quantity: quantity.unwrap_or_else(|| Quantity::from_store(Value::Null)),
    })
}

fn quantity(written: &RawValue) -> Result<Quantity, String> {
    let value = exact(written, 0)?;
    Quantity::new(value).map_err(|error| format!("The quantity {error}."))
}

/// A value, whose numbers are read from their texts: `serde_json` would round them.
fn exact(written: &RawValue, depth: usize) -> Result<Value, String> {
    let text = written.get();
    let unreadable = |error: serde_json::Error| {
        if error.to_string().starts_with(TWICE) {
            return "The quantity has two members of one name.".to_owned();
        }
        format!("The quantity {}.", QuantityError::Kind)
    };
    match text.as_bytes() {
        [b'[' | b'{', ..] if depth >= Quantity::DEPTH_MAX => {
            Err(format!("The quantity {}.", QuantityError::Depth))
        }
        [b'[', ..] => {
            let items: Vec<&RawValue> = serde_json::from_str(text).map_err(unreadable)?;
            items.into_iter().map(|it| exact(it, depth + 1)).collect()
        }
        [b'{', ..] => {
            let read: Distinct<&RawValue> = serde_json::from_str(text).map_err(unreadable)?;
            let members = read.0.into_iter();
            let members = members.map(|(name, it)| Ok((name, exact(it, depth + 1)?)));
            members.collect::<Result<_, _>>().map(Value::Object)
        }
        [b'-' | b'0'..=b'9', ..] => {
            let number = number::read(text).map_err(QuantityError::from);
            number
                .map(Value::Number)
                .map_err(|error| format!("The quantity {error}."))
        }
        _ => serde_json::from_str(text).map_err(unreadable),
    }
}

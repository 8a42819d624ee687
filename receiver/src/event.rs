//! From JSON to events and mappings: each wrong field is named, all of them at once.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use sampler_abacus::Mapping;
use sampler_domain::{
    EventId, Id, Measure, Measures, MeasuresError, Quantity, QuantityError, StartEvent, StopEvent,
    Target, Timestamp, UpdateEvent,
};
use sampler_service::problem::{FieldError, Pointer, Problem};
use serde_json::Value;

use crate::json::Json;
use crate::problems;

/// An event, as a provider reports it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Event {
    /// A usage starts.
    Start(StartEvent),
    /// A usage stops.
    Stop(StopEvent),
    /// A usage goes on as another.
    Update(UpdateEvent),
}

impl Event {
    /// When it took place.
    pub(crate) fn timestamp(&self) -> Timestamp {
        match self {
            Self::Start(event) => event.timestamp,
            Self::Stop(event) => event.timestamp,
            Self::Update(event) => event.timestamp,
        }
    }
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    Start,
    Stop,
    Update,
}

impl EventKind {
    const ALL: [Self; 3] = [Self::Start, Self::Stop, Self::Update];

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Update => "update",
        }
    }

    /// The kind that is called so.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// The identity of an event, as far as it could be read.
pub(crate) struct Head {
    pub(crate) id: Option<EventId>,
    pub(crate) timestamp: Option<Timestamp>,
}

/// Reads an event of this kind.
pub(crate) fn read(kind: EventKind, body: Json<'_>) -> Result<Event, Problem> {
    let mut fields = Fields::of(body)?;
    let head = fields.head(kind);
    finish(kind, fields, head)
}

/// Reads an event whose member `type` is its kind.
pub(crate) fn typed(mut body: Json<'_>) -> Result<Event, Problem> {
    let Json::Object(members) = &mut body else {
        return Err(no_object());
    };
    let named = members.iter().position(|member| member.0 == "type");
    let named = named.map(|position| members.remove(position).1);
    let wrong = |detail: &str| {
        let pointer = Pointer::root().field("type");
        invalid([FieldError::new(pointer, detail)])
    };
    let named = named.ok_or_else(|| wrong("It is missing."))?;
    let kind = named.as_str().and_then(EventKind::of_name);
    let kind = kind.ok_or_else(|| wrong("It must be \"start\", \"stop\" or \"update\"."))?;
    read(kind, body)
}

/// Reads what is left of an event whose head is known. All that is wrong is named together.
pub(crate) fn finish(
    kind: EventKind,
    mut fields: Fields<'_>,
    head: Head,
) -> Result<Event, Problem> {
    let Head { id, timestamp } = head;
    let target = fields.target();
    let previous = (kind == EventKind::Update).then(|| fields.previous(target.as_ref()));
    let measures = (kind != EventKind::Stop).then(|| fields.measures());
    fields.finish()?;
    let event = || {
        let (timestamp, target) = (timestamp?, target?);
        Some(match kind {
            EventKind::Start => Event::Start(StartEvent {
                id,
                timestamp,
                target,
                measures: measures??,
            }),
            EventKind::Stop => Event::Stop(StopEvent {
                id,
                timestamp,
                target,
            }),
            EventKind::Update => Event::Update(UpdateEvent {
                id: id?,
                timestamp,
                previous: previous??,
                target,
                measures: measures??,
            }),
        })
    };
    Ok(event().expect("what could not be read was named"))
}

/// Decoded as often as it takes to leave nothing encoded.
fn leads_elsewhere(segment: &str) -> bool {
    let mut text = Cow::Borrowed(segment);
    loop {
        if text == "." || text.contains(['/', '\\']) || text.contains("..") {
            return true;
        }
        let decoded = percent_decode_str(&text).decode_utf8_lossy().into_owned();
        if decoded == text {
            return false;
        }
        text = Cow::Owned(decoded);
    }
}

/// Reads a mapping.
pub(crate) fn mapping(body: Json<'_>) -> Result<Mapping, Problem> {
    let mut fields = Fields::of(body)?;
    let mut segment = |name| fields.segment(name);
    let resource_id = segment("resource_id");
    let plan_id = segment("plan_id");
    let metering_plan = segment("metering_plan");
    let rating_plan = segment("rating_plan");
    let pricing_plan = segment("pricing_plan");
    fields.finish()?;
    let all = (|| {
        Some(Mapping {
            resource_id: resource_id?,
            plan_id: plan_id?,
            metering_plan: metering_plan?,
            rating_plan: rating_plan?,
            pricing_plan: pricing_plan?,
        })
    })();
    Ok(all.expect("what could not be read was named"))
}

/// The members of a body, as long as they have not been read, and what is wrong with those that
/// have.
pub(crate) struct Fields<'b> {
    members: Vec<(Cow<'b, str>, Option<Json<'b>>)>,
    errors: Vec<FieldError>,
    root: Root,
}

/// Where in a body the members are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Root {
    /// The body consists of them.
    Body,
    /// In the data of a CloudEvent.
    Data,
    /// In an instance of a snapshot, by its place there.
    Instance(usize),
}

impl Root {
    pub(crate) fn field(self, name: &str) -> Pointer {
        self.pointer().field(name)
    }

    pub(crate) fn pointer(self) -> Pointer {
        match self {
            Self::Instance(index) => Pointer::root().field("instances").index(index),
            Self::Body => Pointer::root(),
            Self::Data => Pointer::root().field("data"),
        }
    }
}

impl<'b> Fields<'b> {
    fn of(body: Json<'b>) -> Result<Self, Problem> {
        Self::within(Root::Body, Some(body), Vec::new())
    }

    /// The members of the object at a place, behind what is wrong already.
    ///
    /// # Errors
    /// 400 where there is no object.
    pub(crate) fn within(
        root: Root,
        body: Option<Json<'b>>,
        mut errors: Vec<FieldError>,
    ) -> Result<Self, Problem> {
        let wrong = match body {
            Some(Json::Object(members)) => {
                let members = members.into_iter();
                return Ok(Self {
                    members: members.map(|(name, value)| (name, Some(value))).collect(),
                    errors,
                    root,
                });
            }
            Some(_) => "It must be an object.",
            None => "It is missing.",
        };
        errors.push(FieldError::new(root.pointer(), wrong));
        Err(invalid(errors))
    }

    /// The errors so far.
    pub(crate) fn into_errors(self) -> Vec<FieldError> {
        self.errors
    }

    /// The value of a member. Its name stays, so that none of those behind it has to move up.
    pub(crate) fn take(&mut self, name: &'static str) -> Option<Json<'b>> {
        let mut members = self.members.iter_mut();
        members.find(|member| member.0 == name)?.1.take()
    }

    /// All is well if every member was read and none was wrong.
    fn finish(self) -> Result<(), Problem> {
        let errors = self.finish_with_errors();
        if errors.is_empty() {
            Ok(())
        } else {
            Err(invalid(errors))
        }
    }

    /// The errors, with one for each member that was not read.
    pub(crate) fn finish_with_errors(mut self) -> Vec<FieldError> {
        for (name, value) in &self.members {
            if value.is_some() {
                let pointer = self.root.field(name);
                self.errors
                    .push(FieldError::new(pointer, "There is no field of this name."));
            }
        }
        self.errors
    }

    pub(crate) fn wrong(&mut self, pointer: Pointer, detail: impl AsRef<str>) {
        self.errors
            .push(FieldError::new(pointer, format!("It {}.", detail.as_ref())));
    }

    fn required(&mut self, name: &'static str) -> Option<Json<'b>> {
        let (root, value) = (self.root, self.take(name));
        self.present(|| root.field(name), value)
    }

    /// `pointer` is made where something is wrong, and nowhere else: most fields are right.
    fn id_of(&mut self, pointer: impl Fn() -> Pointer, value: Json<'_>) -> Option<Id> {
        let Json::Text(text) = value else {
            self.wrong(pointer(), "must be a string");
            return None;
        };
        match Id::new(text) {
            Ok(id) => Some(id),
            Err(error) => {
                self.wrong(pointer(), error.to_string());
                None
            }
        }
    }

    fn id(&mut self, name: &'static str) -> Option<Id> {
        let (root, value) = (self.root, self.required(name)?);
        self.id_of(|| root.field(name), value)
    }

    /// An id that becomes a segment of a path. An id that could lead to another path is refused,
    /// also one that a gateway in between would decode to it.
    fn segment(&mut self, name: &'static str) -> Option<Id> {
        let id = self.id(name)?;
        if leads_elsewhere(id.as_str()) {
            self.wrong(
                self.root.field(name),
                "must not be \".\", nor contain \"/\", \"\\\" or \"..\"",
            );
            return None;
        }
        Some(id)
    }

    fn head(&mut self, kind: EventKind) -> Head {
        Head {
            id: self.event_id(kind),
            timestamp: self.timestamp(),
        }
    }

    /// The `id` of a start or stop may be left out; an empty one counts as none. Only by its id can a
    /// repeat complete an update of which one half was kept.
    fn event_id(&mut self, kind: EventKind) -> Option<EventId> {
        let value = self.take("id");
        let value = value.filter(|value| value.as_str() != Some(""));
        let pointer = || Pointer::root().field("id");
        let value = if kind == EventKind::Update {
            self.present(pointer, value)
        } else {
            value
        };
        self.id_of(pointer, value?)
    }

    fn timestamp(&mut self) -> Option<Timestamp> {
        let pointer = || Pointer::root().field("timestamp");
        let value = self.required("timestamp")?;
        let Some(millis) = whole_number(&value) else {
            self.wrong(
                pointer(),
                "must be a whole number of milliseconds since the epoch",
            );
            return None;
        };
        match Timestamp::new(millis) {
            Ok(timestamp) => Some(timestamp),
            Err(error) => {
                self.wrong(pointer(), format!("is out of range: {error}"));
                None
            }
        }
    }

    pub(crate) fn target(&mut self) -> Option<Target> {
        // All are read before any is missed, so that all are named.
        let organization_id = self.id("organization_id");
        let space_id = self.id("space_id");
        let consumer_id = self.id("consumer_id");
        let resource_id = self.id("resource_id");
        let plan_id = self.id("plan_id");
        let resource_instance_id = self.id("resource_instance_id");
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
    fn previous(&mut self, target: Option<&Target>) -> Option<Target> {
        let root = self.root;
        let Some(value) = self.take("previous") else {
            return target.cloned();
        };
        let Json::Object(members) = value else {
            self.wrong(root.field("previous"), "must be an object");
            return None;
        };
        let wrong_before = self.errors.len();
        let mut previous = target.cloned();
        for (name, value) in members {
            let pointer = || root.field("previous").field(&name);
            let Some(name) = Target::FIELDS.into_iter().find(|field| *field == name) else {
                let error = FieldError::new(pointer(), "There is no field of this name.");
                self.errors.push(error);
                continue;
            };
            if let Some(id) = self.id_of(pointer, value)
                && let Some(previous) = &mut previous
            {
                previous.set(name, id);
            }
        }
        previous.filter(|_| self.errors.len() == wrong_before)
    }

    pub(crate) fn measures(&mut self) -> Option<Measures> {
        let root = self.root;
        let pointer = || root.field("measured_usage");
        let value = self.required("measured_usage")?;
        let Json::List(items) = value else {
            self.wrong(pointer(), "must be a list");
            return None;
        };
        let wrong_before = self.errors.len();
        let items = items.into_iter().enumerate();
        let named = items.filter_map(|(index, item)| {
            let measure = self.measure(|| pointer().index(index), item)?;
            Some((index, measure))
        });
        let (indices, measures): (Vec<_>, Vec<_>) = named.unzip();
        let measures = Measures::new(measures);
        for error in measures.as_ref().err().into_iter().flatten() {
            let (MeasuresError::Duration(position) | MeasuresError::Twice(position, _)) = error;
            let pointer = pointer().index(indices[*position]).field("measure");
            self.errors
                .push(FieldError::new(pointer, format!("The {error}.")));
        }
        measures.ok().filter(|_| self.errors.len() == wrong_before)
    }

    /// One measure: exactly a name and a quantity. Where only the name can be read, null stands in
    /// for the quantity: names are compared with each other whatever else is wrong.
    fn measure(&mut self, pointer: impl Fn() -> Pointer, item: Json<'_>) -> Option<Measure> {
        let Json::Object(mut members) = item else {
            self.wrong(pointer(), "must be an object");
            return None;
        };
        let member = |name| pointer().field(name);
        let mut take = |name: &str| {
            let position = members.iter().position(|member| member.0 == name)?;
            Some(members.remove(position).1)
        };
        let name = take("measure");
        let quantity = take("quantity");
        for (unknown, _) in &members {
            self.errors.push(FieldError::new(
                member(unknown),
                "There is no field of this name.",
            ));
        }
        let name = self
            .present(|| member("measure"), name)
            .and_then(|value| self.id_of(|| member("measure"), value));
        let quantity = self
            .present(|| member("quantity"), quantity)
            .and_then(|value| match quantity_of(value) {
                Ok(quantity) => Some(quantity),
                Err(error) => {
                    self.wrong(member("quantity"), error.to_string());
                    None
                }
            });
        Some(Measure {
            measure: name?,
            quantity: quantity.unwrap_or_else(|| Quantity::from_store(Value::Null)),
        })
    }

    fn present<T>(&mut self, pointer: impl Fn() -> Pointer, value: Option<T>) -> Option<T> {
        if value.is_none() {
            self.wrong(pointer(), "is missing");
        }
        value
    }
}

fn quantity_of(value: Json<'_>) -> Result<Quantity, QuantityError> {
    Quantity::new(value.into_value()?)
}

/// A whole number, also where it is written as `1.5e12` or `3.0`: JSON knows one kind of number.
pub(crate) fn whole_number(value: &Json<'_>) -> Option<i64> {
    let value = value.as_number()?;
    if let Some(integer) = value.as_i64() {
        return Some(integer);
    }
    let double = value.as_f64().filter(|double| double.fract() == 0.0)?;
    // A double beyond `i64` is out of range as a moment, too; the cast stops at the limits.
    #[expect(clippy::cast_possible_truncation, reason = "held at the limits of i64")]
    Some(double as i64)
}

pub(crate) fn no_object() -> Problem {
    invalid([FieldError::new(Pointer::root(), "It must be an object.")])
}

pub(crate) fn invalid(errors: impl IntoIterator<Item = FieldError>) -> Problem {
    let detail = "The body is JSON, but not what is expected here. Nothing was kept.";
    Problem::new(&problems::INVALID_EVENT, detail).errors(errors)
}

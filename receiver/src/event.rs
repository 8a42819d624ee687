//! From JSON to events and mappings: each wrong field is named, all of them at once.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use sampler_abacus::Mapping;
use sampler_domain::{
    EventId, Id, Measure, Measures, MeasuresError, Quantity, QuantityError, StartEvent, StopEvent,
    Target, Timestamp,
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
}

impl Event {
    /// When it took place.
    pub(crate) fn timestamp(&self) -> Timestamp {
        match self {
            Self::Start(event) => event.timestamp,
            Self::Stop(event) => event.timestamp,
        }
    }
}

/// Reads a start event.
pub(crate) fn start(body: Json<'_>) -> Result<StartEvent, Problem> {
    let mut fields = Fields::of(body)?;
    let id = fields.event_id();
    let timestamp = fields.timestamp();
    let target = fields.target();
    let measures = fields.measures();
    fields.finish()?;
    let all = (|| {
        Some(StartEvent {
            id,
            timestamp: timestamp?,
            target: target?,
            measures: measures?,
        })
    })();
    Ok(all.expect("what could not be read was named"))
}

/// Reads a stop event.
pub(crate) fn stop(body: Json<'_>) -> Result<StopEvent, Problem> {
    let mut fields = Fields::of(body)?;
    let id = fields.event_id();
    let timestamp = fields.timestamp();
    let target = fields.target();
    fields.finish()?;
    let all = (|| {
        Some(StopEvent {
            id,
            timestamp: timestamp?,
            target: target?,
        })
    })();
    Ok(all.expect("what could not be read was named"))
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
struct Fields<'b> {
    members: Vec<(Cow<'b, str>, Option<Json<'b>>)>,
    errors: Vec<FieldError>,
}

impl<'b> Fields<'b> {
    fn of(body: Json<'b>) -> Result<Self, Problem> {
        match body {
            Json::Object(members) => Ok(Self {
                members: members
                    .into_iter()
                    .map(|(name, value)| (name, Some(value)))
                    .collect(),
                errors: Vec::new(),
            }),
            _ => Err(invalid([FieldError::new(
                Pointer::root(),
                "It must be an object.",
            )])),
        }
    }

    /// The value of a member. Its name stays, so that none of those behind it has to move up.
    fn take(&mut self, name: &'static str) -> Option<Json<'b>> {
        let mut members = self.members.iter_mut();
        members.find(|member| member.0 == name)?.1.take()
    }

    /// All is well if every member was read and none was wrong.
    fn finish(mut self) -> Result<(), Problem> {
        for (name, value) in &self.members {
            if value.is_some() {
                let pointer = Pointer::root().field(name);
                self.errors
                    .push(FieldError::new(pointer, "There is no field of this name."));
            }
        }
        if self.errors.is_empty() {
            Ok(())
        } else {
            Err(invalid(self.errors))
        }
    }

    fn wrong(&mut self, pointer: Pointer, detail: impl AsRef<str>) {
        self.errors
            .push(FieldError::new(pointer, format!("It {}.", detail.as_ref())));
    }

    fn required(&mut self, name: &'static str) -> Option<Json<'b>> {
        let value = self.take(name);
        self.present(|| Pointer::root().field(name), value)
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
        let value = self.required(name)?;
        self.id_of(|| Pointer::root().field(name), value)
    }

    /// An id that becomes a segment of a path. Whatever could lead elsewhere is refused, also where
    /// a gateway in between decodes it once more.
    fn segment(&mut self, name: &'static str) -> Option<Id> {
        let id = self.id(name)?;
        if leads_elsewhere(id.as_str()) {
            self.wrong(
                Pointer::root().field(name),
                "must not be \".\", nor contain \"/\", \"\\\" or \"..\"",
            );
            return None;
        }
        Some(id)
    }

    /// The `id` of an event may be left out; an empty one counts as none.
    fn event_id(&mut self) -> Option<EventId> {
        let value = self.take("id")?;
        if value.as_str() == Some("") {
            return None;
        }
        self.id_of(|| Pointer::root().field("id"), value)
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

    fn target(&mut self) -> Option<Target> {
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

    fn measures(&mut self) -> Option<Measures> {
        let pointer = || Pointer::root().field("measured_usage");
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
fn whole_number(value: &Json<'_>) -> Option<i64> {
    let value = value.as_number()?;
    if let Some(integer) = value.as_i64() {
        return Some(integer);
    }
    let double = value.as_f64().filter(|double| double.fract() == 0.0)?;
    // What lies beyond is out of range as a moment too; the cast holds it at the limits.
    #[expect(clippy::cast_possible_truncation, reason = "held at the limits of i64")]
    Some(double as i64)
}

fn invalid(errors: impl IntoIterator<Item = FieldError>) -> Problem {
    let detail = "The body is JSON, but not what is expected here. Nothing was kept.";
    Problem::new(&problems::INVALID_EVENT, detail).errors(errors)
}

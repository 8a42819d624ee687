//! In which form an event is written, and how it is read from that.

use sampler_service::problem::Problem;

use crate::batch::Layout;
use crate::cloud_event::{self, Attributes};
use crate::event::{self, Event, EventKind};
use crate::json::Json;

/// The reader of a request's content, or of a part of it.
pub(crate) trait Readable {
    type Read;

    /// The resources that it is about. A token must be for all of them.
    fn resources<'j>(&self, body: &'j Json<'_>) -> Vec<Option<&'j str>>;

    /// Reads it.
    ///
    /// # Errors
    /// 400 that names each wrong field.
    fn read(self, body: Json<'_>) -> Result<Self::Read, Problem>;
}

#[derive(Debug)]
pub(crate) enum EventFormat {
    /// The address names its kind.
    Addressed(EventKind),
    /// A member `type` says so.
    Typed,
    /// A CloudEvent in structured mode.
    CloudEvent,
    /// The data of a CloudEvent in binary mode.
    Binary(Box<Attributes>),
}

fn resource_of<'j>(fields: &'j Json<'_>) -> Option<&'j str> {
    fields.get("resource_id").and_then(Json::as_str)
}

impl Readable for EventFormat {
    type Read = Event;

    fn resources<'j>(&self, body: &'j Json<'_>) -> Vec<Option<&'j str>> {
        let fields = match self {
            Self::CloudEvent => body.get("data"),
            Self::Addressed(_) | Self::Typed | Self::Binary(_) => Some(body),
        };
        let previous = fields
            .and_then(|fields| fields.get("previous"))
            .filter(|_| self.is_update(body))
            .and_then(resource_of);
        let mut resources = vec![fields.and_then(resource_of)];
        resources.extend(previous.map(Some));
        resources
    }

    fn read(self, body: Json<'_>) -> Result<Event, Problem> {
        match self {
            Self::Addressed(kind) => event::read(kind, body),
            Self::Typed => event::typed(body),
            Self::CloudEvent => cloud_event::read_structured(body),
            Self::Binary(attributes) => cloud_event::read_binary(*attributes, body),
        }
    }
}

impl EventFormat {
    /// The form of the events of a batch.
    pub(crate) fn of(layout: Layout) -> Self {
        match layout {
            Layout::List | Layout::Lines => Self::Typed,
            Layout::CloudEvents => Self::CloudEvent,
        }
    }

    fn is_update(&self, body: &Json<'_>) -> bool {
        let named = body.get("type").and_then(Json::as_str);
        let kind = match self {
            Self::Addressed(kind) => Some(*kind),
            Self::Typed => named.and_then(EventKind::from_name),
            Self::CloudEvent => named.and_then(cloud_event::kind_of),
            Self::Binary(attributes) => attributes.kind(),
        };
        kind == Some(EventKind::Update)
    }
}

//! In which form an event is written, and how it is read from that.

use sampler_api::EventType;
use sampler_service::problem::Problem;
use serde_json::Value;

use crate::batch::Layout;
use crate::cloud_event::{self, Attributes};
use crate::event::{self, Event};

/// The reader of a request's content, or of a part of it.
pub(crate) trait Readable {
    type Read;

    /// Reads it.
    ///
    /// # Errors
    /// 400 that names what is wrong.
    fn read(&self, body: &[u8]) -> Result<Self::Read, Problem>;

    /// The resources that it is about. A token must be for all of them.
    fn resources(read: &Self::Read) -> Vec<&str>;

    /// The same of a body that cannot be read, as far as they are there.
    fn resources_in<'v>(&self, body: &'v Value) -> Vec<Option<&'v str>>;
}

#[derive(Debug)]
pub(crate) enum EventFormat {
    /// The address names its kind.
    Addressed(EventType),
    /// A member `type` says so.
    Typed,
    /// A CloudEvent in structured mode.
    CloudEvent,
    /// The data of a CloudEvent in binary mode.
    Binary(Box<Attributes>),
}

impl Readable for EventFormat {
    type Read = Event;

    fn read(&self, body: &[u8]) -> Result<Event, Problem> {
        match self {
            Self::Addressed(kind) => event::read(*kind, body),
            Self::Typed => event::typed(body),
            Self::CloudEvent => cloud_event::read_structured(body),
            Self::Binary(attributes) => cloud_event::read_binary(attributes, body),
        }
    }

    fn resources(read: &Event) -> Vec<&str> {
        read.resources()
    }

    fn resources_in<'v>(&self, body: &'v Value) -> Vec<Option<&'v str>> {
        let fields = match self {
            Self::CloudEvent => &body["data"],
            Self::Addressed(_) | Self::Typed | Self::Binary(_) => body,
        };
        let mut resources = vec![fields["resource_id"].as_str()];
        if self.is_update(body) {
            let previous = fields["previous"]["resource_id"].as_str();
            resources.extend(previous.map(Some));
        }
        resources
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

    fn is_update(&self, body: &Value) -> bool {
        let named = body["type"].as_str();
        let kind = match self {
            Self::Addressed(kind) => Some(*kind),
            Self::Typed => named.and_then(EventType::from_name),
            Self::CloudEvent => named.and_then(cloud_event::kind_of),
            Self::Binary(attributes) => attributes.kind(),
        };
        kind == Some(EventType::Update)
    }
}

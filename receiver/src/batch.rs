//! A batch: divides a body into the bytes of its events. Each event is parsed when its turn comes, so a
//! batch takes only as much memory as its events would alone.

use std::collections::HashMap;
use std::fmt;

use sampler_api::EventType;
use sampler_service::problem::{FieldError, Pointer, Problem};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::event::Form;
use crate::{cloud_event, json, problems};

pub(crate) const EVENTS_MAX: usize = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    List,
    Lines,
    /// A list of CloudEvents in JSON.
    CloudEvents,
}

impl Layout {
    /// The form of the events of a batch.
    pub(crate) fn form(self) -> Form<'static> {
        match self {
            Self::List | Self::Lines => Form::Typed,
            Self::CloudEvents => Form::CloudEvent,
        }
    }
}

/// Divides a body into its events.
///
/// # Errors
/// 400 where a list is not JSON or not a list, 413 where there are too many events.
pub(crate) fn split(layout: Layout, body: &[u8]) -> Result<Vec<Item<'_>>, Problem> {
    let events: Vec<&[u8]> = if layout == Layout::Lines {
        let lines = body.split(|byte| *byte == b'\n');
        let lines = lines.filter(|line| !line.iter().all(u8::is_ascii_whitespace));
        lines.take(EVENTS_MAX + 1).collect()
    } else {
        let list = serde_json::from_slice(body).map_err(|error| {
            // What is no list may be no JSON either.
            let is_json = serde_json::from_slice::<IgnoredAny>(body);
            match is_json
                .err()
                .or_else(|| (!error.is_data()).then_some(error))
            {
                Some(error) => json::malformed(body, &error),
                None => no_list(),
            }
        });
        let Elements(elements) = list?;
        elements.iter().map(|raw| raw.get().as_bytes()).collect()
    };
    if events.len() > EVENTS_MAX {
        let detail = "The batch has more than 1,000 events. Nothing was kept.";
        return Err(Problem::new(&problems::PAYLOAD_TOO_LARGE, detail));
    }
    let form = layout.form();
    Ok(events.into_iter().map(|event| item(form, event)).collect())
}

fn no_list() -> Problem {
    let error = FieldError::new(Pointer::root(), "It must be a list of events.");
    json::invalid(&problems::INVALID_EVENT, [error])
}

/// The elements of a list, up to one more than it may have.
struct Elements<'b>(Vec<&'b RawValue>);

impl<'b> Deserialize<'b> for Elements<'b> {
    fn deserialize<D: Deserializer<'b>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ElementsVisitor)
    }
}

struct ElementsVisitor;

impl<'b> Visitor<'b> for ElementsVisitor {
    type Value = Elements<'b>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'b>>(self, mut list: A) -> Result<Elements<'b>, A::Error> {
        let mut elements = Vec::new();
        while elements.len() <= EVENTS_MAX
            && let Some(element) = list.next_element()?
        {
            elements.push(element);
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Elements(elements))
    }
}

/// The members of an event by which its kind and its order are known before it is read, as far as they can be
/// read.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Glimpse {
    r#type: Option<String>,
    resource_instance_id: Option<String>,
    previous: Option<Box<Glimpse>>,
}

/// The same of a CloudEvent, whose other attributes may be anything.
#[derive(Default, Deserialize)]
#[serde(default)]
struct CloudGlimpse {
    r#type: Option<String>,
    data: Option<Glimpse>,
}

/// An event of a batch.
pub(crate) struct Item<'b> {
    pub(crate) bytes: &'b [u8],
    pub(crate) kind: Option<EventType>,
    /// The instances that it is about; an update may be about two.
    instances: Vec<String>,
}

/// The kind of an event, where that is known before the event is read.
pub(crate) fn kind(form: Form<'_>, event: &[u8]) -> Option<EventType> {
    match form {
        Form::Addressed(kind) => Some(kind),
        Form::Binary(attributes) => attributes.kind(),
        Form::Typed | Form::CloudEvent => item(form, event).kind,
    }
}

fn item<'b>(form: Form<'_>, bytes: &'b [u8]) -> Item<'b> {
    let (kind, event) = if let Form::CloudEvent = form {
        let seen: CloudGlimpse = serde_json::from_slice(bytes).unwrap_or_default();
        let named = seen.r#type.as_deref();
        (
            named.and_then(cloud_event::kind_of),
            seen.data.unwrap_or_default(),
        )
    } else {
        let seen: Glimpse = serde_json::from_slice(bytes).unwrap_or_default();
        (seen.r#type.as_deref().and_then(EventType::from_name), seen)
    };
    let before = event.previous.and_then(|it| it.resource_instance_id);
    let instances = event.resource_instance_id.into_iter().chain(before);
    Item {
        bytes,
        kind,
        instances: instances.collect(),
    }
}

/// The events that must be processed in order: all of one instance, or of instances that an update joins.
/// Events are named by their places in the batch.
pub(crate) fn chains(items: &[Item<'_>]) -> Vec<Vec<usize>> {
    let mut chains: Vec<Vec<usize>> = Vec::new();
    let mut chain_of: HashMap<&str, usize> = HashMap::new();
    for (index, item) in items.iter().enumerate() {
        let own = chains.len();
        chains.push(vec![index]);
        for instance in &item.instances {
            let other = *chain_of.entry(instance).or_insert(own);
            if other != own {
                let mut joined = std::mem::take(&mut chains[other]);
                joined.append(&mut chains[own]);
                joined.sort_unstable();
                chains[own] = joined;
                let moved = chain_of.values_mut().filter(|chain| **chain == other);
                moved.for_each(|chain| *chain = own);
            }
        }
    }
    chains.retain(|chain| !chain.is_empty());
    chains
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Attributes of a CloudEvent that mean nothing to us may have the names of our members.
    #[test]
    fn events_of_an_instance_are_in_order_whatever_attributes_a_cloud_event_has() {
        let event = |kind: &str| {
            format!(
                r#"{{"type": "com.example.{kind}", "previous": "x", "resource_instance_id": 1,
                    "data": {{"resource_instance_id": "i"}}}}"#
            )
        };
        let body = format!("[{}, {}]", event("start"), event("stop"));
        let items = split(Layout::CloudEvents, body.as_bytes()).expect("a list");
        let kinds = items.iter().map(|item| item.kind);
        let expected = [EventType::Start, EventType::Stop].map(Some);
        assert_eq!(kinds.collect::<Vec<_>>(), expected);
        assert_eq!(chains(&items), [vec![0, 1]]);
    }
}

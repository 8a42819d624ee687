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
pub(crate) fn split(layout: Layout, body: &[u8]) -> Result<Vec<&[u8]>, Problem> {
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
    Ok(events)
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
    data: Option<Box<Glimpse>>,
}

/// The kind of an event, where that is known before the event is read.
pub(crate) fn kind(form: Form<'_>, event: &[u8]) -> Option<EventType> {
    let named = || serde_json::from_slice::<Glimpse>(event).ok()?.r#type;
    match form {
        Form::Addressed(kind) => Some(kind),
        Form::Binary(attributes) => attributes.kind(),
        Form::Typed => EventType::from_name(&named()?),
        Form::CloudEvent => cloud_event::kind_of(&named()?),
    }
}

/// The instances that an event is about; an update may be about two.
fn instances(layout: Layout, event: &[u8]) -> Vec<String> {
    let seen: Glimpse = serde_json::from_slice(event).unwrap_or_default();
    let event = match layout {
        Layout::List | Layout::Lines => seen,
        Layout::CloudEvents => seen.data.map(|data| *data).unwrap_or_default(),
    };
    let before = event.previous.and_then(|it| it.resource_instance_id);
    event
        .resource_instance_id
        .into_iter()
        .chain(before)
        .collect()
}

/// The events that must be processed in order: all of one instance, or of instances that an update joins.
/// Events are named by their places in the batch.
pub(crate) fn chains(layout: Layout, events: &[&[u8]]) -> Vec<Vec<usize>> {
    let mut chains: Vec<Vec<usize>> = Vec::new();
    let mut chain_of: HashMap<String, usize> = HashMap::new();
    for (index, event) in events.iter().enumerate() {
        let own = chains.len();
        chains.push(vec![index]);
        for instance in instances(layout, event) {
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

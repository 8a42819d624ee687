//! A batch: divides a body into the bytes of its events. Each event is parsed when its turn comes, so a
//! batch takes only as much memory as its events would alone.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

use sampler_api::EventType;
use sampler_service::problem::{FieldError, Pointer, Problem};
use serde::de::{Deserialize, Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::{cloud_event, json, problems};

pub(crate) const EVENTS_MAX: usize = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    List,
    Lines,
    /// A list of CloudEvents in JSON.
    CloudEvents,
}

#[derive(Debug)]
pub(crate) struct Item<'b> {
    pub(crate) bytes: &'b [u8],
    pub(crate) kind: Option<EventType>,
    /// Its targets, by numbers that are given in this batch. None where no target can be read.
    pub(crate) targets: Vec<usize>,
}

/// Divides a body into its events.
///
/// # Errors
/// 400 where a list is not JSON or not a list, 413 where there are too many events.
pub(crate) fn read(layout: Layout, body: &[u8]) -> Result<Vec<Item<'_>>, Problem> {
    let events = match layout {
        Layout::List | Layout::CloudEvents => split_list(body)?,
        Layout::Lines => split_lines(body)?,
    };
    let mut numbers = HashMap::new();
    let mut items = Vec::with_capacity(events.len());
    for bytes in events {
        let (kind, names) = kind_and_targets(layout, bytes);
        let mut targets = Vec::new();
        for name in names {
            let next = numbers.len();
            targets.push(*numbers.entry(name).or_insert(next));
        }
        items.push(Item {
            bytes,
            kind,
            targets,
        });
    }
    Ok(items)
}

/// The events that must be processed in order: all of one target, or of targets that an update joins.
/// Events are named by their places in the batch.
pub(crate) fn chains(items: &[Item<'_>]) -> Vec<Vec<usize>> {
    let mut joined = Joined((0..items.len()).collect());
    let mut last_of = HashMap::new();
    for (index, item) in items.iter().enumerate() {
        for target in &item.targets {
            if let Some(before) = last_of.insert(*target, index) {
                joined.join(before, index);
            }
        }
    }
    let mut chains: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for index in 0..items.len() {
        chains.entry(joined.first(index)).or_default().push(index);
    }
    chains.into_values().collect()
}

/// Sets of numbers that are joined one after another, each known by the least of them (union-find).
struct Joined(Vec<usize>);

impl Joined {
    fn first(&mut self, of: usize) -> usize {
        let mut at = of;
        while self.0[at] != at {
            self.0[at] = self.0[self.0[at]];
            at = self.0[at];
        }
        at
    }

    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.first(one), self.first(other));
        self.0[one.max(other)] = one.min(other);
    }
}

/// The elements of a list, as they are written. The list is checked to be JSON; what JSON does not
/// forbid, such as a member twice, is for the events.
fn split_list(body: &[u8]) -> Result<Vec<&[u8]>, Problem> {
    let list = serde_json::from_slice::<Elements<'_>>(body);
    let Elements(elements) = list.map_err(|error| {
        // What is no list may be no JSON either.
        match serde_json::from_slice::<IgnoredAny>(body) {
            Err(malformed) => json::malformed(body, &malformed),
            Ok(_) if error.is_data() => no_list(),
            Ok(_) => json::malformed(body, &error),
        }
    })?;
    if elements.len() > EVENTS_MAX {
        return Err(too_many());
    }
    Ok(elements.iter().map(|raw| raw.get().as_bytes()).collect())
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

/// The lines that are not blank. Whether they are JSON is for the events.
fn split_lines(body: &[u8]) -> Result<Vec<&[u8]>, Problem> {
    let lines: Vec<_> = body
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.iter().all(u8::is_ascii_whitespace))
        .take(EVENTS_MAX + 1)
        .collect();
    if lines.len() > EVENTS_MAX {
        return Err(too_many());
    }
    Ok(lines)
}

fn no_list() -> Problem {
    let error = FieldError::new(Pointer::root(), "It must be a list of events.");
    json::invalid(&problems::INVALID_EVENT, [error])
}

fn too_many() -> Problem {
    let detail = "The batch has more than 1,000 events. Nothing was kept.";
    Problem::new(&problems::PAYLOAD_TOO_LARGE, detail)
}

/// The fields by which events follow each other, as far as they are there. Each valid event has those
/// of a target.
#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct OrderFields<'b> {
    #[serde(borrow, rename = "type")]
    kind: Option<Text<'b>>,
    #[serde(borrow)]
    organization_id: Option<Text<'b>>,
    #[serde(borrow)]
    space_id: Option<Text<'b>>,
    #[serde(borrow)]
    consumer_id: Option<Text<'b>>,
    #[serde(borrow)]
    resource_id: Option<Text<'b>>,
    #[serde(borrow)]
    plan_id: Option<Text<'b>>,
    #[serde(borrow)]
    resource_instance_id: Option<Text<'b>>,
    #[serde(borrow)]
    previous: Option<Box<OrderFields<'b>>>,
}

/// A CloudEvent, as far as that.
#[derive(serde::Deserialize)]
struct SeenCloudEvent<'b> {
    #[serde(borrow, rename = "type", default)]
    kind: Option<Text<'b>>,
    #[serde(borrow, default)]
    data: OrderFields<'b>,
}

/// A text that stays in the body, if nothing in it is escaped.
#[derive(Clone, serde::Deserialize, PartialEq, Eq, Hash)]
#[serde(transparent)]
struct Text<'b>(#[serde(borrow)] Cow<'b, str>);

type TargetFields<'b> = [Text<'b>; 6];

impl<'b> OrderFields<'b> {
    fn fields(&self) -> [Option<&Text<'b>>; 6] {
        [
            self.organization_id.as_ref(),
            self.space_id.as_ref(),
            self.consumer_id.as_ref(),
            self.resource_id.as_ref(),
            self.plan_id.as_ref(),
            self.resource_instance_id.as_ref(),
        ]
    }

    /// The target, and the previous target of an update.
    fn targets(&self) -> Vec<TargetFields<'b>> {
        let own = self.fields();
        let previous = self.previous.as_deref().map(|previous| {
            let of_previous = previous.fields();
            std::array::from_fn(|field| of_previous[field].or(own[field]))
        });
        let all = [Some(own), previous].into_iter().flatten();
        all.filter_map(|fields| {
            let texts: Vec<Text<'b>> = fields.into_iter().flatten().cloned().collect();
            texts.try_into().ok()
        })
        .collect()
    }
}

pub(crate) fn kind_of_cloud_event(event: &[u8]) -> Option<EventType> {
    kind_and_targets(Layout::CloudEvents, event).0
}

/// The kind of an event and its targets. An event that cannot be read has neither.
fn kind_and_targets(layout: Layout, event: &[u8]) -> (Option<EventType>, Vec<TargetFields<'_>>) {
    let (seen, kind_of): (_, fn(&str) -> _) = if layout == Layout::CloudEvents {
        let seen = serde_json::from_slice::<SeenCloudEvent<'_>>(event);
        let fields = seen.map(|SeenCloudEvent { kind, data }| OrderFields { kind, ..data });
        (fields, cloud_event::kind_of)
    } else {
        (serde_json::from_slice(event), EventType::from_name)
    };
    let seen: OrderFields<'_> = seen.unwrap_or_default();
    let kind = seen.kind.as_ref().and_then(|text| kind_of(&text.0));
    (kind, seen.targets())
}

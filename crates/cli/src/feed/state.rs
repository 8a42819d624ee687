//! What is known of everything that one record tells of, and the steps that change it. Pure: no clock, no I/O.

use std::collections::{BTreeMap, HashSet};

use sampler_verify::Target;
use sampler_verify::moment::{DAY, Millis, parse_moment};
use sampler_verify::quantity::{self, Measure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::translate::translate;
use super::usage_event::{Record, UsageEvent};
use crate::event::{Event, Measured};
use crate::events::Refusal;

/// How long the end of something is remembered, in ms of the platform's time: clocks of API servers differ less, and a
/// note that something runs is not so late.
const IDLE_KEPT: Millis = DAY;
/// The name of a problem.
const OPEN_SPAN: &str = "open-span";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Service,
    Process,
    Task,
}

/// The measures of a service instance.
pub(super) fn one() -> Vec<Measure> {
    vec![measure("instances", 1)]
}

/// The measures of a process or a task with this memory of each of its instances, in MB.
pub(super) fn measures(memory: i64, instances: i64) -> Vec<Measure> {
    let memory = memory.saturating_mul(instances);
    vec![
        measure("memory_mb", memory),
        measure("instances", instances),
    ]
}

fn measure(name: &str, quantity: i64) -> Measure {
    Measure {
        measure: name.to_owned(),
        quantity: json!(quantity),
    }
}

/// What is started at the receiver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Tracked {
    /// As it was started. A stop names it, whatever the names are by then.
    pub(super) target: Target,
    pub(super) kind: Kind,
    /// The GUID of a service's plan, if it is known.
    pub(super) plan: Option<String>,
    pub(super) measures: Vec<Measure>,
    /// The timestamp of its last event, in ms. None is dated earlier.
    pub(super) last: Millis,
}

impl Tracked {
    /// Something with the ids of its organization, space, consumer and itself, and the names of its resource and plan.
    pub(super) fn new(
        kind: Kind,
        ids: [&str; 4],
        (resource_id, plan_id): (String, String),
        measures: Vec<Measure>,
        last: Millis,
    ) -> Self {
        let [organization, space, consumer, guid] = ids.map(str::to_owned);
        let ids = [organization, space, consumer, resource_id, plan_id, guid];
        Self {
            target: Target::from_ids(ids),
            kind,
            plan: None,
            measures,
            last,
        }
    }

    pub(super) fn key(&self) -> &str {
        &self.target.resource_instance_id
    }

    /// `measured_usage` of an event.
    pub(super) fn measured_usage(&self) -> Vec<Measured> {
        self.measures.iter().cloned().map(Measured::from).collect()
    }

    /// Whether these are the measures.
    pub(super) fn has(&self, measures: &[Measure]) -> bool {
        quantity::difference(&self.measures, measures).is_none()
    }

    /// Whether the plan is the same, whatever its name is by now. What is no service has one plan.
    pub(super) fn has_plan_of(&self, other: &Self) -> bool {
        match (&self.plan, self.kind) {
            (Some(_), _) => self.plan == other.plan,
            (None, Kind::Service) => self.target == other.target,
            (None, Kind::Process | Kind::Task) => true,
        }
    }
}

/// The last that is known of something. Times are in ms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Phase {
    /// It is started at the receiver.
    Started(Tracked),
    /// Its end is recorded. Its next start is not dated earlier.
    Ended(Millis),
    /// The receiver refuses its start of this time: it may run, and is not billed.
    Refused(Millis),
}

impl Phase {
    /// The time of what is not started at the receiver.
    fn idle_at(&self) -> Option<Millis> {
        match self {
            Self::Started(_) => None,
            Self::Ended(at) | Self::Refused(at) => Some(*at),
        }
    }
}

/// How far a list of usage events was read. What ran before is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Cursor {
    /// Up to an event. Its answer is final.
    Behind(Mark),
    /// The list had no event that was old enough at this time, in ms: it is read from its beginning.
    Beginning(Millis),
}

/// An event that others come after. A reseed may use its GUID again, with another time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    pub(super) guid: String,
    pub(super) created_at: String,
}

impl Mark {
    /// When the event was made, by the platform's clock, in ms.
    pub(super) fn at(&self) -> Option<Millis> {
        parse_moment(&self.created_at).ok()
    }
}

impl From<&UsageEvent> for Mark {
    fn from(event: &UsageEvent) -> Self {
        Self {
            guid: event.guid.clone(),
            created_at: event.created_at.clone(),
        }
    }
}

/// An interval whose start or end nobody recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Unknown {
    pub(super) target: Target,
    pub(super) what: Bound,
    /// It is between these, in ms. None: there is no lower bound.
    pub(super) from: Option<Millis>,
    pub(super) to: Millis,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Bound {
    Start,
    End,
}

impl Bound {
    /// What nobody recorded of a target.
    pub(super) fn of(self, target: &Target, from: Option<Millis>, to: Millis) -> Unknown {
        Unknown {
            target: target.clone(),
            what: self,
            from: from.map(|from| from.min(to)),
            to,
        }
    }
}

/// What follows from one usage event, from a list, or from the look-up of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Change {
    /// The GUID of what it is about. A step has one change of it.
    pub(super) key: Option<String>,
    /// The platform's name of the usage event, if it follows from one.
    pub(super) state: Option<String>,
    /// The event for the receiver, if that need know.
    pub(super) body: Option<Value>,
    /// What is known then.
    pub(super) phase: Option<Phase>,
    pub(super) unknown: Vec<Unknown>,
}

/// What is done at once: written, posted, answered, and only then true.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Step {
    pub(super) record: Record,
    /// How far the record is read then, if the step follows from reading it.
    pub(super) cursor: Option<Cursor>,
    pub(super) changes: Vec<Change>,
}

/// Events that the receiver refuses for good, by their ids.
pub(super) type Refused = BTreeMap<String, Refusal>;

impl Change {
    /// An event for the receiver, and what is known once that has it.
    pub(super) fn posting(id: String, event: Event, phase: Phase, unknown: Vec<Unknown>) -> Self {
        Self {
            key: Some(event.target.resource_instance_id.clone()),
            body: Some(json!(Event { id, ..event })),
            phase: Some(phase),
            unknown,
            ..Self::default()
        }
    }

    /// Something that is learnt about a GUID, and that the receiver need not know.
    pub(super) fn noting(key: &str, phase: Phase) -> Self {
        Self {
            key: Some(key.to_owned()),
            phase: Some(phase),
            ..Self::default()
        }
    }

    /// Why its event is refused.
    pub(super) fn refusal<'a>(&self, refused: &'a Refused) -> Option<&'a Refusal> {
        refused.get(self.body.as_ref()?["id"].as_str()?)
    }

    /// What is known once it is answered. A refused start or update has changed nothing, so a stop names what was
    /// started before.
    fn phase_after(&self, refusal: Option<&Refusal>) -> Option<Phase> {
        let kind = self.body.as_ref().and_then(|body| body["type"].as_str());
        match (refusal, kind, &self.phase) {
            (Some(_), Some("update"), _) => None,
            // An open span is one of it, so it is started all the same.
            (Some(it), Some("start"), phase) if it.problem.name() == OPEN_SPAN => phase.clone(),
            (Some(_), Some("start"), Some(Phase::Started(it))) => Some(Phase::Refused(it.last)),
            (_, _, phase) => phase.clone(),
        }
    }
}

impl Step {
    /// Everything that nobody recorded. What is refused is on no bill.
    pub(super) fn unknown<'a>(&'a self, refused: &'a Refused) -> impl Iterator<Item = &'a Unknown> {
        let changes = self.changes.iter();
        let kept = changes.filter(|change| change.refusal(refused).is_none());
        kept.flat_map(|change| &change.unknown)
    }
}

/// All that is known of a record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct FeedState {
    pub(super) cursor: Option<Cursor>,
    pub(super) phases: BTreeMap<String, Phase>,
}

impl FeedState {
    pub(super) fn mark(&self) -> Option<&Mark> {
        match self.cursor.as_ref()? {
            Cursor::Behind(mark) => Some(mark),
            Cursor::Beginning(_) => None,
        }
    }

    /// The time of the platform up to which the record is read.
    pub(super) fn read_to(&self) -> Option<Millis> {
        self.mark()?.at()
    }

    pub(super) fn tracked(&self) -> impl Iterator<Item = &Tracked> {
        self.phases.values().filter_map(|phase| match phase {
            Phase::Started(tracked) => Some(tracked),
            Phase::Ended(_) | Phase::Refused(_) => None,
        })
    }

    /// The step that follows from the first of these events, and how many these are. What follows from a second event
    /// of something depends on the answer to the first.
    pub(super) fn step(&self, record: Record, events: &[UsageEvent]) -> (Step, usize) {
        let (mut changes, mut cursor, mut subjects) = (Vec::new(), None, HashSet::new());
        for event in events {
            let subject = event.subject();
            if subject.is_some_and(|subject| !subjects.insert(subject)) {
                break;
            }
            let before = subject.and_then(|subject| self.phases.get(subject));
            changes.push(translate(event, before));
            cursor = Some(Cursor::Behind(event.into()));
        }
        let count = changes.len();
        let step = Step {
            record,
            cursor,
            changes,
        };
        (step, count)
    }

    /// Takes in a step that is answered.
    pub(super) fn apply(&mut self, step: &Step, refused: &Refused) {
        for change in &step.changes {
            let phase = change.phase_after(change.refusal(refused));
            if let (Some(key), Some(phase)) = (&change.key, phase) {
                self.phases.insert(key.clone(), phase);
            }
        }
        if step.cursor.is_some() {
            self.cursor.clone_from(&step.cursor);
        }
        // By the time of the platform, because a list may be read long after it was written.
        let Some(read_to) = self.read_to() else {
            return;
        };
        let is_kept = |at| at > read_to - IDLE_KEPT;
        self.phases
            .retain(|_, phase| phase.idle_at().is_none_or(is_kept));
    }
}

#[cfg(test)]
#[path = "../../tests/feed/state_tests.rs"]
mod tests;

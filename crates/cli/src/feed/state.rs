//! What is known of everything that runs, and the steps that change it. Pure: no clock, no I/O.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use sampler_verify::Target;
use sampler_verify::moment::{Millis, parse_moment};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::translate::translate;
use super::usage_event::{Record, UsageEvent};

/// How long the end of something is remembered, in ms of the platform's time: clocks of API servers differ less, and a
/// note that something runs is not so late.
const IDLE_KEPT: Millis = 24 * 3_600_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Service,
    Process,
    Task,
}

/// How much of something runs. A service instance is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Quantities {
    /// Of all instances together; absent for a service.
    pub(super) memory_mb: Option<i64>,
    pub(super) instances: i64,
}

impl Quantities {
    pub(super) const SERVICE: Self = Self {
        memory_mb: None,
        instances: 1,
    };

    pub(super) fn of(memory_per_instance: i64, instances: i64) -> Self {
        Self {
            memory_mb: Some(memory_per_instance.saturating_mul(instances)),
            instances,
        }
    }

    /// `measured_usage` of an event.
    pub(super) fn measures(self) -> Value {
        let instances = json!({ "measure": "instances", "quantity": self.instances });
        match self.memory_mb {
            Some(memory) => json!([{ "measure": "memory_mb", "quantity": memory }, instances]),
            None => json!([instances]),
        }
    }
}

/// What is started at the receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tracked {
    /// As it was started. A stop names it, whatever the names are by then.
    pub(super) target: Target,
    pub(super) kind: Kind,
    /// The GUID of a service's plan, if it is known.
    pub(super) plan: Option<String>,
    /// None: not known, so any others are a change.
    pub(super) quantities: Option<Quantities>,
    /// The timestamp of its last event, in ms. None is dated earlier.
    pub(super) last: Millis,
}

impl Tracked {
    /// Something with the ids of its organization, space, consumer and itself, and the names of its resource and plan.
    pub(super) fn new(
        kind: Kind,
        ids: [&str; 4],
        (resource_id, plan_id): (String, String),
        quantities: Quantities,
        last: Millis,
    ) -> Self {
        let [organization, space, consumer, guid] = ids.map(str::to_owned);
        let ids = [organization, space, consumer, resource_id, plan_id, guid];
        Self {
            target: Target::from_ids(ids),
            kind,
            plan: None,
            quantities: Some(quantities),
            last,
        }
    }

    pub(super) fn key(&self) -> &str {
        &self.target.resource_instance_id
    }

    pub(super) fn record(&self) -> Record {
        match self.kind {
            Kind::Service => Record::Services,
            Kind::Process | Kind::Task => Record::Apps,
        }
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

/// The last that is known of something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Phase {
    Started(Tracked),
    Idle(Idle),
}

/// What is not started at the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Idle {
    pub(super) record: Record,
    pub(super) why: Why,
    /// It did not run before this, or was refused at this time, in ms.
    pub(super) at: Millis,
    /// The time of the platform at which this was learnt, in ms.
    pub(super) seen: Millis,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Why {
    /// Its end is recorded. Its next start is not dated earlier.
    Ended,
    /// It was made then, and its start may still come in the record.
    Made,
    /// The receiver refuses its start: it may run, and is not billed.
    Refused,
}

impl Phase {
    pub(super) fn ended(record: Record, at: Millis) -> Self {
        Self::idle(record, Why::Ended, at, at)
    }

    pub(super) fn idle(record: Record, why: Why, at: Millis, seen: Millis) -> Self {
        Self::Idle(Idle {
            record,
            why,
            at,
            seen,
        })
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Step {
    pub(super) cursors: BTreeMap<Record, Cursor>,
    pub(super) changes: Vec<Change>,
}

/// Events that the receiver refuses for good, by their ids.
pub(super) type Refused = BTreeMap<String, Refusal>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The target has an open span already.
    pub(super) is_open: bool,
    pub(super) status: u16,
    pub(super) problem: Value,
}

impl Change {
    /// An event for the receiver, and what is known once that has it.
    pub(super) fn posting(body: Value, phase: Phase, unknown: Vec<Unknown>) -> Self {
        Self {
            key: body["resource_instance_id"].as_str().map(str::to_owned),
            body: Some(body),
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
            (Some(refusal), Some("start"), Some(Phase::Started(it))) if !refusal.is_open => {
                Some(Phase::idle(it.record(), Why::Refused, it.last, it.last))
            }
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

/// All that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FeedState {
    pub(super) cursors: BTreeMap<Record, Cursor>,
    pub(super) phases: BTreeMap<String, Phase>,
}

impl FeedState {
    pub(super) fn mark(&self, record: Record) -> Option<&Mark> {
        match self.cursors.get(&record)? {
            Cursor::Behind(mark) => Some(mark),
            Cursor::Beginning(_) => None,
        }
    }

    /// The time of the platform up to which a list is read.
    pub(super) fn read_to(&self, record: Record) -> Option<Millis> {
        self.mark(record)?.at()
    }

    pub(super) fn tracked(&self) -> impl Iterator<Item = &Tracked> {
        self.phases.values().filter_map(|phase| match phase {
            Phase::Started(tracked) => Some(tracked),
            Phase::Idle(_) => None,
        })
    }

    /// The organizations of what is started.
    pub(super) fn organizations(&self) -> BTreeSet<String> {
        let tracked = self.tracked();
        tracked
            .map(|it| it.target.organization_id.clone())
            .collect()
    }

    /// The step that follows from the first of these events, and how many these are. What follows from a second event
    /// of something depends on the answer to the first.
    pub(super) fn step(&self, record: Record, events: &[UsageEvent]) -> (Step, usize) {
        let (mut step, mut subjects) = (Step::default(), HashSet::new());
        for event in events {
            let subject = event.subject();
            if subject.is_some_and(|subject| !subjects.insert(subject)) {
                break;
            }
            let before = subject.and_then(|subject| self.phases.get(subject));
            step.changes.push(translate(record, event, before));
            let cursor = Cursor::Behind(event.into());
            step.cursors.insert(record, cursor);
        }
        let count = step.changes.len();
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
        self.cursors.extend(step.cursors.clone());
        // By the time of the platform, because a list may be read long after it was written.
        let read_to = [Record::Services, Record::Apps].map(|record| self.read_to(record));
        self.phases.retain(|_, phase| match phase {
            Phase::Started(_) => true,
            Phase::Idle(idle) => {
                let read_to = read_to[usize::from(idle.record == Record::Apps)];
                read_to.is_none_or(|read_to| idle.seen > read_to - IDLE_KEPT)
            }
        });
    }
}

#[cfg(test)]
#[path = "../../tests/feed/state_tests.rs"]
mod tests;

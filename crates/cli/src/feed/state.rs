//! What is known of everything that runs, and the steps that change it. Pure: no clock, no I/O.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use sampler_verify::Target;
use sampler_verify::moment::{Millis, parse_moment};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::translate::translate;
use super::usage_event::{Quantities, Record, UsageEvent};

/// How long the end of something is remembered, in ms of the platform's time: clocks of API servers differ
/// less, and a note that something runs is not so late.
const IDLE_KEPT: Millis = 24 * 3_600_000;

/// What is started at the receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tracked {
    /// As it was started. A stop names it, whatever the names are by then.
    pub(super) target: Target,
    pub(super) kind: Kind,
    /// The GUID of a service's plan, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) plan: Option<String>,
    /// None: not known, so any others are a change.
    pub(super) quantities: Option<Quantities>,
    /// The timestamp of its last event, in ms. None is dated earlier.
    pub(super) last: Millis,
}

impl Tracked {
    /// Something with the ids of its organization, space, consumer and itself, and the names of its resource
    /// and plan.
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

    pub(super) fn measures(&self) -> Value {
        let quantities = self.quantities.unwrap_or(Quantities::SERVICE);
        quantities.measures()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Service,
    Process,
    Task,
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

impl Idle {
    pub(super) fn ended(record: Record, at: Millis) -> Phase {
        let (why, seen) = (Why::Ended, at);
        Phase::Idle(Self {
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

impl Cursor {
    pub(super) fn mark(&self) -> Option<&Mark> {
        match self {
            Self::Behind(mark) => Some(mark),
            Self::Beginning(_) => None,
        }
    }
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
    Started,
    Stopped,
    Updated,
}

/// An event for the receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Posted {
    pub(super) body: Value,
    pub(super) outcome: Outcome,
}

/// What follows from one usage event, from a snapshot, or from the look-up of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Change {
    /// The GUID of what it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<String>,
    /// The platform's name of the usage event, if it follows from one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<String>,
    /// None: the receiver need not know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) posted: Option<Posted>,
    /// What is known then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) phase: Option<Phase>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) unknown: Vec<Unknown>,
}

impl Change {
    /// An event for the receiver, and what is known once that has it.
    pub(super) fn posting(outcome: Outcome, body: Value, phase: Phase) -> Self {
        Self {
            key: body["resource_instance_id"].as_str().map(str::to_owned),
            posted: Some(Posted { body, outcome }),
            phase: Some(phase),
            ..Self::default()
        }
    }

    pub(super) fn with_unknown(self, unknown: Vec<Unknown>) -> Self {
        Self { unknown, ..self }
    }
}

/// What is done at once: written, posted, answered, and only then true.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Step {
    pub(super) cursors: BTreeMap<Record, Cursor>,
    pub(super) changes: Vec<Change>,
}

/// Events that the receiver refuses for good, by their place among the events of a step.
pub(super) type Refused = BTreeMap<usize, Refusal>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The target has an open span already.
    pub(super) is_open: bool,
    pub(super) status: u16,
    pub(super) problem: Value,
}

impl Step {
    pub(super) fn events(&self) -> impl Iterator<Item = &Posted> {
        self.changes
            .iter()
            .filter_map(|change| change.posted.as_ref())
    }

    /// Each change, and why its event is refused.
    pub(super) fn answered<'a>(
        &'a self,
        refused: &'a Refused,
    ) -> impl Iterator<Item = (&'a Change, Option<&'a Refusal>)> {
        let mut index = 0;
        self.changes.iter().map(move |change| {
            let refusal = change.posted.as_ref().and_then(|_| refused.get(&index));
            index += usize::from(change.posted.is_some());
            (change, refusal)
        })
    }

    /// Everything that nobody recorded. What is refused is on no bill.
    pub(super) fn unknown<'a>(&'a self, refused: &'a Refused) -> impl Iterator<Item = &'a Unknown> {
        let kept = self
            .answered(refused)
            .filter(|(_, refusal)| refusal.is_none());
        kept.flat_map(|(change, _)| &change.unknown)
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
        self.cursors.get(&record)?.mark()
    }

    pub(super) fn tracked(&self) -> impl Iterator<Item = (&String, &Tracked)> {
        self.phases.iter().filter_map(|(key, phase)| match phase {
            Phase::Started(tracked) => Some((key, tracked)),
            Phase::Idle(_) => None,
        })
    }

    /// The organizations of what is started.
    pub(super) fn organizations(&self) -> BTreeSet<String> {
        let tracked = self.tracked().map(|(_, tracked)| tracked);
        tracked
            .map(|it| it.target.organization_id.clone())
            .collect()
    }

    /// Takes in a step that is answered.
    pub(super) fn apply(&mut self, step: &Step, refused: &Refused) {
        for (change, refusal) in step.answered(refused) {
            if let (Some(key), Some(phase)) = (&change.key, phase_after(change, refusal)) {
                self.phases.insert(key.clone(), phase);
            }
        }
        self.cursors.extend(step.cursors.clone());
        self.forget_idle();
    }

    /// Forgets what is idle by the time of the platform up to which its list is read, because a list may be
    /// read long after it was written.
    fn forget_idle(&mut self) {
        let cursors = &self.cursors;
        let read_to = |record| cursors.get(&record)?.mark()?.at();
        let (services, apps) = (read_to(Record::Services), read_to(Record::Apps));
        self.phases.retain(|_, phase| match phase {
            Phase::Started(_) => true,
            Phase::Idle(idle) => {
                let read_to = match idle.record {
                    Record::Services => services,
                    Record::Apps => apps,
                };
                read_to.is_none_or(|read_to| idle.seen > read_to - IDLE_KEPT)
            }
        });
    }
}

/// What is known once a change is answered. A refused start or update has changed nothing, so a stop names
/// what was started before.
fn phase_after(change: &Change, refusal: Option<&Refusal>) -> Option<Phase> {
    let outcome = change.posted.as_ref().map(|posted| posted.outcome);
    match (refusal, outcome, &change.phase) {
        (Some(_), Some(Outcome::Updated), _) => None,
        (Some(refusal), Some(Outcome::Started), Some(Phase::Started(it))) if !refusal.is_open => {
            Some(Phase::Idle(Idle {
                record: it.record(),
                why: Why::Refused,
                at: it.last,
                seen: it.last,
            }))
        }
        (_, _, phase) => phase.clone(),
    }
}

/// Collects the step that follows from usage events.
pub(super) struct Batch<'a> {
    state: &'a FeedState,
    pub(super) step: Step,
    phases: HashMap<String, Phase>,
    /// What has another target if its event is refused: its next event must know.
    moved: HashSet<String>,
}

impl<'a> Batch<'a> {
    pub(super) fn new(state: &'a FeedState) -> Self {
        Self {
            state,
            step: Step::default(),
            phases: HashMap::new(),
            moved: HashSet::new(),
        }
    }

    /// Adds what follows from an event. Returns `false` where that depends on an answer to this step.
    pub(super) fn add(&mut self, record: Record, event: &UsageEvent) -> bool {
        let subject = event.subject();
        if subject.is_some_and(|subject| self.moved.contains(subject)) {
            return false;
        }
        let before = subject.and_then(|key| {
            let phase = self.phases.get(key);
            phase.or_else(|| self.state.phases.get(key))
        });
        let change = translate(record, event, before);
        if let (Some(key), Some(phase)) = (&change.key, &change.phase) {
            if let (Some(Phase::Started(before)), Phase::Started(now)) = (before, phase)
                && before.target != now.target
            {
                self.moved.insert(key.clone());
            }
            self.phases.insert(key.clone(), phase.clone());
        }
        self.step.changes.push(change);
        self.step
            .cursors
            .insert(record, Cursor::Behind(event.into()));
        true
    }
}

#[cfg(test)]
#[path = "../../tests/feed/state_tests.rs"]
mod tests;

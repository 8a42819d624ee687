//! What a usage event of the platform means, given what was started before. Pure: no clock, no I/O.

use std::collections::{BTreeMap, HashMap, HashSet};

use sampler_verify::Target;
use sampler_verify::moment::Millis;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::mapping::Mapping;
use super::usage_event::{Kind, Quantities, Record, Running, Says, UsageEvent};

/// How long the end of something is remembered, in ms: clocks of API servers differ less.
const ENDED_KEPT: Millis = 24 * 3_600_000;

/// What is started at the receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tracked {
    /// As it was started. A stop names it, whatever the names are by then.
    pub(super) target: Target,
    pub(super) of: Of,
    /// The GUID of a service's plan, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) plan: Option<String>,
    /// None: not known, so any others are a change.
    pub(super) quantities: Option<Quantities>,
    /// The timestamp of its last event, in ms. None is dated earlier.
    pub(super) last: Millis,
}

/// What kind of thing is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Of {
    Service,
    Process,
    Task,
}

impl Of {
    pub(super) fn record(self) -> Record {
        match self {
            Self::Service => Record::Services,
            Self::Process | Self::Task => Record::Apps,
        }
    }
}

/// The last that is known of something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Fate {
    Started(Tracked),
    /// It ended then. Its next start is not dated earlier.
    Ended(Millis),
}

/// How far a list of usage events was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cursor {
    /// The last event whose answer is final. None: the list is read from its beginning.
    pub(super) mark: Option<Mark>,
    /// Whether what ran before is known, because a snapshot was taken.
    pub(super) is_complete: bool,
}

/// An event that others come after. A reseed may use its guid again, with another time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    pub(super) guid: String,
    pub(super) created_at: String,
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
    /// It lies between these, in ms. None: there is no lower bound.
    pub(super) from: Option<Millis>,
    pub(super) to: Millis,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Bound {
    Start,
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
    Started,
    Stopped,
    Updated,
}

/// An event for the receiver, and what follows once it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Planned {
    /// As it is posted.
    pub(super) body: Value,
    /// The platform's name of what it follows from. None: a snapshot or a look-up, not the record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<String>,
    pub(super) outcome: Outcome,
    pub(super) key: String,
    pub(super) fate: Fate,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unknown: Option<Unknown>,
}

/// What is done at once: journaled, posted, answered, and only then true.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Step {
    pub(super) number: u64,
    pub(super) cursors: BTreeMap<Record, Cursor>,
    pub(super) events: Vec<Planned>,
    /// Events of the platform that say nothing, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) ignored: BTreeMap<String, u64>,
    /// What needs no event: the receiver has it already.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) known: BTreeMap<String, Fate>,
    /// When something was made that is left to its events, in ms.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) made: BTreeMap<String, Millis>,
}

/// Why the receiver refuses an event of a step for good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Refused {
    pub(super) index: usize,
    pub(super) status: u16,
    /// The target has an open span already.
    pub(super) is_open: bool,
}

/// All that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) cursors: BTreeMap<Record, Cursor>,
    pub(super) fates: BTreeMap<String, Fate>,
    /// When something was made whose start the record may still tell, in ms.
    #[serde(default)]
    pub(super) made: BTreeMap<String, Millis>,
}

impl State {
    pub(super) fn tracked(&self) -> impl Iterator<Item = (&String, &Tracked)> {
        self.fates.iter().filter_map(|(key, fate)| match fate {
            Fate::Started(tracked) => Some((key, tracked)),
            Fate::Ended(_) => None,
        })
    }

    /// Takes in a step that is answered.
    pub(super) fn apply(&mut self, step: Step, refused: &[Refused]) {
        self.fates.extend(step.known);
        self.made.extend(step.made);
        let refused: HashMap<usize, &Refused> =
            refused.iter().map(|one| (one.index, one)).collect();
        for (index, event) in step.events.into_iter().enumerate() {
            self.made.remove(&event.key);
            // A refused start or update has changed nothing, so a stop names what was started before.
            let is_so = match (refused.get(&index), event.outcome) {
                (None, _) | (Some(_), Outcome::Stopped) => true,
                (Some(refused), Outcome::Started) => refused.is_open,
                (Some(_), Outcome::Updated) => false,
            };
            if is_so {
                self.fates.insert(event.key, event.fate);
            }
        }
        self.cursors.extend(step.cursors);
    }

    /// Forgets ends that no start can be dated before any more.
    pub(super) fn forget_ends(&mut self, now: Millis) {
        self.fates.retain(|_, fate| match fate {
            Fate::Started(_) => true,
            Fate::Ended(at) => *at > now - ENDED_KEPT,
        });
    }
}

/// Collects a step.
pub(super) struct Batch<'a> {
    state: &'a State,
    mapping: &'a Mapping,
    pub(super) step: Step,
    fates: HashMap<String, Fate>,
    /// What has another target if its event is refused: the next event must know.
    moved: HashSet<String>,
}

impl<'a> Batch<'a> {
    pub(super) fn new(state: &'a State, mapping: &'a Mapping) -> Self {
        Self {
            state,
            mapping,
            step: Step::default(),
            fates: HashMap::new(),
            moved: HashSet::new(),
        }
    }

    /// Whether this event must wait for the answers to those before it.
    pub(super) fn must_wait(&self, event: &UsageEvent) -> bool {
        let subject = event.subject();
        subject.is_some_and(|subject| self.moved.contains(subject))
    }

    /// Takes in the next event of a list.
    pub(super) fn add(&mut self, record: Record, event: &UsageEvent) {
        let cursor = self.step.cursors.entry(record).or_insert_with(|| {
            let before = self.state.cursors.get(&record);
            before.cloned().unwrap_or_default()
        });
        cursor.mark = Some(event.into());
        let before = event.subject().and_then(|key| {
            let fate = self.fates.get(key);
            fate.or_else(|| self.state.fates.get(key))
        });
        let Some(mut planned) = translate(event, before, self.mapping) else {
            *self.step.ignored.entry(event.state.clone()).or_default() += 1;
            return;
        };
        if let Some(unknown) = &mut planned.unknown {
            unknown.from = self.state.made.get(&planned.key).copied();
        }
        let target = match before {
            Some(Fate::Started(tracked)) => Some(&tracked.target),
            _ => None,
        };
        let is_moved = match &planned.fate {
            Fate::Started(tracked) => target.is_some_and(|target| *target != tracked.target),
            Fate::Ended(_) => false,
        };
        if is_moved {
            self.moved.insert(planned.key.clone());
        }
        self.fates.insert(planned.key.clone(), planned.fate.clone());
        self.step.events.push(planned);
    }
}

/// The event for the receiver that follows from a usage event, if one does.
fn translate(event: &UsageEvent, before: Option<&Fate>, mapping: &Mapping) -> Option<Planned> {
    let (outcome, body, fate, unknown, key) = match (&event.says, before) {
        (Says::Runs { running, .. }, Some(Fate::Started(tracked))) => {
            let now = changed(running, tracked, event.at, mapping)?;
            let body = update(&event.id(), tracked, &now);
            let fate = Fate::Started(now);
            (Outcome::Updated, body, fate, None, &running.guid)
        }
        (Says::Runs { running, is_change }, before) => {
            let at = match before {
                Some(Fate::Ended(end)) => event.at.max(*end),
                _ => event.at,
            };
            let tracked = tracked(running, at, mapping);
            let body = start(&event.id(), &tracked);
            // It ran before, and nobody recorded since when.
            let is_unknown = *is_change || event.is_seed();
            let unknown = is_unknown.then(|| Unknown {
                target: tracked.target.clone(),
                what: Bound::Start,
                from: None,
                to: at,
            });
            let fate = Fate::Started(tracked);
            (Outcome::Started, body, fate, unknown, &running.guid)
        }
        (Says::Ended(key), Some(Fate::Started(tracked))) => {
            let at = event.at.max(tracked.last);
            let body = stop(&event.id(), tracked, at);
            (Outcome::Stopped, body, Fate::Ended(at), None, key)
        }
        // The last is of what was never started, or has ended.
        (Says::Nothing, _) | (Says::Ended(_), None | Some(Fate::Ended(_))) => return None,
    };
    Some(Planned {
        body,
        state: Some(event.state.clone()),
        outcome,
        key: key.clone(),
        fate,
        unknown,
    })
}

/// What something is from now on, if that is another thing to the receiver.
fn changed(running: &Running, tracked: &Tracked, at: Millis, mapping: &Mapping) -> Option<Tracked> {
    let at = at.max(tracked.last);
    match &running.kind {
        Kind::Service { plan_guid, .. } => {
            let now = self::tracked(running, at, mapping);
            let is_same = match &tracked.plan {
                Some(plan) => plan == plan_guid,
                None => tracked.target == now.target,
            };
            (!is_same).then_some(now)
        }
        Kind::Process { .. } | Kind::Task => {
            let is_same = tracked.quantities == Some(running.quantities);
            (!is_same).then(|| Tracked {
                quantities: Some(running.quantities),
                last: at,
                ..tracked.clone()
            })
        }
    }
}

/// What runs, under the names of now.
pub(super) fn tracked(running: &Running, at: Millis, mapping: &Mapping) -> Tracked {
    let (resource_id, plan_id) = mapping.names(running);
    let (of, plan) = match &running.kind {
        Kind::Service { plan_guid, .. } => (Of::Service, Some(plan_guid.clone())),
        Kind::Process { .. } => (Of::Process, None),
        Kind::Task => (Of::Task, None),
    };
    Tracked {
        target: Target {
            organization_id: running.organization_id.clone(),
            space_id: running.space_id.clone(),
            consumer_id: running.consumer_id.clone(),
            resource_id,
            plan_id,
            resource_instance_id: running.guid.clone(),
        },
        of,
        plan,
        quantities: Some(running.quantities),
        last: at,
    }
}

fn event(kind: &str, id: &str, target: &Target, at: Millis) -> Value {
    let mut body = json!({ "type": kind, "id": id, "timestamp": at });
    for (name, id) in Target::FIELDS.into_iter().zip(target.ids()) {
        body[name] = json!(id);
    }
    body
}

fn start(id: &str, tracked: &Tracked) -> Value {
    let mut body = event("start", id, &tracked.target, tracked.last);
    body["measured_usage"] = measures(tracked);
    body
}

fn update(id: &str, before: &Tracked, now: &Tracked) -> Value {
    let mut body = event("update", id, &now.target, now.last);
    body["measured_usage"] = measures(now);
    let ids = before.target.ids().into_iter().zip(now.target.ids());
    for (name, (before, now)) in Target::FIELDS.into_iter().zip(ids) {
        if before != now {
            body["previous"][name] = json!(before);
        }
    }
    body
}

fn measures(tracked: &Tracked) -> Value {
    let quantities = tracked.quantities.unwrap_or(Quantities::SERVICE);
    quantities.measures()
}

pub(super) fn stop(id: &str, tracked: &Tracked, at: Millis) -> Value {
    event("stop", id, &tracked.target, at)
}

/// The stop of a task whose end the platform never tells.
pub(super) fn task_end(guid: &str, tracked: &Tracked, at: Millis) -> Planned {
    let at = at.max(tracked.last);
    Planned {
        body: stop(&format!("{guid}@end"), tracked, at),
        state: None,
        outcome: Outcome::Stopped,
        key: guid.to_owned(),
        fate: Fate::Ended(at),
        unknown: Some(Unknown {
            target: tracked.target.clone(),
            what: Bound::End,
            from: Some(tracked.last),
            to: at,
        }),
    }
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;

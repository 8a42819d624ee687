//! What is known of everything that runs, and the steps that change it. Pure: no clock, no I/O.

use std::collections::{BTreeMap, HashMap, HashSet};

use sampler_verify::Target;
use sampler_verify::moment::{Millis, parse_moment};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::mapping::Mapping;
use super::translate::translate;
use super::usage_event::{Quantities, Record, UsageEvent};

/// How long the end of something is remembered, in ms of the platform's time: clocks of API servers differ
/// less.
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

/// The last that is known of something: its phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Phase {
    Started(Tracked),
    /// It ended then. Its next start is not dated earlier.
    Ended {
        record: Record,
        at: Millis,
    },
    /// The receiver refuses its start, of this time: it may run, and is not billed.
    Refused {
        record: Record,
        at: Millis,
    },
}

/// How far a list of usage events was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cursor {
    /// The last event whose answer is final. None: the list is read from its beginning.
    pub(super) mark: Option<Mark>,
    /// Whether what ran before is known, because a snapshot was taken.
    pub(super) is_complete: bool,
    /// A snapshot was taken, and the receiver did not name all differences: another comes first.
    #[serde(default)]
    pub(super) has_more: bool,
}

/// An event that others come after. A reseed may use its guid again, with another time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    pub(super) guid: String,
    pub(super) created_at: String,
}

impl Mark {
    /// When the event was made, by the platform's clock.
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
    #[serde(rename = "fate")]
    pub(super) phase: Phase,
    /// What nobody recorded about the intervals that it begins and ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) unknown: Vec<Unknown>,
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
    pub(super) known: BTreeMap<String, Phase>,
    /// When something was made that is left to its events, in ms.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) made: BTreeMap<String, Millis>,
    /// What nobody recorded, where nothing is sent about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) unknown: Vec<Unknown>,
}

impl Step {
    /// Everything that nobody recorded, unless its event is refused.
    pub(super) fn unknown<'a>(&'a self, refused: &[Refused]) -> Vec<&'a Unknown> {
        let refused: HashSet<usize> = refused.iter().map(|one| one.index).collect();
        let events = self
            .events
            .iter()
            .enumerate()
            .filter(|(index, _)| !refused.contains(index));
        let of_events = events.flat_map(|(_, event)| &event.unknown);
        of_events.chain(&self.unknown).collect()
    }
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
pub(super) struct FeedState {
    pub(super) cursors: BTreeMap<Record, Cursor>,
    #[serde(rename = "fates")]
    pub(super) phases: BTreeMap<String, Phase>,
    /// When something was made whose start may still be in the record, in ms.
    #[serde(default)]
    pub(super) made: BTreeMap<String, Millis>,
}

impl FeedState {
    pub(super) fn tracked(&self) -> impl Iterator<Item = (&String, &Tracked)> {
        self.phases.iter().filter_map(|(key, phase)| match phase {
            Phase::Started(tracked) => Some((key, tracked)),
            Phase::Ended { .. } | Phase::Refused { .. } => None,
        })
    }

    /// Takes in a step that is answered.
    pub(super) fn apply(&mut self, step: Step, refused: &[Refused]) {
        for key in step.known.keys() {
            self.made.remove(key);
        }
        self.phases.extend(step.known);
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
            match event.phase {
                phase if is_so => _ = self.phases.insert(event.key, phase),
                Phase::Started(Tracked { of, last, .. }) if event.outcome == Outcome::Started => {
                    let (record, at) = (of.record(), last);
                    self.phases.insert(event.key, Phase::Refused { record, at });
                }
                _ => {}
            }
        }
        self.cursors.extend(step.cursors);
    }

    /// Forgets ends that every later start must follow: by the time of the platform up to which
    /// its record is read, because a record may be read long after it was written. Before what runs is
    /// known, an end may be that of an open span.
    pub(super) fn forget_ends(&mut self) {
        let cursors = self.cursors.iter().filter(|(_, it)| it.is_complete);
        let read_to: HashMap<Record, Millis> = cursors
            .filter_map(|(record, cursor)| Some((*record, cursor.mark.as_ref()?.at()?)))
            .collect();
        self.phases.retain(|_, phase| match phase {
            Phase::Started(_) => true,
            Phase::Ended { record, at } | Phase::Refused { record, at } => read_to
                .get(record)
                .is_none_or(|read_to| *at > read_to - ENDED_KEPT),
        });
    }
}

/// Collects a step.
pub(super) struct Batch<'a> {
    state: &'a FeedState,
    mapping: &'a Mapping,
    pub(super) step: Step,
    phases: HashMap<String, Phase>,
    /// What has another target if its event is refused: the next event must know.
    moved: HashSet<String>,
}

impl<'a> Batch<'a> {
    pub(super) fn new(state: &'a FeedState, mapping: &'a Mapping) -> Self {
        Self {
            state,
            mapping,
            step: Step::default(),
            phases: HashMap::new(),
            moved: HashSet::new(),
        }
    }

    pub(super) fn must_wait(&self, event: &UsageEvent) -> bool {
        let subject = event.subject();
        subject.is_some_and(|subject| self.moved.contains(subject))
    }

    pub(super) fn add(&mut self, record: Record, event: &UsageEvent) {
        let cursor = self.step.cursors.entry(record).or_insert_with(|| {
            let before = self.state.cursors.get(&record);
            before.cloned().unwrap_or_default()
        });
        cursor.mark = Some(event.into());
        let before = event.subject().and_then(|key| {
            let phase = self.phases.get(key);
            phase.or_else(|| self.state.phases.get(key))
        });
        let mut followed = translate(record, event, before, self.mapping);
        if let Some(made) = event.subject().and_then(|key| self.state.made.get(key)) {
            for unknown in &mut followed.unknown {
                unknown.from = unknown.from.max(Some((*made).min(unknown.to)));
            }
        }
        let Some(mut planned) = followed.planned else {
            *self.step.ignored.entry(event.state.clone()).or_default() += 1;
            self.step.unknown.extend(followed.unknown);
            if let (Some(key), Some(phase)) = (event.subject(), followed.phase) {
                self.phases.insert(key.to_owned(), phase.clone());
                self.step.known.insert(key.to_owned(), phase);
            }
            return;
        };
        planned.unknown = followed.unknown;
        let target = match before {
            Some(Phase::Started(tracked)) => Some(&tracked.target),
            _ => None,
        };
        let is_moved = match &planned.phase {
            Phase::Started(tracked) => target.is_some_and(|target| *target != tracked.target),
            Phase::Ended { .. } | Phase::Refused { .. } => false,
        };
        if is_moved {
            self.moved.insert(planned.key.clone());
        }
        self.phases
            .insert(planned.key.clone(), planned.phase.clone());
        self.step.events.push(planned);
    }
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;

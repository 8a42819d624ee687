//! A hole in the record: the first run, a pruned cursor, a purge. What runs now is compared with the spans
//! of the receiver, and what cannot be known is said. Pure: no clock, no I/O.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Write;

use sampler_api::{Event, EventType, SnapshotReport};
use sampler_verify::Target;
use sampler_verify::moment::Millis;
use serde_json::{Value, json};

use super::mapping::Mapping;
use super::rules::{
    Bound, Cursor, Fate, Mark, Of, Outcome, Planned, State, Step, Tracked, Unknown, tracked,
};
use super::usage_event::{Kind, Quantities, Record, Running};

/// What runs at a time, as the platform lists it.
#[derive(Clone, Debug, Default)]
pub(super) struct Listed {
    /// Each with the time at which it was made, in ms.
    pub(super) running: Vec<(Running, Millis)>,
    /// What is listed, but nobody says where it belongs: it is neither started nor stopped.
    pub(super) unplaced: HashSet<String>,
    pub(super) organizations: HashSet<String>,
}

/// The hole, and what is known about it.
pub(super) struct Hole<'a> {
    pub(super) record: Record,
    pub(super) state: &'a State,
    pub(super) mapping: &'a Mapping,
    /// The time of the lists, in ms.
    pub(super) at: Millis,
    pub(super) mark: Option<Mark>,
    pub(super) listed: &'a Listed,
    /// What has events behind the mark.
    pub(super) left: &'a HashSet<String>,
}

impl Hole<'_> {
    /// What runs and is not left to its events, under the names that it was started with.
    fn expected(&self) -> HashMap<&str, (Tracked, Millis)> {
        let running = self.listed.running.iter();
        let running = running.filter(|(running, _)| !self.left.contains(&running.guid));
        running
            .map(|(running, made)| {
                let mut expected = tracked(running, self.at, self.mapping);
                if let Some(Fate::Started(before)) = self.state.fates.get(&running.guid)
                    && is_same_plan(before, running)
                {
                    expected.target = before.target.clone();
                    expected.last = before.last;
                }
                (running.guid.as_str(), (expected, *made))
            })
            .collect()
    }

    /// The snapshots to compare, by resource: a head and an instance in each line.
    pub(super) fn snapshots(&self) -> BTreeMap<String, String> {
        let expected = self.expected();
        let all = self.listed.running.iter();
        let listed = all.map(|(running, _)| self.mapping.names(running).0);
        let known = self.state.tracked();
        let known = known.filter(|(_, tracked)| tracked.of.record() == self.record);
        let known = known.map(|(_, tracked)| tracked.target.resource_id.clone());
        let expected_resources = expected
            .values()
            .map(|(it, _)| it.target.resource_id.clone());
        let resources: BTreeSet<String> = listed.chain(known).chain(expected_resources).collect();
        let mut bodies: BTreeMap<String, String> = resources
            .into_iter()
            .map(|resource| {
                let head = json!({ "resource_id": resource, "at": self.at });
                (resource, format!("{head}\n"))
            })
            .collect();
        for (tracked, _) in expected.values() {
            if let Some(body) = bodies.get_mut(&tracked.target.resource_id) {
                let _ = writeln!(body, "{}", instance(tracked));
            }
        }
        bodies
    }

    /// What is to be done about the answers. If they do not name all, the hole is not complete yet.
    pub(super) fn step(&self, answers: &[SnapshotReport]) -> Step {
        let expected = self.expected();
        let mut step = Step::default();
        for (tracked, _) in expected.values() {
            let key = tracked.target.resource_instance_id.clone();
            step.known.insert(key, Fate::Started(tracked.clone()));
        }
        for answer in answers {
            self.ended(answer, &mut step);
            for found in &answer.instance_without_span {
                step.events.extend(planned(&found.proposal, &expected));
            }
            for found in &answer.differs {
                step.events.extend(planned(&found.proposal, &expected));
            }
        }
        // What continues under another resource stops first.
        step.events
            .sort_by_key(|event| event.outcome != Outcome::Stopped);
        for event in &step.events {
            step.known.remove(&event.key);
        }
        for (running, made) in &self.listed.running {
            let is_started = matches!(self.state.fates.get(&running.guid), Some(Fate::Started(_)));
            if self.left.contains(&running.guid) && !is_started {
                step.made.insert(running.guid.clone(), *made);
            }
        }
        let is_more = answers.iter().any(|answer| answer.more) && !step.events.is_empty();
        let cursor = Cursor {
            mark: self.mark.clone(),
            is_complete: !is_more,
        };
        step.cursors.insert(self.record, cursor);
        step
    }

    /// Stops what does not run. What is left to its events is remembered, because they change it.
    fn ended(&self, answer: &SnapshotReport, step: &mut Step) {
        for found in &answer.open_without_instance {
            let target = of_api(&found.target);
            let key = target.resource_instance_id.clone();
            let before = match self.state.fates.get(&key) {
                Some(Fate::Started(tracked)) => Some(tracked),
                _ => None,
            };
            if !self.is_ours(&target, before) || self.listed.unplaced.contains(&key) {
                continue;
            }
            if self.left.contains(&key) {
                if before.is_none() {
                    let fate = Fate::Started(open(target, found.start.as_millis()));
                    step.known.insert(key, fate);
                }
                continue;
            }
            let start = found.start.as_millis();
            let last = before.map_or(start, |tracked| tracked.last.max(start));
            let at = found.proposal.timestamp.as_millis();
            step.events.push(Planned {
                body: body_of(&found.proposal),
                state: None,
                outcome: Outcome::Stopped,
                key,
                fate: Fate::Ended(at),
                unknown: Some(Unknown {
                    target,
                    what: Bound::End,
                    from: Some(last.min(at)),
                    to: at,
                }),
            });
        }
    }

    /// Whether a span is this foundation's and of this record: others may have the same resource.
    fn is_ours(&self, target: &Target, before: Option<&Tracked>) -> bool {
        if let Some(tracked) = before {
            return tracked.of.record() == self.record && tracked.target == *target;
        }
        let consumer = &target.consumer_id;
        let is_of_feed = match self.record {
            Record::Services => {
                consumer.strip_prefix("service:") == Some(&target.resource_instance_id)
            }
            Record::Apps => consumer.starts_with("app:"),
        };
        let known = self.state.tracked();
        let mut known = known.map(|(_, tracked)| &tracked.target.organization_id);
        let organization = &target.organization_id;
        is_of_feed
            && (self.listed.organizations.contains(organization)
                || known.any(|known| known == organization))
    }
}

/// A start or an update of what runs.
fn planned(proposal: &Event, expected: &HashMap<&str, (Tracked, Millis)>) -> Option<Planned> {
    let (tracked, made) = expected.get(proposal.resource_instance_id.as_str())?;
    let at = proposal.timestamp.as_millis();
    let is_start = proposal.r#type == EventType::Start;
    let unknown = is_start.then(|| Unknown {
        target: tracked.target.clone(),
        what: Bound::Start,
        from: Some((*made).min(at)),
        to: at,
    });
    let mut now = tracked.clone();
    now.last = at;
    Some(Planned {
        body: body_of(proposal),
        state: None,
        outcome: if is_start {
            Outcome::Started
        } else {
            Outcome::Updated
        },
        key: now.target.resource_instance_id.clone(),
        fate: Fate::Started(now),
        unknown,
    })
}

fn is_same_plan(before: &Tracked, running: &Running) -> bool {
    match (&running.kind, &before.plan) {
        (Kind::Service { plan_guid, .. }, Some(plan)) => plan == plan_guid,
        (Kind::Service { .. }, None) => false,
        (Kind::Process { .. } | Kind::Task, _) => true,
    }
}

/// A span of which no more is known than that it is open.
fn open(target: Target, start: Millis) -> Tracked {
    let of = if target.consumer_id.starts_with("service:") {
        Of::Service
    } else {
        Of::Process
    };
    Tracked {
        target,
        of,
        plan: None,
        quantities: None,
        last: start,
    }
}

fn instance(tracked: &Tracked) -> Value {
    let target = &tracked.target;
    let quantities = tracked.quantities.unwrap_or(Quantities::SERVICE);
    json!({
        "organization_id": target.organization_id,
        "space_id": target.space_id,
        "consumer_id": target.consumer_id,
        "plan_id": target.plan_id,
        "resource_instance_id": target.resource_instance_id,
        "measured_usage": quantities.measures(),
    })
}

fn body_of(proposal: &Event) -> Value {
    serde_json::to_value(proposal).expect("texts, numbers and lists of these")
}

fn of_api(target: &sampler_api::Target) -> Target {
    Target {
        organization_id: target.organization_id.clone(),
        space_id: target.space_id.clone(),
        consumer_id: target.consumer_id.clone(),
        resource_id: target.resource_id.clone(),
        plan_id: target.plan_id.clone(),
        resource_instance_id: target.resource_instance_id.clone(),
    }
}

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
    Bound, Cursor, FeedState, Mark, Of, Outcome, Phase, Planned, Step, Tracked, Unknown,
};
use super::translate::tracked;
use super::usage_event::{Quantities, Record, Running, UsageKind};

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
    pub(super) state: &'a FeedState,
    pub(super) mapping: &'a Mapping,
    /// The time of the lists, in ms.
    pub(super) at: Millis,
    pub(super) mark: Option<Mark>,
    pub(super) listed: &'a Listed,
    /// What has events behind the mark.
    pub(super) left: &'a HashSet<String>,
    pub(super) open: &'a Open,
}

/// What an earlier feed, whose state may be lost, has left open.
#[derive(Clone, Debug, Default)]
pub(super) struct Open {
    pub(super) resources: BTreeSet<String>,
    /// Since when each instance is billed, and how much of it, if a feed has started that.
    pub(super) spans: HashMap<String, (Millis, Option<Quantities>)>,
}

/// What is to be done about a hole.
#[derive(Debug, Default)]
pub(super) struct Filled {
    pub(super) step: Step,
    /// Open spans that look like a feed's, in organizations that this foundation does not have, or
    /// no longer has.
    pub(super) others: Vec<Target>,
    /// The receiver has more differences than it names, and none of the named ones is to be mended.
    pub(super) is_cut: bool,
}

impl Hole<'_> {
    /// What runs and is not left to its events, under the names that it was started with.
    fn expected(&self) -> HashMap<&str, (Tracked, Millis)> {
        let running = self.listed.running.iter();
        let running = running.filter(|(running, _)| !self.left.contains(&running.guid));
        running
            .map(|(running, made)| {
                let mut expected = tracked(running, self.at, self.mapping);
                let before = self.state.phases.get(&running.guid);
                match (before, self.open.spans.get(&running.guid)) {
                    (Some(Phase::Started(before)), _) if is_same_plan(before, running) => {
                        expected.target = before.target.clone();
                        expected.last = before.last;
                    }
                    // Its next event may be dated before the lists, by another clock.
                    (None, Some((start, _))) => expected.last = *start,
                    _ => {}
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
        let known = self
            .state
            .tracked()
            .filter(|(_, tracked)| tracked.of.record() == self.record)
            .map(|(_, tracked)| tracked.target.resource_id.clone());
        let expected_resources = expected
            .values()
            .map(|(it, _)| it.target.resource_id.clone());
        let resources: BTreeSet<String> = listed
            .chain(known)
            .chain(expected_resources)
            .chain(self.open.resources.iter().cloned())
            .collect();
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
    pub(super) fn filled(&self, answers: &[SnapshotReport]) -> Filled {
        let expected = self.expected();
        let (mut step, mut others) = (Step::default(), Vec::new());
        for answer in answers {
            self.ended(answer, &mut step, &mut others);
            for found in &answer.instance_without_span {
                step.events.extend(self.planned(&found.proposal, &expected));
            }
            for found in &answer.differs {
                step.events.extend(self.planned(&found.proposal, &expected));
            }
        }
        // What continues under another resource stops first.
        step.events
            .sort_by_key(|event| event.outcome != Outcome::Stopped);
        let is_named = answers.iter().all(|answer| !answer.more);
        // What is mended makes room for the rest.
        let is_cut = !is_named && step.events.is_empty();
        if is_named || is_cut {
            let planned: HashSet<&str> =
                step.events.iter().map(|event| event.key.as_str()).collect();
            for (key, (tracked, _)) in &expected {
                if !planned.contains(key) {
                    let phase = Phase::Started(tracked.clone());
                    step.known.insert((*key).to_owned(), phase);
                }
            }
        }
        for (running, made) in &self.listed.running {
            let is_started = matches!(
                self.state.phases.get(&running.guid),
                Some(Phase::Started(_))
            );
            if self.left.contains(&running.guid) && !is_started {
                step.made.insert(running.guid.clone(), *made);
            }
        }
        let cursor = Cursor {
            mark: self.mark.clone(),
            is_complete: is_named || is_cut,
            has_more: !is_named && !is_cut,
        };
        step.cursors.insert(self.record, cursor);
        Filled {
            step,
            others,
            is_cut,
        }
    }

    /// Stops what does not run. Remembers what is left to later usage events, because those change it.
    fn ended(&self, answer: &SnapshotReport, step: &mut Step, others: &mut Vec<Target>) {
        for found in &answer.open_without_instance {
            let target = target_of(&json!(found.target));
            let key = target.resource_instance_id.clone();
            let phase = self.state.phases.get(&key);
            let before = match phase {
                Some(Phase::Started(tracked)) => Some(tracked),
                _ => None,
            };
            if !self.is_ours(&target, before) {
                if before.is_none() && self.is_of_feed(&target) {
                    others.push(target);
                }
                continue;
            }
            if self.listed.unplaced.contains(&key) {
                continue;
            }
            let start = found.start.as_millis();
            if self.left.contains(&key) {
                if before.is_none() {
                    let mut known = open(target, start);
                    known.quantities = self.open.spans.get(&key).and_then(|(_, it)| *it);
                    step.known.insert(key, Phase::Started(known));
                }
                continue;
            }
            let at = found.proposal.timestamp.as_millis();
            let mut body = body_of(&found.proposal);
            let (at, unknown) = match phase {
                // Its end is recorded, and only its start is not.
                Some(Phase::Ended { at: end, .. }) if (start..=at).contains(end) => {
                    let id = body["id"].as_str().unwrap_or_default();
                    body["id"] = json!(format!("{id}@{end}"));
                    body["timestamp"] = json!(end);
                    (*end, None)
                }
                _ => {
                    let last = before.map_or(start, |tracked| tracked.last.max(start));
                    (at, Some(unknown(&target, Bound::End, last, at)))
                }
            };
            step.events.push(Planned {
                body,
                state: None,
                outcome: Outcome::Stopped,
                key,
                phase: Phase::Ended {
                    record: self.record,
                    at,
                },
                unknown: unknown.into_iter().collect(),
            });
        }
    }

    /// A start or an update of what runs.
    fn planned(
        &self,
        proposal: &Event,
        expected: &HashMap<&str, (Tracked, Millis)>,
    ) -> Option<Planned> {
        let (tracked, made) = expected.get(proposal.resource_instance_id.as_str())?;
        let at = proposal.timestamp.as_millis();
        let is_start = proposal.r#type == EventType::Start;
        let (body, mut unknowns) = (body_of(proposal), Vec::new());
        // Since the last that is known of it, or since it was made.
        let from = match self.state.phases.get(&tracked.target.resource_instance_id) {
            Some(Phase::Started(before)) => before.last,
            Some(Phase::Ended { at, .. }) => (*made).max(*at),
            Some(Phase::Refused { .. }) | None => *made,
        };
        if !is_start {
            unknowns.push(unknown(&target_of(&body), Bound::End, from, at));
        }
        unknowns.push(unknown(&tracked.target, Bound::Start, from, at));
        let mut now = tracked.clone();
        now.last = at;
        Some(Planned {
            body,
            state: None,
            outcome: if is_start {
                Outcome::Started
            } else {
                Outcome::Updated
            },
            key: now.target.resource_instance_id.clone(),
            phase: Phase::Started(now),
            unknown: unknowns,
        })
    }

    /// Whether a span is this foundation's and of this record: others may have the same resource.
    fn is_ours(&self, target: &Target, before: Option<&Tracked>) -> bool {
        if let Some(tracked) = before {
            return tracked.of.record() == self.record && tracked.target == *target;
        }
        let mut known = self
            .state
            .tracked()
            .map(|(_, tracked)| &tracked.target.organization_id);
        let organization = &target.organization_id;
        self.is_of_feed(target)
            && (self.listed.organizations.contains(organization)
                || known.any(|known| known == organization))
    }

    fn is_of_feed(&self, target: &Target) -> bool {
        is_of_feed(
            self.record,
            &target.consumer_id,
            &target.resource_instance_id,
        )
    }
}

/// Whether a feed names a consumer and an instance like this.
pub(super) fn is_of_feed(record: Record, consumer: &str, instance: &str) -> bool {
    match record {
        Record::Services => consumer.strip_prefix("service:") == Some(instance),
        Record::Apps => consumer.starts_with("app:"),
    }
}

fn unknown(target: &Target, what: Bound, from: Millis, to: Millis) -> Unknown {
    Unknown {
        target: target.clone(),
        what,
        from: Some(from.min(to)),
        to,
    }
}

/// A target in JSON; of an update the one before.
fn target_of(body: &Value) -> Target {
    Target::from_ids(Target::FIELDS.map(|name| {
        let previous = body.get("previous").and_then(|previous| previous.get(name));
        let id = previous.unwrap_or(&body[name]);
        id.as_str().unwrap_or_default().to_owned()
    }))
}

fn is_same_plan(before: &Tracked, running: &Running) -> bool {
    match (&running.kind, &before.plan) {
        (UsageKind::Service { plan_guid, .. }, Some(plan)) => plan == plan_guid,
        (UsageKind::Service { .. }, None) => false,
        (UsageKind::Process { .. } | UsageKind::Task, _) => true,
    }
}

/// A span that is only known to be open.
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

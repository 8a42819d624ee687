//! What a usage event of the platform means, given what was started before. Pure: no clock, no I/O.

use sampler_verify::Target;
use sampler_verify::moment::Millis;
use serde_json::{Value, json};

use super::mapping::Mapping;
use super::rules::{Bound, Of, Outcome, Phase, Planned, Tracked, Unknown};
use super::usage_event::{Quantities, Record, Running, Says, UsageEvent, UsageKind};

/// What follows from a usage event.
#[derive(Default)]
pub(super) struct Followed {
    pub(super) planned: Option<Planned>,
    /// What is known of its subject, if nothing is sent.
    pub(super) phase: Option<Phase>,
    /// What nobody recorded.
    pub(super) unknown: Vec<Unknown>,
}

impl Followed {
    fn planned(event: &UsageEvent, key: &str, what: (Outcome, Value, Phase)) -> Self {
        let (outcome, body, phase) = what;
        let planned = Planned {
            body,
            state: Some(event.state.clone()),
            outcome,
            key: key.to_owned(),
            phase,
            unknown: Vec::new(),
        };
        Self {
            planned: Some(planned),
            ..Self::default()
        }
    }
}

/// What follows from a usage event, given the last that is known of its subject.
pub(super) fn translate(
    record: Record,
    event: &UsageEvent,
    before: Option<&Phase>,
    mapping: &Mapping,
) -> Followed {
    match (&event.says, before) {
        (Says::Runs { running, .. }, Some(Phase::Started(tracked))) => {
            let unknown = unrecorded(event, tracked, mapping);
            let Some(now) = changed(running, tracked, event.at, mapping) else {
                return Followed {
                    unknown,
                    ..Followed::default()
                };
            };
            let body = update(&event.id(), tracked, &now);
            let what = (Outcome::Updated, body, Phase::Started(now));
            Followed {
                unknown,
                ..Followed::planned(event, &running.guid, what)
            }
        }
        (Says::Runs { running, .. }, before) => started(event, running, before, mapping),
        (Says::Ended { guid, .. }, Some(Phase::Started(tracked))) => {
            let at = event.at.max(tracked.last);
            let body = stop(&event.id(), tracked, at);
            let what = (Outcome::Stopped, body, Phase::Ended { record, at });
            Followed {
                unknown: unrecorded(event, tracked, mapping),
                ..Followed::planned(event, guid, what)
            }
        }
        (Says::Ended { was, .. }, before) => {
            ended_untracked(record, event, was.as_deref(), before, mapping)
        }
        (Says::Nothing, _) => Followed::default(),
    }
}

/// The start of what was not started.
fn started(
    event: &UsageEvent,
    running: &Running,
    before: Option<&Phase>,
    mapping: &Mapping,
) -> Followed {
    let (end, is_refused) = match before {
        Some(Phase::Ended { at, .. }) => (Some(*at), false),
        Some(Phase::Refused { .. }) => (None, true),
        Some(Phase::Started(_)) | None => (None, false),
    };
    let at = end.map_or(event.at, |end| event.at.max(end));
    let tracked = tracked(running, at, mapping);
    let body = start(&event.id(), &tracked);
    // It ran before, and nobody recorded since when; unless that was recorded and refused.
    let is_change = matches!(event.says, Says::Runs { is_change, .. } if is_change);
    let is_unknown = (is_change || event.is_seed()) && !is_refused;
    let unknown = is_unknown.then(|| Unknown {
        target: tracked.target.clone(),
        what: Bound::Start,
        from: end,
        to: at,
    });
    let what = (Outcome::Started, body, Phase::Started(tracked));
    Followed {
        unknown: unknown.into_iter().collect(),
        ..Followed::planned(event, &running.guid, what)
    }
}

/// The stop of what was never started, or has ended: nothing to send. Unless it only comes twice, it ran
/// since a time that nobody recorded. The end is remembered: the receiver may have an open span of it.
fn ended_untracked(
    record: Record,
    event: &UsageEvent,
    was: Option<&Running>,
    before: Option<&Phase>,
    mapping: &Mapping,
) -> Followed {
    let at = event.at;
    let from = match before {
        // Its start is among what was refused.
        Some(Phase::Refused { .. } | Phase::Started(_)) => {
            return Followed {
                phase: Some(Phase::Ended { record, at }),
                ..Followed::default()
            };
        }
        Some(Phase::Ended { at: end, .. }) if at <= *end => return Followed::default(),
        Some(Phase::Ended { at: end, .. }) => Some(*end),
        None => None,
    };
    let unknown = was.map(|was| Unknown {
        target: tracked(was, at, mapping).target,
        what: Bound::Start,
        from,
        to: at,
    });
    Followed {
        planned: None,
        phase: Some(Phase::Ended { record, at }),
        unknown: unknown.into_iter().collect(),
    }
}

/// What an event shows that no earlier event has shown: that something tracked had stopped, or ran with
/// other quantities or another plan. It is not known since when.
fn unrecorded(event: &UsageEvent, tracked: &Tracked, mapping: &Mapping) -> Vec<Unknown> {
    let unknown = |target: &Target, what| Unknown {
        target: target.clone(),
        what,
        from: Some(tracked.last),
        to: event.at,
    };
    // One that comes twice, or by another clock.
    if event.at <= tracked.last {
        return Vec::new();
    }
    let (running, quantities) = match &event.says {
        Says::Runs { is_change, .. } if !*is_change && !event.is_seed() => {
            return vec![unknown(&tracked.target, Bound::End)];
        }
        // Only a seed says what ran before with its plan: it is not the event of a change.
        Says::Runs { running, was, .. } => (event.is_seed().then_some(running), *was),
        Says::Ended { was: Some(was), .. } => (Some(was), Some(was.quantities)),
        Says::Ended { was: None, .. } | Says::Nothing => return Vec::new(),
    };
    let service = running.filter(|it| matches!(it.kind, UsageKind::Service { .. }));
    let other = service.and_then(|it| changed(it, tracked, event.at, mapping));
    let is_other = tracked.quantities.is_some()
        && quantities.is_some_and(|quantities| tracked.quantities != Some(quantities));
    if other.is_none() && !is_other {
        return Vec::new();
    }
    let target = other
        .as_ref()
        .map_or(&tracked.target, |other| &other.target);
    vec![
        unknown(&tracked.target, Bound::End),
        unknown(target, Bound::Start),
    ]
}

/// What something is from now on, if that is another thing to the receiver.
fn changed(running: &Running, tracked: &Tracked, at: Millis, mapping: &Mapping) -> Option<Tracked> {
    let at = at.max(tracked.last);
    match &running.kind {
        UsageKind::Service { plan_guid, .. } => {
            let now = self::tracked(running, at, mapping);
            let is_same = match &tracked.plan {
                Some(plan) => plan == plan_guid,
                None => tracked.target == now.target,
            };
            (!is_same).then_some(now)
        }
        UsageKind::Process { .. } | UsageKind::Task => {
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
        UsageKind::Service { plan_guid, .. } => (Of::Service, Some(plan_guid.clone())),
        UsageKind::Process { .. } => (Of::Process, None),
        UsageKind::Task => (Of::Task, None),
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

pub(super) fn start(id: &str, tracked: &Tracked) -> Value {
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

/// The stop of a task whose end the platform never reports.
pub(super) fn task_end(guid: &str, tracked: &Tracked, at: Millis) -> Planned {
    let at = at.max(tracked.last);
    Planned {
        body: stop(&format!("{guid}@end"), tracked, at),
        state: None,
        outcome: Outcome::Stopped,
        key: guid.to_owned(),
        phase: Phase::Ended {
            record: Record::Apps,
            at,
        },
        unknown: vec![Unknown {
            target: tracked.target.clone(),
            what: Bound::End,
            from: Some(tracked.last),
            to: at,
        }],
    }
}

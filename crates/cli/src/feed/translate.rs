//! What a usage event of the platform means, given what was started before. Pure: no clock, no I/O.

use sampler_verify::Target;
use sampler_verify::moment::Millis;
use serde_json::{Value, json};

use super::state::{Bound, Change, Idle, Kind, Outcome, Phase, Tracked, Unknown, Why};
use super::usage_event::{Record, Says, Since, UsageEvent};

/// What follows from a usage event, given the last that is known of its subject.
pub(super) fn translate(record: Record, event: &UsageEvent, before: Option<&Phase>) -> Change {
    let (tracked, idle) = match before {
        Some(Phase::Started(tracked)) => (Some(tracked), None),
        Some(Phase::Idle(idle)) => (None, Some(idle)),
        None => (None, None),
    };
    let change = match (&event.says, tracked) {
        (Says::Nothing, _) => Change::default(),
        (Says::Runs { now, since, .. }, Some(tracked)) => went_on(event, now, *since, tracked),
        (Says::Runs { now, since, .. }, None) => started(event, now, *since, idle),
        (Says::Ended { .. }, Some(tracked)) => stopped(record, event, tracked),
        (Says::Ended { was, .. }, None) => ended_untracked(record, event, was.as_deref(), idle),
    };
    Change {
        key: event.subject().map(str::to_owned),
        state: Some(event.state.clone()),
        ..change
    }
}

/// An event about what is started and runs on.
fn went_on(event: &UsageEvent, now: &Tracked, since: Since, tracked: &Tracked) -> Change {
    if since == Since::Noted {
        return Change::default();
    }
    let unknown = unrecorded(event, tracked);
    let change = match changed(now, tracked) {
        Some(now) => {
            let body = update(&event.id(), tracked, &now);
            Change::posting(Outcome::Updated, body, Phase::Started(now))
        }
        None => Change::default(),
    };
    change.with_unknown(unknown)
}

/// The start of what was not started.
fn started(event: &UsageEvent, now: &Tracked, since: Since, idle: Option<&Idle>) -> Change {
    let why = idle.map(|idle| idle.why);
    // A note can come behind the end of what it names.
    if since == Since::Noted && why == Some(Why::Ended) {
        return Change::default();
    }
    let ended = idle.filter(|idle| idle.why == Why::Ended);
    let at = ended.map_or(event.at, |idle| idle.at.max(event.at));
    let tracked = Tracked {
        last: at,
        ..now.clone()
    };
    // It ran before, and nobody recorded since when; unless that was recorded and refused.
    let is_unknown = (since != Since::Event || event.is_seed()) && why != Some(Why::Refused);
    let unknown = is_unknown.then(|| unknown_start(&tracked.target, idle, at));
    let body = start(&event.id(), &tracked);
    let change = Change::posting(Outcome::Started, body, Phase::Started(tracked));
    change.with_unknown(unknown.into_iter().collect())
}

fn stopped(record: Record, event: &UsageEvent, tracked: &Tracked) -> Change {
    let at = event.at.max(tracked.last);
    let body = stop(&event.id(), &tracked.target, at);
    let change = Change::posting(Outcome::Stopped, body, Idle::ended(record, at));
    change.with_unknown(unrecorded(event, tracked))
}

/// The stop of what was never started, or has ended: nothing to post. Unless it only comes twice, it ran
/// since a time that nobody recorded. The end is remembered: the receiver may have an open span of it.
fn ended_untracked(
    record: Record,
    event: &UsageEvent,
    was: Option<&Tracked>,
    idle: Option<&Idle>,
) -> Change {
    let why = idle.map(|idle| idle.why);
    if why == Some(Why::Ended) && idle.is_some_and(|idle| event.at <= idle.at) {
        return Change::default();
    }
    // A start that was refused is no unknown start.
    let was = was.filter(|_| why != Some(Why::Refused));
    let unknown = was.map(|was| unknown_start(&was.target, idle, event.at));
    Change {
        phase: Some(Idle::ended(record, event.at)),
        unknown: unknown.into_iter().collect(),
        ..Change::default()
    }
}

fn unknown_start(target: &Target, idle: Option<&Idle>, to: Millis) -> Unknown {
    Unknown {
        target: target.clone(),
        what: Bound::Start,
        from: idle.map(|idle| idle.at.min(to)),
        to,
    }
}

/// What an event shows that no earlier event has shown: that something tracked had stopped, or ran with
/// other quantities or another plan. It is not known since when.
fn unrecorded(event: &UsageEvent, tracked: &Tracked) -> Vec<Unknown> {
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
    let (before, quantities) = match &event.says {
        Says::Runs {
            since: Since::Event,
            ..
        } if !event.is_seed() => {
            return vec![unknown(&tracked.target, Bound::End)];
        }
        // Only a seed says what ran before with its plan: it is not the event of a change.
        Says::Runs { now, was, .. } => (event.is_seed().then_some(now), *was),
        Says::Ended { was: Some(was), .. } => (Some(was), was.quantities),
        Says::Ended { was: None, .. } | Says::Nothing => return Vec::new(),
    };
    let service = before.filter(|it| it.kind == Kind::Service);
    let other = service.and_then(|it| changed(it, tracked));
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
fn changed(now: &Tracked, tracked: &Tracked) -> Option<Tracked> {
    let last = now.last.max(tracked.last);
    if now.kind == Kind::Service {
        return (!tracked.has_plan_of(now)).then(|| Tracked {
            last,
            ..now.clone()
        });
    }
    (tracked.quantities != now.quantities).then(|| Tracked {
        quantities: now.quantities,
        last,
        ..tracked.clone()
    })
}

/// The stop of a task whose end the platform never tells.
pub(super) fn task_end(guid: &str, tracked: &Tracked, at: Millis) -> Change {
    let at = at.max(tracked.last);
    let body = stop(&format!("{guid}@end"), &tracked.target, at);
    let unknown = Unknown {
        target: tracked.target.clone(),
        what: Bound::End,
        from: Some(tracked.last),
        to: at,
    };
    let change = Change::posting(Outcome::Stopped, body, Idle::ended(Record::Apps, at));
    change.with_unknown(vec![unknown])
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
    body["measured_usage"] = tracked.measures();
    body
}

fn update(id: &str, before: &Tracked, now: &Tracked) -> Value {
    let mut body = event("update", id, &now.target, now.last);
    body["measured_usage"] = now.measures();
    let ids = before.target.ids().into_iter().zip(now.target.ids());
    for (name, (before, now)) in Target::FIELDS.into_iter().zip(ids) {
        if before != now {
            body["previous"][name] = json!(before);
        }
    }
    body
}

fn stop(id: &str, target: &Target, at: Millis) -> Value {
    event("stop", id, target, at)
}

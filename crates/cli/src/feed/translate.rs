//! What a usage event or a list of the platform means, given what was started before. Pure: no clock, no I/O.

use sampler_verify::Target;
use sampler_verify::moment::Millis;
use serde_json::{Value, json};

use super::state::{Bound, Change, Idle, Kind, Phase, Quantities, Tracked, Unknown, Why};
use super::usage_event::{Record, Says, UsageEvent, What};

/// What follows from a usage event, given the last that is known of its subject.
pub(super) fn translate(record: Record, event: &UsageEvent, before: Option<&Phase>) -> Change {
    let (tracked, idle) = match before {
        Some(Phase::Started(tracked)) => (Some(tracked), None),
        Some(Phase::Idle(idle)) => (None, Some(idle)),
        None => (None, None),
    };
    let change = match (&event.says, tracked) {
        (Some(says), Some(tracked)) => of_started(record, event, says, tracked),
        (Some(says), None) => of_idle(record, event, says, idle),
        (None, _) => Change::default(),
    };
    Change {
        key: event.subject().map(str::to_owned),
        state: Some(event.state.clone()),
        ..change
    }
}

/// An event about what is started.
fn of_started(record: Record, event: &UsageEvent, says: &Says, tracked: &Tracked) -> Change {
    let unknown = unrecorded(event, says, tracked);
    match (says.what, &says.part) {
        (What::Noted, _) => Change::default(),
        (What::Ends, _) => end(&event.id(), tracked, record, event.at, unknown),
        (_, part) => {
            let now = part.as_ref().and_then(|now| changed(now, tracked));
            now.map_or_else(Change::default, |now| {
                change(&event.id(), tracked, now, Vec::new())
            })
            .with(unknown)
        }
    }
}

/// An event about what was never started, or has ended.
fn of_idle(record: Record, event: &UsageEvent, says: &Says, idle: Option<&Idle>) -> Change {
    let why = idle.map(|idle| idle.why);
    let ended = idle.filter(|idle| idle.why == Why::Ended);
    let since = idle.map(|idle| idle.at);
    // Of what the receiver refuses, the start was recorded.
    let is_refused = why == Some(Why::Refused);
    match (says.what, &says.part) {
        // A note can come behind the end of what it names.
        (What::Noted, _) if ended.is_some() => Change::default(),
        // An end that comes twice.
        (What::Ends, _) if ended.is_some_and(|idle| event.at <= idle.at) => Change::default(),
        // The stop of a start that is refused is refused, too, and kept with it.
        (What::Ends, Some(was)) if is_refused => {
            end(&event.id(), was, record, event.at, Vec::new())
        }
        // The end is remembered: the receiver may have an open span of it.
        (What::Ends, was) => {
            let unknown = was
                .as_ref()
                .map(|was| Bound::Start.of(&was.target, since, event.at));
            let ended = Change::noting(&says.guid, Phase::ended(record, event.at));
            ended.with(unknown.into_iter().collect())
        }
        (what, Some(now)) => {
            let at = ended.map_or(event.at, |idle| idle.at.max(event.at));
            let is_recorded = what == What::Starts && !event.is_seed();
            let unknown = Bound::Start.of(&now.target, since, at);
            let unknown = (!is_recorded && !is_refused).then_some(unknown);
            start(&event.id(), now, at, unknown.into_iter().collect())
        }
        (_, None) => Change::default(),
    }
}

/// What a list shows of something that runs, given what the receiver has of it; `since` is the last that is known.
pub(super) fn listed(now: &Tracked, before: Option<&Tracked>, since: Millis, at: Millis) -> Change {
    let id = format!("{}@runs-{at}", now.key());
    let started = |target| Bound::Start.of(target, Some(since), at);
    let Some(before) = before else {
        return start(&id, now, at, vec![started(&now.target)]);
    };
    let Some(other) = changed(now, before) else {
        // A list says more than a span: whether it is a task, and its plan.
        let known = Tracked {
            kind: now.kind,
            plan: before.plan.clone().or_else(|| now.plan.clone()),
            ..before.clone()
        };
        return Change::noting(now.key(), Phase::Started(known));
    };
    let other = Tracked { last: at, ..other };
    let ended = Bound::End.of(&before.target, Some(since), at);
    let unknown = vec![ended, started(&other.target)];
    change(&id, before, other, unknown)
}

/// The stop of what no longer runs, since a time that nobody recorded.
pub(super) fn gone(tracked: &Tracked, at: Millis) -> Change {
    let at = at.max(tracked.last);
    let unknown = Bound::End.of(&tracked.target, Some(tracked.last), at);
    let id = format!("{}@gone-{at}", tracked.key());
    end(&id, tracked, tracked.record(), at, vec![unknown])
}

/// What an event shows that no earlier event has shown: that something tracked had stopped, or ran with other
/// quantities or another plan. Since when is not known.
fn unrecorded(event: &UsageEvent, says: &Says, tracked: &Tracked) -> Vec<Unknown> {
    // One that comes twice, or by another clock, or says nothing.
    if event.at <= tracked.last || says.what == What::Noted {
        return Vec::new();
    }
    let ended = Bound::End.of(&tracked.target, Some(tracked.last), event.at);
    if says.what == What::Starts && !event.is_seed() {
        return vec![ended];
    }
    // Only a seed, and an end, say what ran before with its plan.
    let before = says.part.as_ref();
    let before = before.filter(|_| event.is_seed() || says.what == What::Ends);
    let quantities = match says.what {
        What::Ends => before.and_then(|before| before.quantities),
        _ => says.was,
    };
    let service = before.filter(|it| it.kind == Kind::Service);
    let other = service.and_then(|it| changed(it, tracked));
    let is_other = tracked.quantities.is_some()
        && quantities.is_some_and(|quantities| tracked.quantities != Some(quantities));
    if other.is_none() && !is_other {
        return Vec::new();
    }
    let target = other.map_or_else(|| tracked.target.clone(), |other| other.target);
    let started = Bound::Start.of(&target, Some(tracked.last), event.at);
    vec![ended, started]
}

/// What something is from now on, if that is another thing to the receiver.
fn changed(now: &Tracked, tracked: &Tracked) -> Option<Tracked> {
    let last = now.last.max(tracked.last);
    if now.kind == Kind::Service {
        let now = now.clone();
        return (!tracked.has_plan_of(&now)).then_some(Tracked { last, ..now });
    }
    (tracked.quantities != now.quantities).then(|| Tracked {
        quantities: now.quantities,
        last,
        ..tracked.clone()
    })
}

impl Change {
    fn with(self, unknown: Vec<Unknown>) -> Self {
        Self { unknown, ..self }
    }
}

fn start(id: &str, now: &Tracked, at: Millis, unknown: Vec<Unknown>) -> Change {
    let mut body = event("start", id, &now.target, at);
    body["measured_usage"] = measures(now);
    let now = now.clone();
    Change::posting(body, Phase::Started(Tracked { last: at, ..now }), unknown)
}

fn change(id: &str, before: &Tracked, now: Tracked, unknown: Vec<Unknown>) -> Change {
    let mut body = event("update", id, &now.target, now.last);
    body["measured_usage"] = measures(&now);
    let ids = before.target.ids().into_iter().zip(now.target.ids());
    for (name, (before, now)) in Target::FIELDS.into_iter().zip(ids) {
        if before != now {
            body["previous"][name] = json!(before);
        }
    }
    Change::posting(body, Phase::Started(now), unknown)
}

fn end(id: &str, was: &Tracked, record: Record, at: Millis, unknown: Vec<Unknown>) -> Change {
    let at = at.max(was.last);
    let body = event("stop", id, &was.target, at);
    Change::posting(body, Phase::ended(record, at), unknown)
}

fn measures(tracked: &Tracked) -> Value {
    tracked.quantities.unwrap_or(Quantities::SERVICE).measures()
}

fn event(kind: &str, id: &str, target: &Target, at: Millis) -> Value {
    let mut body = json!({ "type": kind, "id": id, "timestamp": at });
    for (name, id) in Target::FIELDS.into_iter().zip(target.ids()) {
        body[name] = json!(id);
    }
    body
}

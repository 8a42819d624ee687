//! What a usage event or a list of the platform means, given what was started before. Pure: no clock, no I/O.

use sampler_verify::moment::Millis;

use super::state::{Bound, Change, Kind, Phase, Tracked, Unknown};
use super::usage_event::{Says, UsageEvent, What};
use crate::event::Event;

/// What follows from a usage event, given the last that is known of its subject.
pub(super) fn translate(event: &UsageEvent, before: Option<&Phase>) -> Change {
    let change = match (&event.says, before) {
        (None, _) => Change::default(),
        (Some(says), Some(Phase::Started(tracked))) => of_started(event, says, tracked),
        (Some(says), Some(Phase::Ended(at))) => of_ended(event, says, *at),
        (Some(says), Some(Phase::Refused(at))) => of_refused(event, says, *at),
        (Some(says), None) => of_unknown(event, says, None, event.at),
    };
    Change {
        key: event.subject().map(str::to_owned),
        state: Some(event.state.clone()),
        ..change
    }
}

/// An event about what is started.
fn of_started(event: &UsageEvent, says: &Says, tracked: &Tracked) -> Change {
    let unknown = unrecorded(event, says, tracked);
    match (says.what, &says.part) {
        (What::Noted, _) => Change::default(),
        (What::Ends, _) => end(event.id(), tracked, event.at, unknown),
        (_, part) => match part.as_ref().and_then(|now| changed(now, tracked)) {
            Some(now) => change(event.id(), tracked, now, unknown),
            None => Change {
                unknown,
                ..Change::default()
            },
        },
    }
}

/// An event about what has ended: a note of it can come late, and its end twice.
fn of_ended(event: &UsageEvent, says: &Says, ended_at: Millis) -> Change {
    match says.what {
        What::Noted => Change::default(),
        What::Ends if event.at <= ended_at => Change::default(),
        _ => of_unknown(event, says, Some(ended_at), event.at.max(ended_at)),
    }
}

/// An event about what the receiver refuses. The stop of a start that is refused is refused, too, and kept with it.
fn of_refused(event: &UsageEvent, says: &Says, since: Millis) -> Change {
    match (says.what, &says.part) {
        (What::Ends, Some(was)) => end(event.id(), was, event.at, Vec::new()),
        (What::Ends, None) => of_unknown(event, says, Some(since), event.at),
        // Its start was recorded.
        (_, Some(now)) => start(event.id(), now, event.at, Vec::new()),
        (_, None) => Change::default(),
    }
}

/// An event about what was never started, or not since its end. What starts is dated `at`.
fn of_unknown(event: &UsageEvent, says: &Says, since: Option<Millis>, at: Millis) -> Change {
    match (says.what, &says.part) {
        // The end is remembered: the receiver may have an open span of it.
        (What::Ends, was) => {
            let started = |was: &Tracked| Bound::Start.of(&was.target, since, event.at);
            Change {
                unknown: was.iter().map(started).collect(),
                ..Change::noting(&says.guid, Phase::Ended(event.at))
            }
        }
        (what, Some(now)) => {
            let is_recorded = what == What::Starts && !event.is_seed();
            let unknown = (!is_recorded).then(|| Bound::Start.of(&now.target, since, at));
            start(event.id(), now, at, unknown.into_iter().collect())
        }
        (_, None) => Change::default(),
    }
}

/// What a list shows of something that runs, given what the receiver has of it; `since` is the last that is known.
pub(super) fn listed(now: &Tracked, before: Option<&Tracked>, since: Millis, at: Millis) -> Change {
    let id = format!("{}@runs-{at}", now.key());
    let started = |target| Bound::Start.of(target, Some(since), at);
    let Some(before) = before else {
        return start(id, now, at, vec![started(&now.target)]);
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
    change(id, before, other, unknown)
}

/// The stop of what no longer runs, since a time that nobody recorded.
pub(super) fn gone(tracked: &Tracked, at: Millis) -> Change {
    let at = at.max(tracked.last);
    let unknown = Bound::End.of(&tracked.target, Some(tracked.last), at);
    let id = format!("{}@gone-{at}", tracked.key());
    end(id, tracked, at, vec![unknown])
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
    let measures = match says.what {
        What::Ends => before.map(|before| &before.measures),
        _ => says.was.as_ref(),
    };
    let service = before.filter(|it| it.kind == Kind::Service);
    let other = service.and_then(|it| changed(it, tracked));
    let is_other = measures.is_some_and(|measures| !tracked.has(measures));
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
    (!tracked.has(&now.measures)).then(|| Tracked {
        measures: now.measures.clone(),
        last,
        ..tracked.clone()
    })
}

fn start(id: String, now: &Tracked, at: Millis, unknown: Vec<Unknown>) -> Change {
    let event = Event::start(now.target.clone(), at, now.measured_usage());
    let now = now.clone();
    Change::posting(
        id,
        event,
        Phase::Started(Tracked { last: at, ..now }),
        unknown,
    )
}

fn change(id: String, before: &Tracked, now: Tracked, unknown: Vec<Unknown>) -> Change {
    let (target, measures) = (now.target.clone(), now.measured_usage());
    let event = Event::update(&before.target, target, now.last, measures);
    Change::posting(id, event, Phase::Started(now), unknown)
}

fn end(id: String, was: &Tracked, at: Millis, unknown: Vec<Unknown>) -> Change {
    let at = at.max(was.last);
    let event = Event::new("stop", was.target.clone(), at);
    Change::posting(id, event, Phase::Ended(at), unknown)
}

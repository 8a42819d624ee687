//! A receiver, as `receiver/src/controllers/events/decision.rs` does it: it reads the clock, then calls
//! the store once. What is kept is decided by `sampler_domain::intake`, here as there.

use sampler_domain::{
    NotEnded, Span, SpanId, StartDecision, StartEvent, StopDecision, StopEvent, Timestamp,
};
use sampler_store::{Arrival, NewSpan, NewStop, StartOutcome, StopOutcome};
use uuid::Uuid;

use crate::scenario::{Event, Mutant, Scenario};
use crate::state::State;

/// An event that a receiver has admitted and takes to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub event: usize,
    /// Whether its timestamp was within the slack.
    pub admitted: bool,
}

impl Event {
    fn timestamp(&self) -> Timestamp {
        match self {
            Self::Start(event) => event.timestamp,
            Self::Stop(event) => event.timestamp,
        }
    }
}

/// What looking at the clock can have come to for an event that a receiver takes to the store
/// now: within the slack (true) or not. It read the clock at most [`Scenario::request_limit`] ago, and not before
/// the event was sent.
///
/// An event outside the slack changes nothing, and an answer to it nobody waits for if the provider
/// has gone on.
pub(crate) fn outcome(scenario: &Scenario, state: &State, event: usize) -> Option<bool> {
    let timestamp = scenario.events[event].timestamp();
    let since = state.provider.sent[event].max(state.now.plus(-scenario.request_limit));
    let looks = scenario.moments.iter();
    let mut looks = looks.filter(|moment| (since..=state.now).contains(*moment));
    let rules = scenario.rules();
    if looks.any(|moment| rules.require_slack(timestamp, *moment).is_ok()) {
        return Some(true);
    }
    (event == state.provider.event).then_some(false)
}

/// A receiver takes an event to the store, and answers. Only what is answered with 201 lets the
/// provider go on; whether that answer arrives is another question.
pub(crate) fn call_store(scenario: &Scenario, state: &mut State, request: &Request) {
    let kept = match &scenario.events[request.event] {
        Event::Start(event) if request.admitted => start(scenario, state, event),
        Event::Stop(event) if request.admitted => stop(state, request.event, event),
        Event::Start(event) => late_start(scenario, state, event),
        Event::Stop(event) => late_stop(scenario, state, event),
    };
    if kept == Answer::Kept {
        state.history.kept[request.event] += 1;
    }
    if kept != Answer::Refused && request.event == state.provider.event {
        state.provider.answered = true;
    }
}

/// What the provider is answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// 201, and it was kept now.
    Kept,
    /// 201, as it was kept before.
    Repeated,
    /// Something else.
    Refused,
}

fn start(scenario: &Scenario, state: &mut State, event: &StartEvent) -> Answer {
    let id = SpanId::new(event.timestamp, state.history.opened);
    let span = Span::open(id, event.clone());
    let due_at = scenario.policy.open_due_at(&span.target, span.start);
    if scenario.is_broken(Mutant::StartsWithoutIndexes) {
        state.table.make_mut().insert_original(span, due_at);
        state.history.opened += 1;
        return Answer::Kept;
    }
    let new = NewSpan {
        due_at,
        span,
        now: state.now,
        arrival: Arrival::Alone,
    };
    match state.table.make_mut().start(new) {
        StartOutcome::Opened => {
            state.history.opened += 1;
            Answer::Kept
        }
        StartOutcome::Repeated { .. } => Answer::Repeated,
        StartOutcome::Refused(_) => Answer::Refused,
    }
}

fn stop(state: &mut State, number: usize, event: &StopEvent) -> Answer {
    let new = NewStop {
        event: event.clone(),
        client: None,
        // Each request draws its own. Only those that are kept differ here, so that states do not.
        correlation_id: Uuid::from_u64_pair(number as u64 + 1, state.history.kept[number].into()),
        arrival: Arrival::Alone,
    };
    match state.table.make_mut().stop(&new) {
        StopOutcome::Ended => Answer::Kept,
        StopOutcome::Repeated => Answer::Repeated,
        StopOutcome::Refused(_) => Answer::Refused,
    }
}

/// A start outside the slack does not get to the store: only an earlier event with its id is read.
fn late_start(scenario: &Scenario, state: &State, event: &StartEvent) -> Answer {
    let by_id = event.id.as_ref();
    let by_id = by_id.and_then(|id| state.table.find_by_start_id(&event.target, id));
    let rules = scenario.rules();
    match rules.admit_start(event, by_id, NotEnded::default(), state.now) {
        Ok(StartDecision::Repeated(_)) => Answer::Repeated,
        Ok(StartDecision::Open) => panic!("{event:?} is outside the slack"),
        Err(_) => Answer::Refused,
    }
}

/// The same for a stop.
fn late_stop(scenario: &Scenario, state: &State, event: &StopEvent) -> Answer {
    let by_id = event.id.as_ref();
    let by_id = by_id.and_then(|id| state.table.find_by_stop_id(&event.target, id));
    match scenario.rules().admit_stop(event, by_id, None, state.now) {
        Ok(StopDecision::Repeated(_)) => Answer::Repeated,
        Ok(StopDecision::End(_)) => panic!("{event:?} is outside the slack"),
        Err(_) => Answer::Refused,
    }
}

//! What a receiver does, as `receiver/src/controllers.rs` does it: look at the clock, then one call
//! of the store.

use std::sync::Arc;

use sampler_domain::{Span, SpanId, StartEvent, StopEvent, Timestamp};
use sampler_store::{NewSpan, NewStop, Started, Stopped};
use uuid::Uuid;

use crate::scenario::{Event, Scenario};
use crate::state::{Request, State};

impl Event {
    fn timestamp(&self) -> Timestamp {
        match self {
            Self::Start(event) => event.timestamp,
            Self::Stop(event) => event.timestamp,
        }
    }
}

/// An event arrives at a receiver, which looks whether its timestamp is within the slack.
pub(crate) fn let_in(scenario: &Scenario, state: &mut State, receiver: usize, event: usize) {
    let timestamp = scenario.events[event].timestamp();
    state.receivers[receiver] = Some(Request {
        event,
        admitted: scenario.slack.admits(timestamp, state.now),
        since: state.now,
    });
}

/// The receiver takes the event to the store, and answers. Only what is answered with 201 lets the
/// provider go on; whether that answer arrives is another question.
pub(crate) fn take_to_store(scenario: &Scenario, state: &mut State, receiver: usize) {
    let Some(request) = state.receivers[receiver].take() else {
        return;
    };
    let kept = match &scenario.events[request.event] {
        Event::Start(event) if request.admitted => start(scenario, state, event),
        Event::Stop(event) if request.admitted => stop(state, event),
        Event::Start(event) => old_start(state, event),
        Event::Stop(event) => old_stop(state, event),
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
    let span = Span::started(id, event.clone());
    let new = NewSpan {
        due_at: scenario.policy.open_due_at(&span.target, span.start),
        span,
        now: state.now,
        may_overlap: false,
    };
    match Arc::make_mut(&mut state.table).start(new) {
        Started::Opened => {
            state.history.opened += 1;
            Answer::Kept
        }
        Started::Repeated => Answer::Repeated,
        Started::IdTaken(_) | Started::AlreadyOpen | Started::Overlaps { .. } => Answer::Refused,
    }
}

fn stop(state: &mut State, event: &StopEvent) -> Answer {
    let new = NewStop {
        event: event.clone(),
        correlation_id: Uuid::nil(),
    };
    match Arc::make_mut(&mut state.table).stop(new) {
        Stopped::Ended => Answer::Kept,
        Stopped::Repeated => Answer::Repeated,
        Stopped::IdTaken(_) | Stopped::NotOpen | Stopped::BeforeStart { .. } => Answer::Refused,
    }
}

/// A start outside the slack is taken only where it is the repeat of one that was kept.
fn old_start(state: &State, event: &StartEvent) -> Answer {
    let earlier = event.id.as_ref().and_then(|id| state.table.started_by(id));
    repeated(earlier.is_some_and(|span| event.differences(span).is_empty()))
}

/// A stop outside the slack is taken only where it is the repeat of one that was kept.
fn old_stop(state: &State, event: &StopEvent) -> Answer {
    let earlier = event.id.as_ref().and_then(|id| state.table.stopped_by(id));
    repeated(earlier.is_some_and(|span| event.differences(span).is_empty()))
}

fn repeated(is_repeat: bool) -> Answer {
    if is_repeat {
        Answer::Repeated
    } else {
        Answer::Refused
    }
}

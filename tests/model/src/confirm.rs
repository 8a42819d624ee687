//! Usages that Abacus sets aside after it has accepted them, and the worker that learns it
//! (`worker/src/confirm.rs`, `docs/decisions.md#confirmation`): the span is told first, then the entry.
//! Between the two anything may happen, and the worker may die.

use sampler_domain::{
    Cause, Change, Changed, Entry, EntryState, Id, Interval, Question, Span, SpanId, Timestamp,
};
use sampler_store::{Confirmation, Unconfirmed};
use sampler_store_testing::Shared;

use crate::resend::message_of;
use crate::scenario::{Mutant, Scenario};

use crate::state::{Message, State};

/// The worker that asks, between two of its steps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Confirmer {
    /// It has nothing in hand, or has just died.
    Idle,
    /// It has heard that a usage was set aside, and is about to read its span.
    Told(String),
    /// It has read the span, and is about to note it there.
    Noting(String, Box<Span>),
    /// The span knows it; the entry is about to say so.
    Ending(String),
}

/// When Abacus is asked for a usage: exactly when plays no role.
pub(crate) const ASK: Question = Question {
    at: Timestamp::MIN,
    until: Timestamp::MIN,
    is_missing: false,
};

/// Whether Abacus may set aside a usage that arrives.
pub(crate) fn may_be_set_aside(scenario: &Scenario, state: &State) -> bool {
    state.history.asides < scenario.asides_max
}

/// A usage arrives at Abacus, which accepts it and sets it aside, unless it is a repeat.
pub(crate) fn set_aside(state: &mut State, message: &Shared<Message>) {
    state.in_flight.remove(message);
    state.history.asides += 1;
    state.aside.insert(message.clone());
}

/// The usages of which the worker may learn that they were set aside. No post of such a usage is on its way
/// here, and its execution is recorded: what is posted once more counts, and nobody can tell.
pub(crate) fn askable(state: &State) -> Vec<String> {
    let entries = state.table.entries().map(|kept| &kept.entry);
    let aside = entries.filter(|entry| {
        let span = state.table.find(&entry.span);
        let is_noted = entry.is_recorded_on(span);
        let is_asked = Unconfirmed::of(entry).is_some() && entry.resend.is_none();
        is_asked && is_noted && state.in_flight.is_empty() && is_aside(state, entry)
    });
    aside.map(|entry| entry.usage_guid.clone()).collect()
}

pub(crate) fn is_aside(state: &State, entry: &Entry) -> bool {
    let message = message_of(entry);
    state.aside.iter().any(|usage| usage.repeats(&message))
}

/// The worker takes its next step.
pub(crate) fn step(scenario: &Scenario, state: &mut State) {
    let before = std::mem::replace(&mut state.confirmer, Confirmer::Idle);
    state.confirmer = match before {
        Confirmer::Idle => Confirmer::Idle,
        Confirmer::Told(guid) if scenario.is_broken(Mutant::SetAsideUnknownToSpan) => {
            Confirmer::Ending(guid)
        }
        Confirmer::Told(guid) => read(state, guid),
        Confirmer::Noting(guid, span) => note(state, guid, &span),
        Confirmer::Ending(guid) => {
            end(state, &guid);
            Confirmer::Idle
        }
    };
}

fn entry_of<'a>(state: &'a State, guid: &str) -> Option<&'a Entry> {
    Some(&state.table.entry(guid)?.entry)
}

fn read(state: &State, guid: String) -> Confirmer {
    let Some(entry) = entry_of(state, &guid) else {
        return Confirmer::Idle;
    };
    let interval = entry.interval;
    let span = state.table.find(&entry.span);
    match span.filter(|span| span.is_to_learn(interval)) {
        Some(span) => Confirmer::Noting(guid, Box::new(span.clone())),
        None => Confirmer::Ending(guid),
    }
}

fn note(state: &mut State, guid: String, span: &Span) -> Confirmer {
    let Some(interval) = entry_of(state, &guid).map(|entry| entry.interval) else {
        return Confirmer::Idle;
    };
    let change = Change::SetAside { interval };
    match state.table.make_mut().change(span, &change) {
        Changed::Made => Confirmer::Ending(guid),
        Changed::Rejected => Confirmer::Told(guid),
    }
}

fn end(state: &mut State, guid: &str) {
    let Some(read) = entry_of(state, guid).and_then(Unconfirmed::of) else {
        return;
    };
    let cause = Cause {
        status: None,
        error: String::new(),
        resource_id: Id::from_store("r"),
        plan_id: Id::from_store("p"),
    };
    let confirmation = Confirmation::SetAside {
        at: Timestamp::MIN,
        error: String::new(),
        cause: cause.id(),
    };
    state.table.make_mut().confirm(&read, &confirmation);
}

/// Whether a plan takes back a usage that was set aside while the ledger says that it is accepted.
pub(crate) fn is_blind(state: &State, span: &SpanId, interval: Interval) -> bool {
    let mut entries = state.table.entries_of(span, None).into_iter();
    interval.duration() < 0
        && entries.any(|entry| {
            let overlaps =
                entry.interval.start < interval.start && entry.interval.end > interval.end;
            overlaps && entry.state == EntryState::Accepted && is_aside(state, entry)
        })
}

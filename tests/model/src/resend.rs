//! Usages that were given up and are sent again: the four steps of `worker/src/resend.rs`
//! (`docs/decisions.md#what-does-not-count`), each one conditional change. Between two of them anything may happen,
//! and the worker may die.

use sampler_domain::{
    Changed, Correction, Entry, EntryState, Interval, LastError, Resend, Span, Timestamp, Usage,
};
use sampler_store::EntryKey;
use sampler_store_testing::Shared;
use uuid::Uuid;

use crate::confirm::ASK;
use crate::scenario::{Mutant, Scenario};

use crate::state::{Message, State};

use crate::worker::{ACCEPTANCE, arrive, is_counted, is_taken};

/// The worker that sends again, between two of its steps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Resender {
    /// It has nothing in hand, or has just died.
    Idle,
    /// It has posted the usage of an entry, and waits for the answer.
    Posting(Box<Entry>, Shared<Message>),
    /// The entry says that Abacus has it; it is about to read the span.
    Accepted(Box<Entry>),
    /// It has read the span, and is about to correct its totals.
    Correcting(Box<Entry>, Box<Span>),
    /// The span is right; what was withheld is about to be marked.
    Marking(Box<Entry>),
    /// The mark is about to go.
    Ending(Box<Entry>),
}

/// The usages that an operator may have sent again.
pub(crate) fn resendable(scenario: &Scenario, state: &State) -> Vec<String> {
    if state.history.resends >= scenario.resends_max {
        return Vec::new();
    }
    let entries = state.table.entries().map(|kept| &kept.entry);
    let may = |entry: &&Entry| !entry.withheld || scenario.is_broken(Mutant::ResendsWithheldFirst);
    let free = entries.filter(|entry| entry.is_uncounted() && entry.resend.is_none());
    let free = free.filter(may);
    free.map(|entry| entry.usage_guid.clone()).collect()
}

/// An operator has a usage sent again: its entry is marked.
pub(crate) fn mark(state: &mut State, usage_guid: &str) {
    state.history.resends += 1;
    let Some(from) = state.table.entry(usage_guid).map(|kept| kept.entry.state) else {
        return;
    };
    let resend = Resend {
        act: Uuid::from_u128(state.history.resends.into()),
        from,
        at: Timestamp::MIN,
        due_at: Timestamp::MIN,
        acceptance: None,
    };
    let Some(key) = key_of(state, usage_guid) else {
        return;
    };
    state.table.make_mut().mark_resend(&key, &resend);
}

fn key_of(state: &State, usage_guid: &str) -> Option<EntryKey> {
    let kept = state.table.entry(usage_guid)?;
    Some(EntryKey::of(&kept.entry))
}

/// The marked usages that the worker may take up: those that their span has noted as given up, and that take
/// back nothing that does not count.
pub(crate) fn due(scenario: &Scenario, state: &State) -> Vec<String> {
    let marked = state.table.due_resends(state.now, usize::MAX).into_iter();
    let may = |entry: &Entry| {
        let is_noted = entry.is_recorded_on(state.table.find(&entry.span))
            || scenario.is_broken(Mutant::ResendsBeforeTheNote);
        let waits = state.table.takes_back_uncounted(entry)
            && !scenario.is_broken(Mutant::ResendsWithheldFirst);
        !entry.is_uncounted() || is_noted && !waits
    };
    let free = marked.filter(may);
    free.map(|entry| entry.usage_guid).collect()
}

/// The worker reads a marked entry, and posts its usage unless Abacus has it already.
pub(crate) fn take_up(scenario: &Scenario, state: &mut State, usage_guid: &str) {
    let Some(entry) = state.table.entry(usage_guid).map(|kept| kept.entry.clone()) else {
        return;
    };
    let entry = Box::new(entry);
    state.resender = if entry.is_uncounted() {
        let mut message = message_of(&entry);
        if scenario.is_broken(Mutant::ResentSaysMore) {
            message.duration += 1;
        }
        let message = Shared::new(message);
        if !is_counted(state, &message) {
            state.in_flight.insert(message.clone());
        }
        Resender::Posting(entry, message)
    } else {
        Resender::Accepted(entry)
    };
}

pub(crate) fn message_of(entry: &Entry) -> Message {
    let usage = Usage::of_entry(entry);
    let interval = (entry.interval.start, entry.interval.end);
    Message::of(entry.span.clone(), interval, usage)
}

/// Whether the worker can take a step: an answer to a post must be there to be heard.
pub(crate) fn can_step(state: &State) -> bool {
    match &state.resender {
        Resender::Idle => false,
        Resender::Posting(_, message) => is_taken(state, message),
        Resender::Accepted(_)
        | Resender::Correcting(..)
        | Resender::Marking(_)
        | Resender::Ending(_) => true,
    }
}

/// The worker takes its next step.
pub(crate) fn step(scenario: &Scenario, state: &mut State) {
    let before = std::mem::replace(&mut state.resender, Resender::Idle);
    state.resender = match before {
        Resender::Idle => Resender::Idle,
        Resender::Posting(entry, message) => accept(scenario, state, entry, &message),
        Resender::Accepted(entry) => read(scenario, state, entry),
        Resender::Correcting(entry, span) => correct(scenario, state, entry, &span),
        Resender::Marking(entry) => mark_withheld(state, entry),
        Resender::Ending(entry) => {
            end(state, &entry, None);
            Resender::Idle
        }
    };
}

/// Abacus refuses the usage: the mark goes, and the entry stays as it was.
pub(crate) fn refuse(state: &mut State) {
    if let Resender::Posting(entry, message) =
        std::mem::replace(&mut state.resender, Resender::Idle)
    {
        state.in_flight.remove(&message);
        let refusal = LastError {
            at: Timestamp::MIN,
            status: None,
            error: String::new(),
        };
        end(state, &entry, Some(&refusal));
    }
}

fn accept(
    scenario: &Scenario,
    state: &mut State,
    entry: Box<Entry>,
    message: &Shared<Message>,
) -> Resender {
    if !is_taken(state, message) {
        return Resender::Posting(entry, message.clone());
    }
    let table = state.table.make_mut();
    let asked = Entry {
        question: (scenario.asides_max > 0).then_some(ASK),
        ..(*entry).clone()
    };
    if !table.accept_resent(&asked, &ACCEPTANCE) {
        return Resender::Idle;
    }
    if scenario.is_broken(Mutant::ResentBeforeTotals) {
        end(state, &entry, None);
    }
    Resender::Accepted(entry)
}

/// Reads the span that is to be corrected. The resend that it names must have ended, or all of it is done
/// again later; and this mark must be there after the read.
fn read(scenario: &Scenario, state: &State, entry: Box<Entry>) -> Resender {
    let span = state.table.find(&entry.span);
    let correction = correction(scenario, &entry, span);
    let (Correction::Make { after, .. }, Some(span)) = (correction, span) else {
        return Resender::Marking(entry);
    };
    let has_resend = |guid: &str, act| {
        let usage_guid = guid.to_owned();
        let key = EntryKey {
            usage_guid,
            ..EntryKey::of(&entry)
        };
        state.table.has_resend(&key, act)
    };
    if after.is_some_and(|last| has_resend(&last.usage_guid, last.act)) {
        return Resender::Idle;
    }
    let is_marked = act_of(&entry).is_some_and(|act| has_resend(&entry.usage_guid, act));
    if !is_marked && !scenario.is_broken(Mutant::ResentBeforeTotals) {
        return Resender::Marking(entry);
    }
    let span = Box::new(span.clone());
    Resender::Correcting(entry, span)
}

/// What the worker's rule says; a broken one does not see that the span names this resend.
fn correction(scenario: &Scenario, entry: &Entry, span: Option<&Span>) -> Correction {
    let mut span = span.cloned();
    if scenario.is_broken(Mutant::ResentCountsTwice)
        && let Some(span) = &mut span
    {
        span.processing.resent = None;
    }
    entry.correction(span.as_ref())
}

fn correct(scenario: &Scenario, state: &mut State, entry: Box<Entry>, span: &Span) -> Resender {
    let Correction::Make { change, .. } = correction(scenario, &entry, Some(span)) else {
        return Resender::Marking(entry);
    };
    match state.table.make_mut().change(span, &change) {
        Changed::Made => Resender::Marking(entry),
        Changed::Rejected => Resender::Accepted(entry),
    }
}

/// Marks what was withheld when the usage was taken back, unless such a piece is still planned: then the mark
/// stays, and all of it is done again.
fn mark_withheld(state: &mut State, entry: Box<Entry>) -> Resender {
    let span = state.table.find(&entry.span);
    if span.is_some_and(|span| span.plans_to_withhold(entry.interval)) {
        return Resender::Idle;
    }
    if let Some(resend) = &entry.resend {
        let table = state.table.make_mut();
        for withheld in table.withheld_of(&entry) {
            let mark = resend.of_withheld(&withheld);
            table.mark_resend(&EntryKey::of(&withheld), &mark);
            // Abacus may have set the usage aside once more: nobody knows that.
            let Interval { start, end } = withheld.interval;
            state.history.blind.insert((withheld.span, start, end));
        }
    }
    Resender::Ending(entry)
}

fn end(state: &mut State, entry: &Entry, refusal: Option<&LastError>) {
    if let Some(act) = act_of(entry) {
        let key = EntryKey::of(entry);
        state.table.make_mut().end_resend(&key, act, refusal);
    }
}

fn act_of(entry: &Entry) -> Option<Uuid> {
    entry.resend.as_ref().map(|resend| resend.act)
}

/// Lets the worker go on until nothing is marked, or nothing that is marked can go on. What waits for another
/// usage comes again after all others.
pub(crate) fn run(scenario: &Scenario, state: &mut State) {
    finish(scenario, state);
    for _ in 0..RUN_MAX {
        let all = due(scenario, state);
        if all.is_empty() {
            return;
        }
        for usage_guid in all {
            if due(scenario, state).contains(&usage_guid) {
                take_up(scenario, state, &usage_guid);
                finish(scenario, state);
            }
        }
    }
}

/// Lets the worker do what it has in hand.
fn finish(scenario: &Scenario, state: &mut State) {
    for _ in 0..RUN_MAX {
        while let Some(message) = state.in_flight.pop_first() {
            arrive(scenario, state, &message);
        }
        if state.resender == Resender::Idle {
            return;
        }
        step(scenario, state);
    }
}

/// More steps than the resends of a scenario need.
const RUN_MAX: usize = 16;

/// Whether the totals of a span, where it is there, count the usage of an entry as given up.
pub(crate) fn is_given_up(span: Option<&Span>, entry: &Entry) -> bool {
    let last = span.and_then(|span| span.processing.resent.as_ref());
    let is_named = |act: Uuid| last.is_some_and(|last| last.act == act);
    let is_uncorrected = entry
        .resend
        .as_ref()
        .is_some_and(|resend| resend.from == EntryState::Skipped && !is_named(resend.act));
    entry.state == EntryState::Skipped || is_uncorrected
}

/// What counts at Abacus by now and the totals of the span still have as given up, ms.
pub(crate) fn uncorrected(state: &State, span: &Span) -> i64 {
    let planned = span.processing.planned.as_ref();
    let planned = planned.map(|planned| planned.usage_guid.as_str());
    let entries = state.table.entries_of(&span.id, None).into_iter();
    let marked = entries.filter(|entry| {
        entry.resend.is_some()
            && planned != Some(entry.usage_guid.as_str())
            && is_given_up(Some(span), entry)
            && is_counted(state, &message_of(entry))
    });
    marked.map(|entry| entry.interval.duration()).sum()
}

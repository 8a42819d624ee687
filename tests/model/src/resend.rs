//! Usages that were given up and are sent again: the four steps of `worker/src/resend.rs`
//! (`docs/adr/042-resending.md`), each one conditional change. Between two of them anything may happen,
//! and the worker may die.

use std::sync::Arc;

use sampler_domain::{
    Change, Changed, Entry, EntryState, NotCounted, Resend, Resent, Span, Timestamp, Usage,
};
use sampler_store::EntryKey;
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
    Posting(Box<Entry>, Arc<Message>),
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
    let free = entries.filter(|entry| entry.is_resendable() && entry.resend.is_none());
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
    Arc::make_mut(&mut state.table).mark_resend(&key, &resend);
}

fn key_of(state: &State, usage_guid: &str) -> Option<EntryKey> {
    let kept = state.table.entry(usage_guid)?;
    Some(EntryKey::of(&kept.entry))
}

/// The marked usages that the worker may take up: those that their span has noted as given up.
pub(crate) fn due(scenario: &Scenario, state: &State) -> Vec<String> {
    let is_broken = scenario.is_broken(Mutant::ResendsBeforeTheNote);
    let marked = state.table.due_resends(state.now, usize::MAX).into_iter();
    let noted = marked.filter(|entry| {
        let span = state.table.find(&entry.span);
        is_broken
            || !entry.is_resendable()
            || span.is_none_or(|it| it.processing.version > entry.version)
    });
    noted.map(|entry| entry.usage_guid).collect()
}

/// The worker reads a marked entry, and posts its usage unless Abacus has it already.
pub(crate) fn take_up(scenario: &Scenario, state: &mut State, usage_guid: &str) {
    let Some(entry) = state.table.entry(usage_guid).map(|kept| kept.entry.clone()) else {
        return;
    };
    let entry = Box::new(entry);
    state.resender = if entry.is_resendable() {
        let mut message = message_of(&entry);
        if scenario.is_broken(Mutant::ResentSaysMore) {
            message.duration += 1;
        }
        let message = Arc::new(message);
        if !is_counted(state, &message) {
            state.in_flight.insert(Arc::clone(&message));
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
        Resender::Correcting(entry, span) => correct(state, entry, &span),
        Resender::Marking(entry) => mark_withheld(state, entry),
        Resender::Ending(entry) => {
            end(state, &entry);
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
        end(state, &entry);
    }
}

fn accept(
    scenario: &Scenario,
    state: &mut State,
    entry: Box<Entry>,
    message: &Arc<Message>,
) -> Resender {
    if !is_taken(state, message) {
        return Resender::Posting(entry, Arc::clone(message));
    }
    let table = Arc::make_mut(&mut state.table);
    let asked = Entry {
        ask_again: (scenario.asides_max > 0).then_some(ASK),
        ..(*entry).clone()
    };
    if !table.accept_resent(&asked, &ACCEPTANCE) {
        return Resender::Idle;
    }
    if scenario.is_broken(Mutant::ResentBeforeTotals) {
        end(state, &entry);
    }
    Resender::Accepted(entry)
}

/// Reads the span that is to be corrected. What it names as counted last goes first; and this mark must be
/// there after the read.
fn read(scenario: &Scenario, state: &mut State, entry: Box<Entry>) -> Resender {
    let (Some(act), Some(reason)) = (act_of(&entry), entry.marked_from()) else {
        return Resender::Idle;
    };
    let span = state.table.find(&entry.span).cloned();
    let span = span.filter(|span| match reason {
        NotCounted::Skipped { .. } => span.counts(entry.version),
        NotCounted::SetAside => span.knows_uncounted(entry.interval),
    });
    let Some(span) = span else {
        return Resender::Marking(entry);
    };
    let key = EntryKey::of(&entry);
    let last = span.processing.resent.clone();
    let is_named = last.as_ref().is_some_and(|last| last.act == act);
    if is_named && !scenario.is_broken(Mutant::ResentCountsTwice) {
        return Resender::Marking(entry);
    }
    let table = Arc::make_mut(&mut state.table);
    if let Some(last) = last.filter(|_| !is_named) {
        let counted = EntryKey {
            usage_guid: last.usage_guid,
            ..key.clone()
        };
        table.end_resend(&counted, last.act, None);
    }
    if !table.has_resend(&key, act) && !scenario.is_broken(Mutant::ResentBeforeTotals) {
        return Resender::Marking(entry);
    }
    Resender::Correcting(entry, Box::new(span))
}

fn correct(state: &mut State, entry: Box<Entry>, span: &Span) -> Resender {
    let (Some(act), Some(reason)) = (act_of(&entry), entry.marked_from()) else {
        return Resender::Idle;
    };
    let change = Change::Resent {
        resent: Resent {
            usage_guid: entry.usage_guid.clone(),
            act,
        },
        interval: entry.interval,
        reason,
    };
    match Arc::make_mut(&mut state.table).change(span, &change) {
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
        let table = Arc::make_mut(&mut state.table);
        for withheld in table.withheld_of(&entry) {
            let mark = resend.of_withheld(&withheld);
            table.mark_resend(&EntryKey::of(&withheld), &mark);
        }
    }
    Resender::Ending(entry)
}

fn end(state: &mut State, entry: &Entry) {
    if let Some(act) = act_of(entry) {
        let key = EntryKey::of(entry);
        Arc::make_mut(&mut state.table).end_resend(&key, act, None);
    }
}

fn act_of(entry: &Entry) -> Option<Uuid> {
    entry.resend.as_ref().map(|resend| resend.act)
}

/// Lets the worker go on until nothing is marked, or nothing that is marked can go on.
pub(crate) fn run(scenario: &Scenario, state: &mut State) {
    for _ in 0..RUN_MAX {
        while let Some(message) = state.in_flight.pop_first() {
            arrive(scenario, state, &message);
        }
        if state.resender != Resender::Idle {
            step(scenario, state);
        } else if let Some(usage_guid) = due(scenario, state).first() {
            take_up(scenario, state, usage_guid);
        } else {
            return;
        }
    }
}

/// More steps than the resends of a scenario need.
const RUN_MAX: usize = 64;

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

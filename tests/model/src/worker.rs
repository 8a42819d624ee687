//! What a worker does: it carries out what the real [`Driver`] asks for. Each function here is one
//! step; between two of them anything may happen.

use std::collections::BTreeSet;

use sampler_domain::partition::PARTITIONS;
use sampler_domain::{
    Acceptance, Action, Cause, CauseId, Change, Changed, Driver, Entry, EntryState, Failure, Next,
    Planned, SUSPENDED_DUE_AT, Span, SpanId, Timestamp,
};
use sampler_store::DueQuery;
use sampler_store_testing::Shared;
use sampler_store_testing::memory::Table;

use crate::confirm::{ASK, is_blind};
use crate::scenario::{Mutant, Scenario};

use crate::state::{Message, State, Worker};

/// The ids of the spans that a worker finds by looking.
pub(crate) fn due(state: &State) -> Vec<SpanId> {
    let query = DueQuery {
        partitions: (0..PARTITIONS).collect(),
        now: state.now,
        page: usize::MAX,
    };
    let due = state.table.due(&query);
    due.into_iter().map(|(_, span)| span.id.clone()).collect()
}

pub(crate) fn read(scenario: &Scenario, state: &mut State, worker: usize, id: &SpanId) {
    let is_ignored = |span: &&Span| {
        span.processing.planned.is_some() && scenario.is_broken(Mutant::IgnoresPlansOfOthers)
    };
    if let Some(span) = state.table.find(id).filter(|span| !is_ignored(span)) {
        state.workers[worker] = Worker::Holding(Shared::new(Driver::new(
            span.clone(),
            scenario.contract(),
            Timestamp::MIN,
        )));
    }
}

/// The worker takes its next step, if it has a span in hand.
pub(crate) fn step(scenario: &Scenario, state: &mut State, worker: usize) {
    let before = std::mem::replace(&mut state.workers[worker], Worker::Idle);
    state.workers[worker] = match before {
        Worker::Idle => Worker::Idle,
        Worker::Holding(driver) => decide(scenario, state, driver),
        Worker::Calling(driver, change) => call(scenario, state, driver, &change),
        Worker::Posting(driver, message) => receive_answer(scenario, state, driver, message),
        Worker::WritingEntry(driver, entry) => write_entry(scenario, state, driver, &entry),
    };
}

/// The worker's post times out, and the worker records that.
pub(crate) fn time_out(scenario: &Scenario, state: &mut State, worker: usize) {
    let before = std::mem::replace(&mut state.workers[worker], Worker::Idle);
    if let Worker::Posting(mut driver, _) = before {
        driver.make_mut().on_failed(Failure {
            is_post: true,
            unanswered: true,
            suspends: scenario.is_broken(Mutant::SuspendsWhatWaits),
            ..failure(scenario, state)
        });
        state.workers[worker] = decide(scenario, state, driver);
    }
}

/// Abacus refuses the usage that the worker has posted: it never arrives.
pub(crate) fn refuse(scenario: &Scenario, state: &mut State, worker: usize) {
    let before = std::mem::replace(&mut state.workers[worker], Worker::Idle);
    if let Worker::Posting(mut driver, message) = before {
        state.in_flight.remove(&message);
        let suspends = driver
            .span()
            .is_suspended_by_refusal(scenario.suspend_after);
        driver.make_mut().on_failed(Failure {
            blames_usage: true,
            suspends,
            ..failure(scenario, state)
        });
        state.workers[worker] = decide(scenario, state, driver);
    }
}

fn failure(scenario: &Scenario, state: &State) -> Failure {
    Failure {
        // When exactly plays no role, unless the upstream forgets; states that differ in it alone are one.
        at: if scenario.forgets_usages() {
            state.now
        } else {
            Timestamp::MIN
        },
        retry_at: state.now.plus(scenario.retry),
        error: String::new(),
        status: None,
        blames_usage: false,
        is_post: true,
        unanswered: false,
        suspends: false,
    }
}

/// Whether Abacus may refuse the usage that the worker has posted.
pub(crate) fn may_be_refused(scenario: &Scenario, state: &State, worker: &Worker) -> bool {
    scenario.suspend_after > 0
        && may_time_out(scenario, worker)
        && matches!(worker, Worker::Posting(_, message) if state.in_flight.contains(message))
}

/// The worker keeps a cause, before it suspends its span under it.
fn register(
    scenario: &Scenario,
    state: &mut State,
    mut driver: Shared<Driver>,
    cause: &Cause,
) -> Worker {
    let table = state.table.make_mut();
    table.register(cause, Timestamp::MIN, Timestamp::MIN);
    driver.make_mut().on_registered();
    decide(scenario, state, driver)
}

/// The worker lets all spans of a cause go on, as its own was accepted; it may die before it asks for
/// the entry.
fn resume(state: &mut State, mut driver: Shared<Driver>, cause: CauseId) -> Worker {
    state.table.make_mut().begin_resuming(cause, Timestamp::MIN);
    driver.make_mut().on_resuming_begun();
    Worker::Holding(driver)
}

/// Whether the worker waits for an answer, and may record that none came.
pub(crate) fn may_time_out(scenario: &Scenario, worker: &Worker) -> bool {
    matches!(worker, Worker::Posting(driver, _)
        if driver.span().processing.attempts < scenario.failures_max)
}

/// Whether the worker can take a step: an answer to a post must be there to be heard.
pub(crate) fn can_step(state: &State, worker: &Worker) -> bool {
    match worker {
        Worker::Idle => false,
        Worker::Posting(_, message) => is_taken(state, message),
        Worker::Holding(_) | Worker::Calling(..) | Worker::WritingEntry(..) => true,
    }
}

/// A usage arrives at Abacus, which counts it unless it is a repeat. One that was set aside counts now.
pub(crate) fn arrive(scenario: &Scenario, state: &mut State, message: &Shared<Message>) {
    state.in_flight.remove(message);
    if is_counted(state, message) {
        let remembered = &mut state.remembered.iter();
        let is_repeat = remembered.any(|(usage, _)| usage.repeats(message));
        state.history.counted_twice |= scenario.forgets_usages() && !is_repeat;
        return;
    }
    state.aside.retain(|usage| !usage.repeats(message));
    state.counted.insert(message.clone());
    if let Some(horizon) = scenario.horizon {
        state.fresh.insert(message.clone());
        let until = state.now.plus(horizon);
        if until > state.now {
            state.remembered.insert((message.clone(), until));
        }
    }
}

/// Whether Abacus has a usage, and answers so. What was set aside and is on its way again has no answer yet.
pub(crate) fn is_taken(state: &State, message: &Message) -> bool {
    let is_in =
        |usages: &BTreeSet<Shared<Message>>| usages.iter().any(|usage| usage.repeats(message));
    is_counted(state, message) || is_in(&state.aside) && !is_in(&state.in_flight)
}

pub(crate) fn is_counted(state: &State, message: &Message) -> bool {
    state.counted.iter().any(|usage| usage.repeats(message))
}

/// Asks the driver what is next. A post is on its way at once: that it may stay there for long is
/// the same as a worker that falls asleep before it posts.
fn decide(scenario: &Scenario, state: &mut State, driver: Shared<Driver>) -> Worker {
    let action = driver.action(state.now, &scenario.policy);
    match broken(scenario, driver.span(), action) {
        Action::Done => Worker::Idle,
        Action::LookUp(planned) => find(scenario, state, driver, &planned),
        Action::Post { planned, .. } => {
            let message = post(scenario, state, driver.span(), &planned);
            Worker::Posting(driver, message)
        }
        // A worker that sleeps or dies before it asks for the entry is one that does so before it
        // hears the answer: nobody can tell them apart.
        Action::WriteEntry(entry) => {
            let planned = driver.span().processing.planned.clone();
            let is_skipped = entry.state == EntryState::Skipped && !entry.withheld;
            let is_posted = is_skipped && scenario.is_broken(Mutant::PostsWhatIsSkipped)
                || entry.withheld && scenario.is_broken(Mutant::PostsWhatIsWithheld);
            if let Some(planned) = planned.filter(|_| is_posted) {
                post(scenario, state, driver.span(), &planned);
            }
            write_entry(scenario, state, driver, &canonical_entry(*entry))
        }
        // So is one that does so before it keeps the cause of a refusal.
        Action::Register(cause) => register(scenario, state, driver, &cause),
        Action::BeginResuming(cause) => resume(state, driver, cause),
        Action::Change(change) => {
            let change = canonical(scenario, change);
            if let (Change::Plan { planned, .. }, true) =
                (&change, scenario.is_broken(Mutant::PostsBeforePlanning))
            {
                post(scenario, state, driver.span(), planned);
            }
            Worker::Calling(driver, Box::new(change))
        }
        Action::Reread => reread(scenario, state, driver),
    }
}

/// A change without the moments at which it was decided: states that differ in them alone are one, unless
/// an upstream remembers a usage from then on.
fn canonical(scenario: &Scenario, mut change: Change) -> Change {
    if scenario.horizon.is_some_and(|horizon| horizon > 0) {
        return change;
    }
    if let Change::Plan { planned, .. }
    | Change::Executed {
        next: Next::Planned(planned),
        ..
    }
    | Change::Skipped {
        next: Next::Planned(planned),
        ..
    } = &mut change
    {
        planned.planned_at = Timestamp::MIN;
    }
    change
}

/// An entry without what differs from worker to worker.
fn canonical_entry(entry: Entry) -> Box<Entry> {
    Box::new(Entry {
        attempts: 0,
        status: None,
        error: None,
        skipped_at: entry.skipped_at.map(|_| Timestamp::MIN),
        set_aside_at: entry.set_aside_at.map(|_| Timestamp::MIN),
        ..entry
    })
}

/// What the driver asks for, unless the state machine is what is broken: then a span is complete as
/// soon as it has an end and nothing is planned.
fn broken(scenario: &Scenario, span: &Span, action: Action) -> Action {
    if let Action::Change(Change::Skipped { next, due_at }) = &action
        && scenario.is_broken(Mutant::BillsWhatIsSkipped)
    {
        let (next, due_at) = (next.clone(), *due_at);
        return Action::Change(Change::Executed { next, due_at });
    }
    if span.end.is_none() || !scenario.is_broken(Mutant::CompletesWithoutComparingEnd) {
        return action;
    }
    match action {
        Action::Change(Change::Executed { due_at, .. }) => Action::Change(Change::Executed {
            next: Next::Complete,
            due_at,
        }),
        Action::Change(Change::Plan { .. } | Change::Postpone { .. })
            if span.processing.planned.is_none() =>
        {
            Action::Change(Change::Complete)
        }
        action => action,
    }
}

/// The upstream says whether it has the usage of a planned interval. Anything may happen before the worker
/// continues.
fn find(
    scenario: &Scenario,
    state: &State,
    mut driver: Shared<Driver>,
    planned: &Planned,
) -> Worker {
    let message = Message::new(driver.span(), planned);
    let is_fresh = state.fresh.iter().any(|usage| usage.repeats(&message));
    let asked = driver.make_mut();
    if is_counted(state, &message) && !is_fresh {
        asked.on_found(ACCEPTANCE);
    } else {
        let failure = Failure {
            at: state.now,
            is_post: false,
            ..failure(scenario, state)
        };
        asked.on_not_found(state.now, failure);
    }
    Worker::Holding(driver)
}

/// Sends the usage of a planned interval on its way.
fn post(scenario: &Scenario, state: &mut State, span: &Span, planned: &Planned) -> Shared<Message> {
    let mut message = Message::new(span, planned);
    if scenario.is_broken(Mutant::GuidPerAttempt) {
        state.history.posts += 1;
        message.dedup_id = state.history.posts.to_string();
    }
    if scenario.is_broken(Mutant::TimestampPerAttempt) {
        message.dated = (state.now, state.now);
    }
    let sent = state.counted.iter().chain(&state.in_flight);
    let sent = sent.chain(&state.aside);
    let sent = sent.filter(|sent| sent.repeats(&message));
    let sent: Vec<Shared<Message>> = sent.cloned().collect();
    if scenario.is_broken(Mutant::ResendsOtherBytes) && !sent.is_empty() {
        message.duration += 1;
    }
    state.history.resent_otherwise |= sent.iter().any(|sent| **sent != message);
    let message = Shared::new(message);
    if scenario.forgets_usages() || !is_counted(state, &message) {
        state.in_flight.insert(message.clone());
    }
    message
}

/// The worker receives the answer that Abacus has the usage.
fn receive_answer(
    scenario: &Scenario,
    state: &mut State,
    mut driver: Shared<Driver>,
    message: Shared<Message>,
) -> Worker {
    if !is_taken(state, &message) {
        return Worker::Posting(driver, message);
    }
    driver.make_mut().on_accepted(ACCEPTANCE);
    if scenario.is_broken(Mutant::EntryAfterNote) {
        driver.make_mut().on_entry_written(EntryState::Accepted);
    }
    decide(scenario, state, driver)
}

/// Abacus's answer that it has a usage.
pub(crate) const ACCEPTANCE: Acceptance = Acceptance {
    at: Timestamp::MIN,
    status: None,
    location: None,
};

/// Asks the ledger for an entry.
fn write_entry(
    scenario: &Scenario,
    state: &mut State,
    mut driver: Shared<Driver>,
    entry: &Entry,
) -> Worker {
    let table = state.table.make_mut();
    let is_asked = scenario.asides_max > 0 && entry.state == EntryState::Accepted;
    let entry = &Entry {
        question: is_asked.then_some(ASK),
        ..entry.clone()
    };
    let kept = table.write_entry(entry.clone(), 0);
    if scenario.is_broken(Mutant::ExpiresBeforeCompletion) {
        table.expire(std::slice::from_ref(&entry.span));
        table.remove_expired(state.now);
    }
    driver.make_mut().on_entry_written(kept);
    decide(scenario, state, driver)
}

/// Asks the store for a change.
fn call(
    scenario: &Scenario,
    state: &mut State,
    mut driver: Shared<Driver>,
    change: &Change,
) -> Worker {
    let before = driver.span().clone();
    let changed = call_store(scenario, state, &before, change);
    let updated = driver.make_mut();
    match changed {
        Changed::Made => {
            updated.on_change_made(change);
            note_plan(state, &updated.span().id);
        }
        Changed::Rejected => updated.on_change_rejected(),
    }
    if changed == Changed::Made
        && matches!(change, Change::Executed { .. })
        && scenario.is_broken(Mutant::EntryAfterNote)
        && let Some(entry) = Entry::of_accepted(&before, ACCEPTANCE)
    {
        return Worker::WritingEntry(driver, canonical_entry(entry));
    }
    decide(scenario, state, driver)
}

fn call_store(scenario: &Scenario, state: &mut State, span: &Span, change: &Change) -> Changed {
    let Some(span) = compared_with(scenario, &state.table, span, change) else {
        return Changed::Rejected;
    };
    let away = Change::Postpone {
        due_at: SUSPENDED_DUE_AT,
    };
    let is_blind = matches!(change, Change::KeepSuspended { .. })
        && scenario.is_broken(Mutant::PutsAwayWhatWasResumed);
    let change = if is_blind { &away } else { change };
    let table = state.table.make_mut();
    let changed = table.change(&span, change);
    if changed == Changed::Made
        && matches!(change, Change::Executed { .. })
        && scenario.is_broken(Mutant::TotalsApart)
    {
        table.set_totals(&span.id, span.processing.totals);
    }
    changed
}

/// The span that a change is made conditional on: the one that was read. A broken store looks at
/// less, which is the same as a worker that happens to have read the right thing.
fn compared_with(scenario: &Scenario, table: &Table, span: &Span, change: &Change) -> Option<Span> {
    let mut span = span.clone();
    let kept = table.find(&span.id)?;
    let is_unnoted =
        matches!(change, Change::NotFound { .. }) && scenario.is_broken(Mutant::NotThereUnnoted);
    if scenario.is_broken(Mutant::IgnoresVersion) || is_unnoted {
        span.processing.version = kept.processing.version;
        if matches!(change, Change::Executed { .. }) {
            kept.processing.planned.as_ref()?;
        }
    }
    if scenario.is_broken(Mutant::IgnoresEnd) {
        span.end = kept.end;
    }
    Some(span)
}

/// Reads a span again whose change was lost.
///
/// It does so at once: an end never changes, so reading later finds the same, or another version
/// and then the worker has nothing in hand, as if it had died.
fn reread(scenario: &Scenario, state: &mut State, mut driver: Shared<Driver>) -> Worker {
    let fresh = state.table.find(&driver.span().id).cloned();
    driver.make_mut().on_reread(fresh);
    decide(scenario, state, driver)
}

/// Writes down what is planned, as it is kept: a broken store may know of an end that the worker did
/// not.
fn note_plan(state: &mut State, id: &SpanId) {
    let Some(span) = state.table.find(id) else {
        return;
    };
    let Some(planned) = &span.processing.planned else {
        return;
    };
    let interval = planned.interval;
    let plan = (span.id.clone(), interval.start, interval.end);
    let blind = is_blind(state, &span.id, interval).then(|| plan.clone());
    let is_new = state.history.planned.insert(plan);
    state.history.blind.extend(blind.filter(|_| is_new));
    let passes = |end| (interval.start..interval.end).contains(&end) || end == interval.start;
    if is_new && span.end.is_some_and(passes) {
        state.history.passed_an_end = true;
    }
}

//! What a worker does, as `worker/src/drive.rs` does it: read a span, then decide and call until
//! nothing is due. Each function here is one step; between two of them anything may happen.

use std::sync::Arc;

use sampler_domain::partition::PARTITIONS;
use sampler_domain::{Planned, Span, SpanId, Step, Timestamp, next_step};
use sampler_store::table::Table;
use sampler_store::{Changed, DueQuery, Failure, Next};

use crate::scenario::{Mutant, Scenario};
use crate::state::{Change, Memory, Message, State, Worker};

/// The ids of the spans that a worker finds by looking.
pub(crate) fn due(state: &State) -> Vec<SpanId> {
    let query = DueQuery {
        partitions: (0..PARTITIONS).collect(),
        now: state.now,
        page: usize::MAX,
        closing: None,
    };
    let due = state.table.due(&query);
    due.into_iter().map(|(_, span)| span.id.clone()).collect()
}

/// The worker reads a span.
pub(crate) fn read(scenario: &Scenario, state: &mut State, worker: usize, id: &SpanId) {
    let is_strange = |span: &&Span| {
        span.processing.planned.is_some() && scenario.is_broken(Mutant::LeavesPlansOfOthers)
    };
    if let Some(span) = state.table.find(id).filter(|span| !is_strange(span)) {
        let memory = Memory {
            span: Arc::new(span.clone()),
            delivered: None,
        };
        state.workers[worker] = Worker::Holding(memory);
    }
}

/// The worker takes its next step, if it has a span in hand.
pub(crate) fn go_on(scenario: &Scenario, state: &mut State, worker: usize) {
    let before = std::mem::replace(&mut state.workers[worker], Worker::Idle);
    state.workers[worker] = match before {
        Worker::Idle => Worker::Idle,
        Worker::Holding(memory) => decide(scenario, state, memory),
        Worker::Calling(memory, change) => call(scenario, state, memory, change),
        Worker::Posting(memory, message) => hear(scenario, state, memory, message),
    };
}

/// The worker gives up waiting for the answer to its post, and notes that.
pub(crate) fn give_up(scenario: &Scenario, state: &mut State, worker: usize) {
    let retry_at = state.now.plus(scenario.retry);
    let before = std::mem::replace(&mut state.workers[worker], Worker::Idle);
    if let Worker::Posting(memory, _) = before {
        state.workers[worker] = Worker::Calling(memory, Change::Failed(retry_at));
    }
}

/// Whether the worker waits for an answer, and may note that none came.
pub(crate) fn may_give_up(scenario: &Scenario, worker: &Worker) -> bool {
    matches!(worker, Worker::Posting(memory, _)
        if memory.span.processing.attempts < scenario.failures)
}

/// Whether the worker can take a step: an answer to a post must be there to be heard.
pub(crate) fn can_go_on(state: &State, worker: &Worker) -> bool {
    match worker {
        Worker::Idle => false,
        Worker::Posting(_, message) => is_counted(state, message),
        Worker::Holding(_) | Worker::Calling(..) => true,
    }
}

/// A usage arrives at Abacus, which counts it unless it is a repeat.
pub(crate) fn arrive(state: &mut State, message: &Arc<Message>) {
    state.in_flight.remove(message);
    if !is_counted(state, message) {
        state.counted.insert(Arc::clone(message));
    }
}

fn is_counted(state: &State, message: &Message) -> bool {
    state.counted.iter().any(|usage| usage.repeats(message))
}

/// Decides on what is next. A post is on its way at once: that it may stay there for long is the
/// same as a worker that falls asleep before it posts.
fn decide(scenario: &Scenario, state: &mut State, memory: Memory) -> Worker {
    let now = state.now;
    let change = match following(scenario, &memory.span, now) {
        Step::Execute(planned) if is_delivered(&memory, &planned) => {
            note_execution(scenario, &memory.span, now)
        }
        Step::Execute(planned) => {
            let message = post(scenario, state, &memory.span, &planned);
            return Worker::Posting(memory, message);
        }
        Step::Plan(interval) => {
            let due_at = Step::Plan(interval).due_at(now);
            let planned = Planned::new(&memory.span, interval);
            if scenario.is_broken(Mutant::PostsBeforePlanning) {
                post(scenario, state, &memory.span, &planned);
            }
            Change::Plan(planned, due_at)
        }
        Step::Complete if memory.span.processing.complete => return Worker::Idle,
        Step::Complete => Change::Complete,
        Step::Wait(until) => Change::Postpone(until),
    };
    Worker::Calling(memory, change)
}

fn is_delivered(memory: &Memory, planned: &Planned) -> bool {
    planned.interval.is_empty() || memory.delivered.as_deref() == Some(planned)
}

/// Notes that the planned interval was executed, and plans the next one if it is due.
fn note_execution(scenario: &Scenario, span: &Span, now: Timestamp) -> Change {
    let after = span.executed();
    let step = following(scenario, &after, now);
    let due_at = step.due_at(now);
    let next = match step {
        Step::Plan(interval) => Next::Planned(Planned::new(&after, interval)),
        Step::Complete => Next::Complete,
        Step::Wait(_) | Step::Execute(_) => Next::Wait,
    };
    Change::Executed(next, due_at)
}

/// The real state machine, unless that is what is broken.
fn following(scenario: &Scenario, span: &Span, now: Timestamp) -> Step {
    let is_early = span.end.is_some() && span.processing.planned.is_none();
    if is_early && scenario.is_broken(Mutant::CompletesWithoutComparing) {
        return Step::Complete;
    }
    next_step(span, now, &scenario.policy)
}

/// Sends the usage of a planned interval on its way.
fn post(scenario: &Scenario, state: &mut State, span: &Span, planned: &Planned) -> Arc<Message> {
    let mut message = Message::new(span, planned);
    if scenario.is_broken(Mutant::GuidPerAttempt) {
        state.history.posts += 1;
        message.dedup_id = state.history.posts.to_string();
    }
    if scenario.is_broken(Mutant::TimestampPerAttempt) {
        message.dated = (state.now, state.now);
    }
    let message = Arc::new(message);
    if !is_counted(state, &message) {
        state.in_flight.insert(Arc::clone(&message));
    }
    message
}

/// Hears that Abacus has the usage.
fn hear(
    scenario: &Scenario,
    state: &mut State,
    mut memory: Memory,
    message: Arc<Message>,
) -> Worker {
    if !is_counted(state, &message) {
        return Worker::Posting(memory, message);
    }
    memory.delivered = memory.span.processing.planned.clone().map(Arc::new);
    decide(scenario, state, memory)
}

/// Asks the store for a change.
fn call(scenario: &Scenario, state: &mut State, memory: Memory, change: Change) -> Worker {
    let is_last = matches!(
        change,
        Change::Postpone(_) | Change::Executed(Next::Wait | Next::Complete, _)
    );
    let is_failure = matches!(change, Change::Failed(_));
    match ask(scenario, state, &memory.span, change) {
        _ if is_failure => Worker::Idle,
        Changed::Done(_) if is_last => Worker::Idle,
        Changed::Done(after) => {
            note_plan(state, &after);
            decide(scenario, state, memory.with(*after))
        }
        Changed::Lost => reread(scenario, state, memory),
    }
}

fn ask(scenario: &Scenario, state: &mut State, span: &Span, change: Change) -> Changed {
    let Some(span) = as_read(scenario, &state.table, span, &change) else {
        return Changed::Lost;
    };
    let at = state.now;
    let table = Arc::make_mut(&mut state.table);
    match change {
        Change::Plan(planned, due_at) => table.plan(&span, planned, due_at),
        Change::Executed(next, due_at) => table.executed(&span, next, due_at),
        Change::Complete => table.complete(&span),
        Change::Postpone(until) => table.postpone(&span, until),
        Change::Failed(retry_at) => {
            let error = String::new();
            let failure = Failure {
                at,
                retry_at,
                error,
            };
            table.failed(&span, failure)
        }
    }
}

/// The span that a change is made conditional on: the one that was read. A broken store looks at
/// less, which is the same as a worker that happens to have read the right thing.
fn as_read(scenario: &Scenario, table: &Table, span: &Span, change: &Change) -> Option<Span> {
    let mut span = span.clone();
    let kept = table.find(&span.id)?;
    if scenario.is_broken(Mutant::IgnoresVersion) {
        span.processing.version = kept.processing.version;
        if matches!(change, Change::Executed(..)) {
            kept.processing.planned.as_ref()?;
        }
    }
    if scenario.is_broken(Mutant::IgnoresEnd) {
        span.end = kept.end;
    }
    Some(span)
}

/// Reads a span again whose change was lost, and goes on if that was for a stop alone.
///
/// It does so at once: an end never changes, so reading later finds the same, or another version
/// and then the worker has nothing in hand, as if it had died.
fn reread(scenario: &Scenario, state: &mut State, memory: Memory) -> Worker {
    let span = &memory.span;
    let same_version = |fresh: &&Span| fresh.processing.version == span.processing.version;
    let fresh = state.table.find(&span.id).filter(same_version);
    match fresh.filter(|fresh| fresh.end != span.end).cloned() {
        Some(fresh) => decide(scenario, state, memory.with(fresh)),
        None => Worker::Idle,
    }
}

impl Memory {
    /// The span is like this now; what was delivered is of interest as long as it is planned.
    fn with(self, span: Span) -> Self {
        let is_planned = self.delivered.as_deref() == span.processing.planned.as_ref();
        Self {
            span: Arc::new(span),
            delivered: self.delivered.filter(|_| is_planned),
        }
    }
}

/// Writes down what is planned.
fn note_plan(state: &mut State, span: &Span) {
    let Some(planned) = &span.processing.planned else {
        return;
    };
    let interval = planned.interval;
    let plan = (span.id.clone(), interval.start, interval.end);
    let is_new = state.history.planned.insert(plan);
    let passes = |end| (interval.start..interval.end).contains(&end) || end == interval.start;
    if is_new && span.end.is_some_and(passes) {
        state.history.passed_an_end = true;
    }
}

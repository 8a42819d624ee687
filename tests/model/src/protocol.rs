//! The actions of each state, and their effects.

use sampler_domain::{CauseId, Change, SUSPENDED_DUE_AT, Skip, SpanId, Timestamp};
use sampler_store::{KeptCause, Resumption};
use sampler_store_testing::Shared;
use stateright::{Model, Property};
use uuid::Uuid;

use crate::confirm::{self, Confirmer};

use crate::liveness::Proven;
use crate::receiver::Request;
use crate::resend::{self, Resender};
use crate::scenario::{Mutant, Scenario};

use crate::state::{Message, Removed, State, Worker};
use crate::{properties, receiver, worker};

/// A scenario, and the states from which all has been driven to its end.
#[derive(Debug)]
pub struct Protocol {
    pub(crate) scenario: Scenario,
    pub(crate) proven: Proven,
}

/// What happens next.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// The clock advances to its next time.
    Tick(Timestamp),
    /// A receiver calls the store with an event, for the first time or again.
    CallStore(Request),
    /// The provider hears the answer to its event.
    Answered,
    /// A worker reads a span that is due.
    Read(usize, SpanId),
    /// A worker takes the next step with what it has in hand.
    Step(usize),
    /// A post of a worker times out.
    TimeOut(usize),
    /// Abacus refuses what a worker has posted.
    Refuse(usize),
    /// A worker has one span of a cause tried, or lets all go on that are to.
    LookAfter(CauseId),
    /// A cause without spans is removed.
    Forget(CauseId),
    /// An operator gives up the usage of a suspended span.
    Skip(SpanId),
    /// An operator has a usage sent again that was given up.
    Resend(String),
    /// A worker takes up a usage that is to be sent again.
    TakeUp(String),
    /// It takes the next step with that.
    StepResend,
    /// Abacus refuses a usage that is sent again.
    RefuseResend,
    /// The worker that sends again dies, or its post times out.
    ResenderDies,
    /// A worker dies, or its call was answered and the answer was lost.
    WorkerDies(usize),
    /// A usage arrives at Abacus.
    Arrive(Shared<Message>),
    /// A usage arrives at Abacus, which accepts it and sets it aside.
    SetAside(Shared<Message>),
    /// A worker hears that a usage was set aside.
    Ask(String),
    /// It takes the next step with that.
    StepConfirm,
    ConfirmerDies,
    /// A complete span is removed, as its retention is over.
    Remove(SpanId),
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(&self.scenario)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend(self.scenario.moment_after(state.now).map(Action::Tick));
        self.receiver_actions(state, actions);
        self.worker_actions(state, actions);
        cause_actions(state, actions);
        actions.extend(self.skippable(state).map(Action::Skip));
        self.resend_actions(state, actions);
        actions.extend(state.in_flight.iter().cloned().map(Action::Arrive));
        if confirm::may_be_set_aside(&self.scenario, state) {
            actions.extend(state.in_flight.iter().cloned().map(Action::SetAside));
        }
        if state.confirmer == Confirmer::Idle {
            actions.extend(confirm::askable(state).into_iter().map(Action::Ask));
        } else {
            actions.extend([Action::StepConfirm, Action::ConfirmerDies]);
        }
        actions.extend(self.removable(state).into_iter().map(Action::Remove));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        self.act(&mut state, action);
        state.sort();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}

impl Protocol {
    pub fn new(scenario: Scenario) -> Self {
        let proven = Proven::default();
        Self { scenario, proven }
    }

    fn receiver_actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.provider.answered {
            actions.push(Action::Answered);
        }
        for event in 0..state.provider.sent.len() {
            if let Some(admitted) = receiver::outcome(&self.scenario, state, event) {
                actions.push(Action::CallStore(Request { event, admitted }));
            }
        }
    }

    fn worker_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for index in distinct(&state.workers) {
            let worker = &state.workers[index];
            if *worker == Worker::Idle {
                let due = worker::due(state).into_iter();
                actions.extend(due.map(|span| Action::Read(index, span)));
                continue;
            }
            actions.push(Action::WorkerDies(index));
            if worker::can_step(state, worker) {
                actions.push(Action::Step(index));
            }
            if self.is_calm(state) {
                continue;
            }
            if worker::may_time_out(&self.scenario, worker) {
                actions.push(Action::TimeOut(index));
            }
            if worker::may_be_refused(&self.scenario, state, worker) {
                actions.push(Action::Refuse(index));
            }
        }
    }

    /// Where usages are sent again, Abacus takes all that a worker posts once one was given up: otherwise
    /// there are too many states.
    fn is_calm(&self, state: &State) -> bool {
        let mut entries = state.table.entries().map(|kept| &kept.entry);
        self.scenario.resends_max > 0 && entries.any(|entry| entry.skipped_at.is_some())
    }

    fn resend_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let resendable = resend::resendable(&self.scenario, state).into_iter();
        actions.extend(resendable.map(Action::Resend));
        if state.resender == Resender::Idle {
            let due = resend::due(&self.scenario, state).into_iter();
            actions.extend(due.map(Action::TakeUp));
            return;
        }
        actions.push(Action::ResenderDies);
        if resend::can_step(state) {
            actions.push(Action::StepResend);
        }
        if matches!(&state.resender, Resender::Posting(_, message) if state.in_flight.contains(message))
        {
            actions.push(Action::RefuseResend);
        }
    }

    /// Has one span of a cause tried, or lets all go on that are to.
    pub(crate) fn look_after(&self, state: &mut State, id: CauseId) {
        let resumption = Resumption {
            now: state.now,
            refusals: self.scenario.suspend_after.saturating_sub(1),
        };
        let of_cause = |cause: &&KeptCause| cause.id == id;
        let Some(cause) = state.table.causes().find(of_cause).cloned() else {
            return;
        };
        let before = state.table.clone();
        let table = state.table.make_mut();
        match cause.resuming {
            Some(until) => {
                table.resume_batch(id, until, resumption, usize::MAX);
                table.end_resuming(&cause);
            }
            // Here each probe has its answer at some time.
            None => _ = table.probe(id, resumption, i64::MAX),
        }
        if self.scenario.is_broken(Mutant::ResumedStaysAway) {
            for kept in before
                .all()
                .filter(|kept| kept.span.processing.suspended.is_some())
            {
                table.set_due_at(&kept.span.id, SUSPENDED_DUE_AT);
            }
        }
    }

    /// Spans whose usage an operator may give up. A worker that has read the span before, and posts its
    /// usage after that, would have it count: that is found out when its answer comes, and by no
    /// protocol before. So none has it in hand here.
    fn skippable<'a>(&self, state: &'a State) -> impl Iterator<Item = SpanId> + use<'a> {
        let is_free = self.scenario.may_skip && state.in_flight.is_empty();
        let is_free = is_free && state.workers.iter().all(|worker| *worker == Worker::Idle);
        let suspended = state.table.all().filter(|kept| {
            let processing = &kept.span.processing;
            processing.suspended.is_some()
                && processing.totals.skipped == 0
                && state.history.resends == 0
        });
        let suspended = suspended.filter(move |_| is_free);
        suspended.map(|kept| kept.span.id.clone())
    }

    fn removable(&self, state: &State) -> Vec<SpanId> {
        let cutoff = state.now.plus(-self.scenario.retention);
        state.table.completed_before(cutoff, usize::MAX)
    }

    fn act(&self, state: &mut State, action: Action) {
        match action {
            Action::Tick(now) => self.tick(state, now),
            Action::CallStore(request) => receiver::call_store(&self.scenario, state, &request),
            Action::Answered => self.go_to_next_event(state),
            Action::Read(worker, span) => worker::read(&self.scenario, state, worker, &span),
            Action::Step(worker) => worker::step(&self.scenario, state, worker),
            Action::TimeOut(worker) => worker::time_out(&self.scenario, state, worker),
            Action::Refuse(worker) => worker::refuse(&self.scenario, state, worker),
            Action::LookAfter(cause) => self.look_after(state, cause),
            Action::Forget(cause) => forget(state, cause),
            Action::Skip(span) => skip(state, &span),
            Action::Resend(usage) => resend::mark(state, &usage),
            Action::TakeUp(usage) => resend::take_up(&self.scenario, state, &usage),
            Action::StepResend => resend::step(&self.scenario, state),
            Action::RefuseResend => resend::refuse(state),
            Action::ResenderDies => state.resender = Resender::Idle,
            Action::WorkerDies(worker) => state.workers[worker] = Worker::Idle,
            Action::Arrive(message) => worker::arrive(&self.scenario, state, &message),
            Action::SetAside(message) => confirm::set_aside(state, &message),
            Action::Ask(usage) => state.confirmer = Confirmer::Told(usage),
            Action::StepConfirm => confirm::step(&self.scenario, state),
            Action::ConfirmerDies => state.confirmer = Confirmer::Idle,
            Action::Remove(span) => remove(state, &span),
        }
    }

    fn tick(&self, state: &mut State, now: Timestamp) {
        state.now = now;
        if self.scenario.forgets_usages() {
            // By now a post has taken effect, or never will.
            state.in_flight.clear();
            state.fresh.clear();
            state.remembered.retain(|(_, until)| *until > now);
        }
        for sent in &mut state.provider.sent {
            if *sent <= now.plus(-self.scenario.request_limit) {
                *sent = Timestamp::MIN;
            }
        }
    }

    fn go_to_next_event(&self, state: &mut State) {
        let provider = &mut state.provider;
        provider.event += 1;
        provider.answered = false;
        if provider.event < self.scenario.events.len() {
            provider.sent.push(state.now);
        }
    }
}

/// One span of a cause is tried, or all go on that are to; a cause without spans is removed.
fn cause_actions(state: &State, actions: &mut Vec<Action>) {
    for cause in state.table.causes() {
        let count = state.table.count_suspended(cause.id);
        if count > 0 {
            actions.push(Action::LookAfter(cause.id));
        } else {
            actions.push(Action::Forget(cause.id));
        }
    }
}

fn forget(state: &mut State, id: CauseId) {
    let table = state.table.make_mut();
    let cause = table.causes().find(|cause| cause.id == id).cloned();
    if let Some(cause) = cause {
        table.end_resuming(&cause);
        let cause = KeptCause {
            resuming: None,
            ..cause
        };
        table.remove_cause(&cause);
    }
}

fn skip(state: &mut State, id: &SpanId) {
    let Some(span) = state.table.find(id).cloned() else {
        return;
    };
    let (planned, suspended) = (&span.processing.planned, span.processing.suspended);
    if let (Some(planned), Some(suspension)) = (planned, suspended) {
        let change = Change::RequestSkip {
            skip: Skip {
                usage_guid: planned.usage_guid.clone(),
                at: Timestamp::MIN,
                not_before: Timestamp::MIN,
                act: Uuid::nil(),
            },
            suspension,
            due_at: state.now,
        };
        state.table.make_mut().change(&span, &change);
    }
}

fn remove(state: &mut State, id: &SpanId) {
    let span = state.table.find(id);
    let length = span.and_then(|span| span.end.map(|end| end.since(span.start)));
    let skipped = span.map_or(0, |span| span.processing.totals.skipped);
    let removed = state.table.make_mut().remove(std::slice::from_ref(id));
    if removed > 0 {
        let length = length.unwrap_or_default();
        let removed = Removed { length, skipped };
        state.history.removed.insert(id.clone(), removed);
    }
}

/// The indices of those that differ from the one before: what one of two that are alike may do,
/// the other need not do, too.
fn distinct<T: PartialEq>(all: &[T]) -> impl Iterator<Item = usize> {
    (0..all.len()).filter(|index| *index == 0 || all[*index] != all[*index - 1])
}

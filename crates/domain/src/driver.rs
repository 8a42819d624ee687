//! The worker's protocol for one span, without I/O (sections 6.5 and 6.6 of the paper).
//!
//! Any instruction may be the last one. Before a usage is posted its interval is planned, and the
//! plan is kept by a majority; after it was accepted its entry is written into the ledger, and only
//! then one change notes the execution and plans the next. A worker that dies in between leaves the
//! plan behind, and the worker that comes next posts the very same usage, which Abacus recognises,
//! and writes the same entry, which the ledger recognises. So each noted execution has its entry.
//!
//! ```text
//!              ┌───────────── made ──────────────┐
//!              ▼                                 │
//!   next() ─► Change ──────── lost ─► Reread ─► found ─► next() or Done
//!        ├──► Post ── delivered ─► next() ─► Record
//!        │        └── failed ────► next() (notes the failure)
//!        └──► Record ─ recorded ─► next() (notes the execution)
//! ```
//!
//! A failure that suspends the span asks for `Register` first: the cause is kept before any span is
//! suspended under it. A span that is tried for all of its cause asks for `Resume` before `Record`:
//! whatever dies, the success of a probe is not lost.
//!
//! The worker carries out what it asks for; so do the model and the simulation.

use crate::{
    Cause, CauseId, Change, Delivered, Entry, EntryState, Failure, Next, Planned, Policy, Span,
    Step, Timestamp, next_step,
};

/// What is to be done next for a span.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Have the store make this change. Answer with [`Driver::made`] or [`Driver::lost`].
    Change(Change),
    /// Post the usage of this planned interval. Answer with [`Driver::delivered`] or
    /// [`Driver::failed`].
    Post(Planned),
    /// Write this entry into the ledger. Answer with [`Driver::recorded`].
    Record(Box<Entry>),
    /// Keep this cause of refusals, before the span is suspended under it. Answer with
    /// [`Driver::registered`].
    Register(Box<Cause>),
    /// Let all spans that are suspended for this cause go on. Answer with [`Driver::resumed`].
    Resume(CauseId),
    /// Read the span again. Answer with [`Driver::found`].
    Reread,
    /// Nothing is left to do at present.
    Done,
}

/// One span in the hands of one worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Driver {
    span: Span,
    /// The plan whose usage Abacus has, though that is not noted yet.
    outcome: Option<Outcome>,
    state: State,
}

/// What became of the usage of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Outcome {
    planned: Planned,
    delivered: Delivered,
    /// Whether the others of the cause go on that it was tried for.
    resumed: bool,
    /// What the ledger says of it, once it does.
    recorded: Option<EntryState>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    /// The span is as the driver knows it.
    Deciding,
    /// A failure is to be noted, once its cause is kept.
    Failed {
        failure: Failure,
        unregistered: Option<Box<Cause>>,
    },
    /// A change came too late.
    Lost,
    Done,
}

impl Driver {
    /// Takes a span in hand, as it was read.
    pub fn new(span: Span) -> Self {
        Self {
            span,
            outcome: None,
            state: State::Deciding,
        }
    }

    /// The span as the driver knows it.
    pub fn span(&self) -> &Span {
        &self.span
    }

    /// Whether something happened that is not noted yet: Abacus has a usage, or refused it. It should
    /// be noted before the worker stops, though nothing is lost where it is not.
    pub fn has_unnoted_outcome(&self) -> bool {
        self.outcome.is_some() || matches!(self.state, State::Failed { .. })
    }

    /// What is to be done next at `now`.
    pub fn next(&self, now: Timestamp, policy: &Policy) -> Action {
        match &self.state {
            State::Deciding => self.decide(now, policy),
            State::Failed {
                unregistered: Some(cause),
                ..
            } => Action::Register(cause.clone()),
            State::Failed { failure, .. } => {
                Action::Change(Change::failed(&self.span, failure.clone()))
            }
            State::Lost => Action::Reread,
            State::Done => Action::Done,
        }
    }

    fn decide(&self, now: Timestamp, policy: &Policy) -> Action {
        if let (Some(suspension), None) = (self.span.processing.suspended, &self.outcome) {
            return Action::Change(Change::KeepSuspended { suspension });
        }
        let step = next_step(&self.span, now, policy);
        let due_at = step.due_at(now);
        match step {
            Step::Execute(planned) => self.execute(planned, now, policy),
            Step::Plan(interval) => Action::Change(Change::Plan {
                planned: Planned::new(&self.span, interval, now),
                due_at,
            }),
            Step::Complete if self.span.processing.complete => Action::Done,
            Step::Complete => Action::Change(Change::Complete),
            Step::Wait(until) => Action::Change(Change::Postpone { due_at: until }),
        }
    }

    /// Posts the usage, then has its entry written, then notes the execution. Only an original
    /// Sampler plans intervals of no length; there is nothing to bill, and nothing to record.
    fn execute(&self, planned: Planned, now: Timestamp, policy: &Policy) -> Action {
        let outcome = self.outcome.as_ref();
        match outcome.filter(|outcome| outcome.planned == planned) {
            _ if planned.interval.is_empty() => Action::Change(self.execution(now, policy)),
            None => Action::Post(planned),
            Some(Outcome {
                recorded: Some(_), ..
            }) => Action::Change(self.execution(now, policy)),
            Some(outcome) => self.tell(outcome),
        }
    }

    /// Tells the others of the cause that the span was tried for, then the ledger, that Abacus has
    /// the usage.
    fn tell(&self, outcome: &Outcome) -> Action {
        if let Some(cause) = self.span.processing.probe.filter(|_| !outcome.resumed) {
            return Action::Resume(cause);
        }
        let entry = Entry::of_delivered(&self.span, outcome.delivered.clone());
        Action::Record(Box::new(entry.expect("it was planned")))
    }

    /// Notes that the planned interval was executed, and plans the next one if it is due.
    fn execution(&self, now: Timestamp, policy: &Policy) -> Change {
        let after = self.span.executed();
        let step = next_step(&after, now, policy);
        let due_at = step.due_at(now);
        let next = match step {
            Step::Plan(interval) => Next::Planned(Planned::new(&after, interval, now)),
            Step::Complete => Next::Complete,
            // Nothing is planned after an execution, so there is nothing to execute.
            Step::Wait(_) | Step::Execute(_) => Next::Wait,
        };
        Change::Executed { next, due_at }
    }

    /// Abacus has the usage of the planned interval.
    pub fn delivered(&mut self, delivered: Delivered) {
        let planned = self.span.processing.planned.clone();
        self.outcome = planned.map(|planned| Outcome {
            planned,
            delivered,
            resumed: false,
            recorded: None,
        });
    }

    /// All spans of the cause go on that the span was tried for.
    pub fn resumed(&mut self) {
        if let Some(outcome) = &mut self.outcome {
            outcome.resumed = true;
        }
    }

    /// The ledger has an entry of the usage of the planned interval, in this state: what was written
    /// first stays.
    pub fn recorded(&mut self, kept: EntryState) {
        if let Some(outcome) = &mut self.outcome {
            outcome.recorded = Some(kept);
        }
    }

    /// The usage of the planned interval could not be delivered.
    pub fn failed(&mut self, failure: Failure) {
        self.state = State::Failed {
            unregistered: failure.cause(&self.span).map(Box::new),
            failure,
        };
    }

    /// The cause under which the span is to be suspended is kept.
    pub fn registered(&mut self) {
        if let State::Failed { unregistered, .. } = &mut self.state {
            *unregistered = None;
        }
    }

    /// The store has made this change.
    ///
    /// # Panics
    /// Where an execution was noted and nothing was planned.
    pub fn made(&mut self, change: &Change) {
        self.take(self.span.after(change));
        if change.is_last() {
            self.state = State::Done;
        }
    }

    /// The change came too late: the span is no longer as it was read. A failure need not be noted
    /// then: the span stays due, and is found again.
    pub fn lost(&mut self) {
        self.state = match self.state {
            State::Failed { .. } => State::Done,
            _ => State::Lost,
        };
    }

    /// The span as it is by now. The driver goes on where only a stop made its change come too
    /// late. Where the version has moved on another worker has it in hand, and one is enough.
    pub fn found(&mut self, fresh: Option<Span>) {
        let before = &self.span;
        let is_stopped = |fresh: &Span| {
            fresh.processing.version == before.processing.version && fresh.end != before.end
        };
        match fresh.filter(is_stopped) {
            Some(fresh) => {
                self.take(fresh);
                self.state = State::Deciding;
            }
            None => self.state = State::Done,
        }
    }

    /// The span is like this now; an outcome is of interest as long as its plan is.
    fn take(&mut self, span: Span) {
        self.span = span;
        let planned = self.span.processing.planned.as_ref();
        self.outcome
            .take_if(|outcome| Some(&outcome.planned) != planned);
    }
}

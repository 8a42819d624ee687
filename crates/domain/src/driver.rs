//! The worker's protocol for one span, without I/O (sections 6.5 and 6.6 of the paper).
//!
//! A worker may die at any instruction. So the interval is planned, and a majority has the plan,
//! before its usage is posted. After the upstream has accepted the usage, its entry is written into the
//! ledger. Only then one change records the execution and plans the next interval. If a worker dies in
//! between, the plan remains: the next worker posts the same usage, which the upstream recognises, and
//! writes the same entry, which the ledger recognises. So each recorded execution has its entry.
//!
//! ```text
//!              ┌────────── on_change_made ────────────┐
//!              ▼                                      │
//! action() ─► Change ─ on_change_rejected ─► Reread ─ on_reread ─► action() or Done
//!        │                                      (a failure that was answered: Done at once)
//!        ├──► LookUp ─┬─ on_found ────────────► as on_accepted
//!        │            ├─ on_not_found ────────► action() (records it) ─► Post
//!        │            ├─ on_lookup_postponed ─► action() (postpones the span)
//!        │            └─ on_failed ───────────► action() (records the failure)
//!        ├──► Post ─┬─ on_accepted ─► action() ─► WriteEntry (a probe: BeginResuming before)
//!        │          ├─ on_failed ───► action() (records the failure; one that suspends: Register before)
//!        │          └─ on_outdated ─► action() ─► Reread
//!        └──► WriteEntry ─ on_entry_written ──► action() (records the execution)
//! ```
//!
//! A usage that an operator skips, or that takes back what never counted (it is *withheld*), is not posted:
//! `WriteEntry` comes first then. If the worker's read of the span is too old for a post
//! ([`READ_VALID_FOR`]), it answers with [`Driver::on_outdated`], and reads the span again.
//!
//! Where the upstream forgets ([`Contract`]), a usage that may have been posted too long ago is looked up
//! before it is posted. One that is found counts as accepted. That it was not found is recorded on the span
//! before the post ([`Change::NotFound`]), so that no two workers post it.
//!
//! A failure that suspends the span asks for `Register` first: the cause is kept before any span is
//! suspended under it. A span that probes its cause asks for `BeginResuming` before `WriteEntry`, so
//! that the success of a probe is not lost in a crash.
//!
//! The worker, the model and the simulation carry out the actions that the driver returns.

use crate::{
    Acceptance, Cause, CauseId, Change, Contract, Entry, EntryState, Failure, Next, Planned,
    Policy, Span, Step, Timestamp, next_step,
};

/// How old the read of a span may be when a worker begins a post by it, ms. The worker checks that.
pub const READ_VALID_FOR: i64 = 2 * 60_000;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Have the store make this change. Answer with [`Driver::on_change_made`] or
    /// [`Driver::on_change_rejected`].
    Change(Change),
    /// Post the usage of this planned interval. Answer with [`Driver::on_accepted`],
    /// [`Driver::on_failed`] or [`Driver::on_outdated`].
    Post {
        planned: Planned,
        /// The post must begin before; after that it is outdated.
        begin_before: Timestamp,
    },
    /// Ask the upstream whether it has the usage of this planned interval. Answer with
    /// [`Driver::on_found`], [`Driver::on_not_found`], [`Driver::on_failed`] or
    /// [`Driver::on_lookup_postponed`].
    LookUp(Planned),
    /// Write this entry into the ledger. Answer with [`Driver::on_entry_written`].
    WriteEntry(Box<Entry>),
    /// Keep this cause of refusals, before the span is suspended under it. Answer with
    /// [`Driver::on_registered`].
    Register(Box<Cause>),
    /// Mark this cause, so that all spans that are suspended for it are resumed. Answer with
    /// [`Driver::on_resuming_begun`].
    BeginResuming(CauseId),
    /// Read the span again. Answer with [`Driver::on_reread`].
    Reread,
    /// Nothing is left to do for now.
    Done,
}

/// Drives one span for one worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Driver {
    span: Span,
    /// The plan whose usage the upstream has accepted, or that was skipped or withheld, until that is recorded.
    outcome: Option<PlanOutcome>,
    contract: Contract,
    owned_since: Timestamp,
    /// The upstream does not have the usage of the planned interval.
    not_found: Option<NotFound>,
    state: DriverState,
}

/// The upstream does not have a usage, and no post of it can still come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct NotFound {
    /// Until then its post may begin.
    post_before: Timestamp,
    /// Whether the span says that the usage was not found, so that no other worker posts it.
    is_recorded: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PlanOutcome {
    planned: Planned,
    progress: Progress,
}

/// How far it is recorded.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Progress {
    Accepted {
        acceptance: Acceptance,
        /// Whether the cause that this span probes is marked as resuming.
        is_resuming: bool,
    },
    /// The ledger has its entry, in this state.
    EntryWritten(EntryState),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum DriverState {
    /// The driver decides from the span that it knows.
    Deciding,
    /// A failure must be recorded, once its cause is kept.
    Failed {
        failure: Failure,
        unregistered: Option<Box<Cause>>,
    },
    /// A failure without an answer could not be recorded, because the span has changed.
    Unrecorded(Failure),
    /// The last change was rejected.
    Rejected,
    /// The span was read too long ago.
    Outdated,
    /// Too many lookups are under way: the span waits until this time.
    LookupPostponed(Timestamp),
    Done,
}

impl Driver {
    /// A driver for a span that was just read, for an upstream with this contract. `owned_since` is when
    /// this worker took the span over.
    pub fn new(span: Span, contract: Contract, owned_since: Timestamp) -> Self {
        Self {
            span,
            outcome: None,
            contract,
            owned_since,
            not_found: None,
            state: DriverState::Deciding,
        }
    }

    pub fn span(&self) -> &Span {
        &self.span
    }

    /// Whether an outcome is not recorded yet: a usage was accepted, or a post has failed. It should be
    /// recorded before the worker stops. If it is not, nothing is lost.
    pub fn has_unrecorded_outcome(&self) -> bool {
        self.outcome.is_some()
            || matches!(
                self.state,
                DriverState::Failed { .. } | DriverState::Unrecorded(_)
            )
    }

    pub fn action(&self, now: Timestamp, policy: &Policy) -> Action {
        match &self.state {
            DriverState::Deciding => self.decide(now, policy),
            DriverState::Failed {
                unregistered: Some(cause),
                ..
            } => Action::Register(cause.clone()),
            DriverState::Failed { failure, .. } => {
                Action::Change(Change::failed(&self.span, failure.clone()))
            }
            DriverState::LookupPostponed(due_at) => {
                Action::Change(Change::Postpone { due_at: *due_at })
            }
            DriverState::Unrecorded(_) | DriverState::Rejected | DriverState::Outdated => {
                Action::Reread
            }
            DriverState::Done => Action::Done,
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
                planned: Planned::new(&self.span, interval, now).cut_by(&self.span, policy),
                due_at,
            }),
            Step::Complete if self.span.processing.complete => Action::Done,
            Step::Complete => Action::Change(Change::Complete),
            Step::Wait(until) => Action::Change(Change::Postpone { due_at: until }),
        }
    }

    /// Posts the usage, then has its entry written, then records the execution. Only the original
    /// Sampler plans intervals of no length; there is nothing to bill, and no entry to write.
    ///
    /// A usage that takes back what never counted is not posted: its entry is written at once. That was
    /// decided with the plan, so that all workers do the same.
    ///
    /// A usage that an operator skips is not posted either. A worker that had posted it before the
    /// skip, and has the answer, writes that it is accepted. The ledger keeps what is written first,
    /// and the span records what the ledger keeps.
    fn execute(&self, planned: Planned, now: Timestamp, policy: &Policy) -> Action {
        match self.outcome.as_ref().map(|outcome| &outcome.progress) {
            _ if planned.interval.is_empty() => Action::Change(self.execution(now, policy, false)),
            None if planned.withheld.is_some() => write_entry(Entry::of_withheld(&self.span, now)),
            None => match self.span.to_be_skipped() {
                // A post that was begun before the span was suspended may still be on its way.
                Some(skip) if skip.not_before > now => Action::Change(Change::Postpone {
                    due_at: skip.not_before,
                }),
                Some(_) => write_entry(Entry::of_skipped(&self.span, now)),
                None => self.deliver(planned, now),
            },
            Some(Progress::Accepted {
                acceptance,
                is_resuming,
            }) => self.after_acceptance(acceptance, *is_resuming),
            Some(Progress::EntryWritten(kept)) => {
                // A withheld piece has the state of what it takes back. With a usage that was set aside it
                // changes `billed`, as that usage did.
                let is_skipped = *kept == EntryState::Skipped;
                Action::Change(self.execution(now, policy, is_skipped))
            }
        }
    }

    /// Posts the usage while the upstream surely remembers all earlier posts of it. After that looks it up
    /// first. A usage that is not found is posted once the span says that it was not found.
    fn deliver(&self, planned: Planned, now: Timestamp) -> Action {
        let safe_until = self.contract.safe_until(&planned);
        if let Some(begin_before) = safe_until.filter(|until| now < *until) {
            return Action::Post {
                planned,
                begin_before,
            };
        }
        match self.not_found.filter(|it| now < it.post_before) {
            Some(it) if it.is_recorded => Action::Post {
                planned,
                begin_before: it.post_before,
            },
            Some(_) => Action::Change(Change::NotFound {
                posts_end_by: self.contract.posts_end_by(now),
            }),
            None => Action::LookUp(planned),
        }
    }

    /// The action once the upstream has the usage: a probe marks its cause as resuming, then the
    /// entry is written.
    fn after_acceptance(&self, acceptance: &Acceptance, is_resuming: bool) -> Action {
        if let Some(cause) = self.span.processing.probe.filter(|_| !is_resuming) {
            return Action::BeginResuming(cause);
        }
        write_entry(Entry::of_accepted(&self.span, acceptance.clone()))
    }

    /// Records that the planned interval was executed or skipped, and plans the next one if it is
    /// due.
    fn execution(&self, now: Timestamp, policy: &Policy, is_skipped: bool) -> Change {
        // What is skipped is not taken back by the step that follows.
        let after = if is_skipped {
            self.span.skipped()
        } else {
            self.span.executed()
        };
        let step = next_step(&after, now, policy);
        let due_at = step.due_at(now);
        let next = match step {
            Step::Plan(interval) => {
                Next::Planned(Planned::new(&after, interval, now).cut_by(&after, policy))
            }
            Step::Complete => Next::Complete,
            // Nothing is planned after an execution, so there is nothing to execute.
            Step::Wait(_) | Step::Execute(_) => Next::Wait,
        };
        if is_skipped {
            Change::Skipped { next, due_at }
        } else {
            Change::Executed { next, due_at }
        }
    }

    /// Input: the upstream has accepted the usage of the planned interval.
    pub fn on_accepted(&mut self, acceptance: Acceptance) {
        let planned = self.span.processing.planned.clone();
        self.outcome = planned.map(|planned| PlanOutcome {
            planned,
            progress: Progress::Accepted {
                acceptance,
                is_resuming: false,
            },
        });
    }

    /// Input: the upstream has the usage of the planned interval from an earlier post. That says nothing
    /// about others: a probe does not resume the spans of its cause.
    pub fn on_found(&mut self, acceptance: Acceptance) {
        self.on_accepted(acceptance);
        self.on_resuming_begun();
    }

    /// Input: a lookup that was sent at `sent_at` has not found the usage of the planned interval. It proves
    /// something only once all posts of the usage have settled; until then `failure` is recorded, and the
    /// usage is looked up again.
    pub fn on_not_found(&mut self, sent_at: Timestamp, failure: Failure) {
        let planned = self.span.processing.planned.as_ref();
        let settled_at = planned.map(|it| self.contract.settled_at(it, self.owned_since));
        match settled_at {
            Some(settled_at) if sent_at < settled_at => self.on_failed(Failure {
                retry_at: settled_at,
                ..failure
            }),
            _ => {
                self.not_found = Some(NotFound {
                    post_before: self.contract.post_before(failure.at),
                    is_recorded: false,
                });
            }
        }
    }

    /// Input: too many lookups are under way. The usage is looked up at this time.
    pub fn on_lookup_postponed(&mut self, again_at: Timestamp) {
        self.state = DriverState::LookupPostponed(again_at);
    }

    /// Input: the cause that this span probes is marked as resuming.
    pub fn on_resuming_begun(&mut self) {
        let progress = self.outcome.as_mut().map(|outcome| &mut outcome.progress);
        if let Some(Progress::Accepted { is_resuming, .. }) = progress {
            *is_resuming = true;
        }
    }

    /// Input: the ledger has an entry of the usage of the planned interval, in this state. The entry
    /// that was written first stays.
    pub fn on_entry_written(&mut self, kept: EntryState) {
        let planned = self.span.processing.planned.clone();
        self.outcome = planned.map(|planned| PlanOutcome {
            planned,
            progress: Progress::EntryWritten(kept),
        });
    }

    /// Input: the usage of the planned interval could not be delivered.
    pub fn on_failed(&mut self, failure: Failure) {
        self.not_found = None;
        self.state = DriverState::Failed {
            unregistered: failure.cause(&self.span).map(Box::new),
            failure,
        };
    }

    /// Input: the store has the cause under which the span is to be suspended.
    pub fn on_registered(&mut self) {
        if let DriverState::Failed { unregistered, .. } = &mut self.state {
            *unregistered = None;
        }
    }

    /// Input: the store has made this change.
    ///
    /// # Panics
    /// If an execution was recorded and nothing was planned.
    pub fn on_change_made(&mut self, change: &Change) {
        self.set_span(self.span.after(change));
        // A usage is posted once for each lookup that did not find it.
        self.not_found = match change {
            Change::NotFound { .. } => self.not_found.map(|it| NotFound {
                is_recorded: true,
                ..it
            }),
            _ => None,
        };
        if change.is_last() {
            self.state = DriverState::Done;
        }
    }

    /// Input: the store has rejected the change, because the span has changed since it was read. A
    /// failure need not be recorded then, unless its post may have been carried out: the span stays due,
    /// and is found again.
    pub fn on_change_rejected(&mut self) {
        self.state = match &self.state {
            DriverState::Failed { failure, .. } if failure.unanswered => {
                DriverState::Unrecorded(failure.clone())
            }
            DriverState::Failed { .. } => DriverState::Done,
            _ => DriverState::Rejected,
        };
    }

    /// Input: the span as it was read again; `None` if it was removed. If the
    /// version is the same, and something else that a change is decided by has changed
    /// ([`Span::is_unchanged`]) or the read was too old, the driver decides again. Otherwise it is done:
    /// another worker drives the span, or the next search finds it.
    pub fn on_reread(&mut self, fresh: Option<Span>) {
        match fresh {
            Some(fresh) if self.decides_again(&fresh) => {
                self.set_span(fresh);
                self.state = match &self.state {
                    DriverState::Unrecorded(failure) => DriverState::Failed {
                        failure: failure.clone(),
                        unregistered: None,
                    },
                    _ => DriverState::Deciding,
                };
            }
            _ => self.state = DriverState::Done,
        }
    }

    fn decides_again(&self, fresh: &Span) -> bool {
        let is_outdated = self.state == DriverState::Outdated;
        fresh.processing.version == self.span.processing.version
            && (is_outdated || !self.span.is_unchanged(fresh))
    }

    /// Whether a post had no answer, and the span, as it was read again, cannot say so any more: another worker
    /// has recorded the usage, or has looked it up.
    pub fn loses_answer(&self, fresh: Option<&Span>) -> bool {
        matches!(self.state, DriverState::Unrecorded(_))
            && !fresh.is_some_and(|fresh| self.decides_again(fresh))
    }

    /// Input: the span was read too long ago for a post, or it is too late for one without another lookup.
    /// It is read again, and the driver decides again.
    pub fn on_outdated(&mut self) {
        self.state = DriverState::Outdated;
    }

    /// Replaces the span, and drops the outcome if its plan is no longer the span's, or if the ledger has a
    /// skip that does not say yet that a post had no answer.
    fn set_span(&mut self, span: Span) {
        let learned = span.processing.unanswered && !self.span.processing.unanswered;
        self.span = span;
        let planned = self.span.processing.planned.as_ref();
        let skipped = Progress::EntryWritten(EntryState::Skipped);
        self.outcome.take_if(|outcome| {
            Some(&outcome.planned) != planned || (learned && outcome.progress == skipped)
        });
    }
}

/// Has the entry of the planned interval written.
fn write_entry(entry: Option<Entry>) -> Action {
    Action::WriteEntry(Box::new(entry.expect("it was planned")))
}

//! The worker's protocol for one span, without I/O (sections 6.5 and 6.6 of the paper).
//!
//! A worker may die at any instruction. So an interval is planned, and a majority has the plan, before its
//! usage is posted. After the upstream has accepted the usage, its entry is written into the ledger. Only then
//! one change records the execution and plans the next interval. If a worker dies in between, the plan remains:
//! the next worker posts the same usage, which the upstream recognises, and writes the same entry, which the
//! ledger recognises. So each recorded execution has its entry.
//!
//! ```text
//!              ┌────────── on_change_made ────────────┐
//!              ▼                                      │
//! action() ─► Change ─ on_change_rejected ─► Reread ─ on_reread ─► action() or Done
//!        │                                      (a refusal: Done at once)
//!        ├──► LookUp ─┬─ on_found ────────────► as on_accepted
//!        │            ├─ on_not_found ────────► action() (records it) ─► Post
//!        │            ├─ on_lookup_postponed ─► action() (postpones the span)
//!        │            └─ on_failed ───────────► action() (records the failure)
//!        ├──► Post ─┬─ on_accepted ─► action() ─► WriteEntry
//!        │          ├─ on_failed ───► action() (records the failure)
//!        │          └─ on_outdated ─► action() ─► Reread
//!        ├──► WriteEntry ─ on_entry_written ──► action() (records the execution)
//!        └──► ResumeCause ─ on_cause_resumed ─► action() (after a probe)
//! ```
//!
//! **A post is named before it is made.** A plan, and the first of `again`, names the run that may post it. A
//! run posts only what names it. Another run first writes itself there, and flags the usage `unanswered`,
//! because the run before may have posted it. After a change without an answer a run writes its name again: a
//! change that is made late is shut out by the version.
//!
//! **What a worker knows is kept.** If the change that records an acceptance or a post without an answer is
//! rejected, the worker reads the span again, and writes what it knows wherever that interval stands by then:
//! planned, `excluded` or `again`. If the store gives no answer, the run [remembers](Remembered) it.
//!
//! Where the upstream forgets ([`Contract`]), a usage that may have been posted too long ago is looked up
//! before it is posted. One that is found counts as accepted. That it was not found is recorded on the span
//! before the post, and is the right of this drive to one post, until its time ends.
//!
//! The worker, the model and the simulation carry out the actions that the driver returns.

use crate::{
    Acceptance, CauseId, Change, ChangeKind, Contract, Delivery, Entry, Failure, Policy, RunId,
    SUSPENDED_DUE_AT, Span, Step, Timestamp, next_step,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Have the store make this change. Answer with [`Driver::on_change_made`] or
    /// [`Driver::on_change_rejected`].
    Change(Box<Change>),
    /// Post this usage. Answer with [`Driver::on_accepted`], [`Driver::on_failed`] or
    /// [`Driver::on_outdated`].
    Post {
        delivery: Delivery,
        /// The post must begin before, by a read that is not too old; none where neither matters.
        begin_before: Option<Timestamp>,
    },
    /// Ask the upstream whether it has this usage. Answer with [`Driver::on_found`],
    /// [`Driver::on_not_found`], [`Driver::on_failed`] or [`Driver::on_lookup_postponed`].
    LookUp(Delivery),
    /// Write this entry into the ledger. Answer with [`Driver::on_entry_written`].
    WriteEntry(Box<Entry>),
    /// Resume the spans that are suspended for this cause. Answer with [`Driver::on_cause_resumed`].
    ResumeCause(CauseId),
    /// Read the span again. Answer with [`Driver::on_reread`].
    Reread,
    /// Nothing is left to do for now.
    Done,
}

/// What holds for all spans of a run.
#[derive(Clone, Debug)]
pub struct Terms {
    pub run: RunId,
    pub policy: Policy,
    pub contract: Contract,
    /// How many refusals of one planned interval suspend a span.
    pub suspend_after: u32,
}

/// What a run keeps in mind about a span when a drive ends early.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Remembered {
    /// What came of a post, and may not be recorded.
    known: Option<Known>,
    /// A change had no answer: the run must name itself again before it posts.
    must_name: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Known {
    delivery: Delivery,
    /// The upstream has accepted the usage; none if a post had no answer.
    acceptance: Option<Acceptance>,
    /// Whether a lookup has found it. That says nothing about others.
    is_found: bool,
}

impl Remembered {
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// Drives one span for one worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Driver {
    span: Span,
    remembered: Remembered,
    owned_since: Timestamp,
    /// The upstream does not have the usage in hand.
    not_there: Option<NotThere>,
    /// The cause whose probe was accepted just now.
    accepted_probe: Option<CauseId>,
    state: DriverState,
}

/// The upstream does not have a usage, and no post of it can still come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct NotThere {
    /// Until then its post may begin.
    post_before: Timestamp,
    /// Whether the span says so, so that no other worker posts it.
    is_recorded: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum DriverState {
    /// The driver decides from the span that it knows.
    Deciding,
    /// The ledger has the entry of the usage in hand.
    EntryWritten,
    /// A failure must be recorded.
    Failed(Failure),
    /// The span must be read again: a change was rejected, or the span was read too long ago.
    Outdated,
    /// Too many lookups are under way: the span waits until this time.
    LookupPostponed(Timestamp),
    Done,
}

impl Driver {
    /// A driver for a span that was just read. `owned_since` is when this worker took the span over.
    pub fn new(span: Span, remembered: Remembered, owned_since: Timestamp) -> Self {
        let mut driver = Self {
            span,
            remembered,
            owned_since,
            not_there: None,
            accepted_probe: None,
            state: DriverState::Deciding,
        };
        driver.forget_settled();
        driver
    }

    pub fn span(&self) -> &Span {
        &self.span
    }

    /// Whether an outcome is not recorded yet: a usage was accepted, or a post has failed. It should be
    /// recorded before the worker stops. If it is not, nothing is lost.
    pub fn has_unrecorded_outcome(&self) -> bool {
        self.remembered.known.is_some()
            || matches!(
                self.state,
                DriverState::Failed(_) | DriverState::EntryWritten
            )
    }

    /// What the run is to keep in mind, where this drive ends and the store has done all that was asked.
    pub fn remembered(&self) -> &Remembered {
        &self.remembered
    }

    /// What the run is to keep in mind, where the store has failed and this drive ends.
    pub fn into_remembered(self) -> Remembered {
        Remembered {
            must_name: true,
            ..self.remembered
        }
    }

    pub fn action(&self, now: Timestamp, terms: &Terms) -> Action {
        let change = |change: Change| Action::Change(Box::new(change));
        match &self.state {
            DriverState::Deciding => self.decide(now, terms),
            DriverState::EntryWritten if self.is_again_in_hand() => {
                change(self.span.to_record_again(now, &terms.policy))
            }
            DriverState::EntryWritten => change(self.span.to_record(terms.run, now, &terms.policy)),
            DriverState::Failed(failure) => {
                change(
                    self.span
                        .to_fail(failure, terms.suspend_after, now, &terms.policy),
                )
            }
            DriverState::LookupPostponed(due_at) => change(self.span.to_postpone(*due_at)),
            DriverState::Outdated => Action::Reread,
            DriverState::Done => Action::Done,
        }
    }

    fn decide(&self, now: Timestamp, terms: &Terms) -> Action {
        let change = |change: Change| Action::Change(Box::new(change));
        if let Some(action) = self.settle_known(now, terms) {
            return action;
        }
        if let Some(cause) = self.accepted_probe {
            return Action::ResumeCause(cause);
        }
        let span = &self.span;
        if let Some(again) = span.processing.again.first() {
            return match &again.accepted {
                Some(acceptance) => self.write_entry(acceptance.clone(), terms),
                None => self.deliver(again.by, now, terms),
            };
        }
        if span.suspension().is_some() {
            return self.wait(SUSPENDED_DUE_AT);
        }
        match (
            next_step(span, now, &terms.policy),
            &span.processing.planned,
        ) {
            (Step::Execute, Some(planned)) if planned.interval.is_empty() => {
                change(span.to_record(terms.run, now, &terms.policy))
            }
            (Step::Execute, planned) => {
                let by = planned.as_ref().and_then(|planned| planned.by);
                self.deliver(by, now, terms)
            }
            (Step::Plan(interval), _) => {
                change(span.to_plan(interval, terms.run, now, &terms.policy))
            }
            (Step::Trim(to), _) => change(span.to_trim(to, now, &terms.policy)),
            (Step::Complete, _) if span.processing.complete => Action::Done,
            (Step::Complete, _) => change(span.to_complete()),
            (Step::Wait(until), _) => self.wait(until),
        }
    }

    /// Writes what is known wherever the interval stands: an acceptance into the ledger and then onto the span,
    /// a post without an answer as a flag.
    fn settle_known(&self, now: Timestamp, terms: &Terms) -> Option<Action> {
        let change = |change: Change| Action::Change(Box::new(change));
        let Known {
            delivery,
            acceptance,
            ..
        } = self.remembered.known.as_ref()?;
        let Some(acceptance) = acceptance else {
            return self.span.to_flag(delivery).map(change);
        };
        if self.span.plans(&delivery.usage_guid) {
            let delivery = self.planned_delivery()?;
            let entry = Entry::new(&self.span, &delivery, acceptance.clone(), &terms.policy);
            return Some(Action::WriteEntry(Box::new(entry)));
        }
        if self.is_first_of_again(delivery) {
            let is_accepted = self.span.processing.again[0].accepted.is_some();
            return (!is_accepted).then(|| change(self.span.to_accept(acceptance.clone())));
        }
        self.span.to_move(delivery, now).map(change)
    }

    /// Drops what is known once the span says it, or can no longer say it.
    fn forget_settled(&mut self) {
        let Some(known) = &self.remembered.known else {
            return;
        };
        let span = &self.span;
        let is_open = match &known.acceptance {
            None => span.to_flag(&known.delivery).is_some(),
            Some(_) => {
                span.plans(&known.delivery.usage_guid)
                    || self.is_first_of_again(&known.delivery)
                        && span.processing.again[0].accepted.is_none()
                    || span
                        .processing
                        .excluded
                        .iter()
                        .any(|it| it.covers(known.delivery.interval))
            }
        };
        if !is_open {
            self.remembered.known = None;
        }
    }

    fn is_first_of_again(&self, delivery: &Delivery) -> bool {
        let first = self.span.next_again();
        first.is_some_and(|first| first.usage_guid == delivery.usage_guid)
    }

    fn is_again_in_hand(&self) -> bool {
        let accepted = self.remembered.known.as_ref();
        let is_planned = accepted.is_some_and(|it| self.span.plans(&it.delivery.usage_guid));
        !is_planned && !self.span.processing.again.is_empty()
    }

    fn planned_delivery(&self) -> Option<Delivery> {
        let planned = self.span.processing.planned.as_ref()?;
        Some(Delivery {
            interval: planned.interval,
            usage_guid: planned.usage_guid.clone(),
            is_again: false,
        })
    }

    fn wait(&self, until: Timestamp) -> Action {
        if self.span.processing.due_at == until {
            return Action::Done;
        }
        Action::Change(Box::new(self.span.to_postpone(until)))
    }

    /// Names this run, then posts the usage in hand while the upstream surely remembers all earlier posts of
    /// it. After that looks it up first. A usage that is not found is posted once the span says so.
    fn deliver(&self, by: Option<RunId>, now: Timestamp, terms: &Terms) -> Action {
        let change = |change: Change| Action::Change(Box::new(change));
        if by != Some(terms.run) || self.remembered.must_name {
            return change(self.span.to_name(terms.run));
        }
        let contract = &terms.contract;
        let delivery = self.span.in_hand().expect("something is in hand");
        if contract.is_forever() {
            return Action::Post {
                delivery,
                begin_before: None,
            };
        }
        let safe_until = contract.safe_until(&self.span, now);
        if let Some(until) = safe_until.filter(|until| now < *until) {
            return Action::Post {
                delivery,
                begin_before: Some(until),
            };
        }
        match self.not_there.filter(|it| now < it.post_before) {
            Some(it) if it.is_recorded => Action::Post {
                delivery,
                begin_before: Some(it.post_before),
            },
            Some(_) => change(self.span.to_not_there(contract.posts_end_by(now))),
            None => Action::LookUp(delivery),
        }
    }

    fn write_entry(&self, acceptance: Acceptance, terms: &Terms) -> Action {
        let delivery = self.span.in_hand().expect("something is in hand");
        let entry = Entry::new(&self.span, &delivery, acceptance, &terms.policy);
        Action::WriteEntry(Box::new(entry))
    }

    /// Input: the upstream has accepted the usage in hand.
    pub fn on_accepted(&mut self, acceptance: Acceptance) {
        self.know(Some(acceptance), false);
    }

    fn know(&mut self, acceptance: Option<Acceptance>, is_found: bool) {
        self.remembered.known = self.span.in_hand().map(|delivery| Known {
            delivery,
            acceptance,
            is_found,
        });
    }

    /// Input: the upstream has the usage in hand from an earlier post. That says nothing about others: a probe
    /// does not resume the spans of its cause.
    pub fn on_found(&mut self, acceptance: Acceptance) {
        self.know(Some(acceptance), true);
    }

    /// Input: a lookup that was sent at `sent_at` has not found the usage in hand. It proves something only
    /// once all posts of the usage have settled; until then `failure` is recorded, and the usage is looked up
    /// again.
    pub fn on_not_found(&mut self, sent_at: Timestamp, failure: Failure, terms: &Terms) {
        let settled_at = terms.contract.settled_at(&self.span, self.owned_since);
        if sent_at < settled_at {
            self.on_failed(Failure {
                retry_at: settled_at,
                ..failure
            });
        } else {
            self.not_there = Some(NotThere {
                post_before: terms.contract.post_before(failure.at),
                is_recorded: false,
            });
        }
    }

    /// Input: too many lookups are under way. The usage is looked up at this time.
    pub fn on_lookup_postponed(&mut self, again_at: Timestamp) {
        self.state = DriverState::LookupPostponed(again_at);
    }

    /// Input: the ledger has the entry that was to be written.
    pub fn on_entry_written(&mut self) {
        self.state = DriverState::EntryWritten;
    }

    /// Input: the spans of the cause of an accepted probe are resumed.
    pub fn on_cause_resumed(&mut self) {
        self.accepted_probe = None;
    }

    /// Input: the usage in hand could not be delivered.
    pub fn on_failed(&mut self, failure: Failure) {
        self.not_there = None;
        if failure.unanswered {
            self.know(None, false);
        }
        self.state = DriverState::Failed(failure);
    }

    /// Input: the store has made this change.
    pub fn on_change_made(&mut self, change: Change) {
        let known = self.remembered.known.as_ref();
        let is_probe = change.kind == ChangeKind::Record && known.is_some_and(|it| !it.is_found);
        if let Some(cause) = self.span.processing.probe.filter(|_| is_probe) {
            self.accepted_probe = Some(cause);
        }
        // A usage is posted once for each lookup that did not find it.
        let not_there = self.not_there.take();
        if change.kind == ChangeKind::NotThere {
            self.not_there = not_there.map(|it| NotThere {
                is_recorded: true,
                ..it
            });
        }
        // A change that was made shuts out each earlier one that may still be under way.
        self.remembered.must_name = false;
        let is_last = matches!(change.kind, ChangeKind::Fail | ChangeKind::Postpone);
        self.state = if is_last {
            DriverState::Done
        } else {
            DriverState::Deciding
        };
        self.set_span(change.after);
    }

    /// Input: the store has rejected the change, because the span has changed since it was read. A refusal is
    /// dropped: the span stays due, and is found again. What is known is written wherever it stands now.
    pub fn on_change_rejected(&mut self) {
        let is_dropped =
            matches!(self.state, DriverState::Failed(_)) && self.remembered.known.is_none();
        self.state = if is_dropped {
            DriverState::Done
        } else {
            DriverState::Outdated
        };
    }

    /// Input: the span as it was read again; `None` if it was removed. The driver decides again.
    pub fn on_reread(&mut self, fresh: Option<Span>) {
        self.not_there = None;
        if let Some(fresh) = fresh {
            self.set_span(fresh);
            self.state = DriverState::Deciding;
        } else {
            self.remembered.known = None;
            self.state = DriverState::Done;
        }
    }

    /// Input: the span was read too long ago for a post, or it is too late for one without another lookup.
    /// It is read again, and the driver decides again.
    pub fn on_outdated(&mut self) {
        self.state = DriverState::Outdated;
    }

    fn set_span(&mut self, span: Span) {
        self.span = span;
        self.forget_settled();
    }
}

//! The changes of a span while it is sampled (sections 6.5 and 6.6 of the paper).
//!
//! A worker or an operator decides a [`Change`], and the store makes it if the span is unchanged
//! since it was read. [`Span::after`] defines its effect. The store in memory uses that function,
//! and the contract suite compares the database with it.

use crate::{
    Cause, Interval, Planned, Resent, SUSPENDED_DUE_AT, Skip, Span, Suspension, Timestamp,
    Uncounted, UncountedReason,
};

/// A change of a span by a worker or an operator. Starts and stops come from providers and are not
/// among them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// Plans an interval for a span that has none planned (section 6.5).
    Plan {
        planned: Planned,
        /// When the span needs a worker next.
        due_at: Timestamp,
    },
    /// Records that the upstream does not have the usage of the planned interval, before it is posted. No
    /// other worker may post it by an older read after that: the version grows.
    NotFound {
        /// By when the post that follows ends.
        posts_end_by: Timestamp,
    },
    /// Records that the planned interval was executed, and decides what follows (section 6.6). Its usage was
    /// accepted, or withheld because it takes back one that was set aside.
    Executed {
        next: Next,
        /// When the span needs a worker next.
        due_at: Timestamp,
    },
    /// Records that the planned interval was skipped, as the ledger says, and decides what follows.
    Skipped { next: Next, due_at: Timestamp },
    /// Records that the span is sampled to its end (section 6.5, last paragraph).
    Complete,
    /// Sets when a span with nothing due needs a worker next.
    Postpone { due_at: Timestamp },
    /// Records that the planned interval could not be delivered.
    Failed {
        /// Why, and when it is to be tried again.
        failure: Failure,
        attempts: u32,
        /// The refusals that count towards a suspension by now.
        refusals: u32,
        /// When the upstream first refused its usage, if it did.
        refused_at: Option<Timestamp>,
        /// The span is suspended: it is not tried again until it is resumed.
        suspension: Option<Suspension>,
    },
    /// Sets the `due_at` of a suspended span far ahead again, after a stop has made it due.
    KeepSuspended {
        /// Its suspension. If that has changed, the change is rejected.
        suspension: Suspension,
    },
    /// An operator resumes a suspended span: it is tried again, and its refusals are counted from zero.
    Resume {
        /// Its suspension. If that has changed, the change is rejected.
        suspension: Suspension,
        /// When the span needs a worker next.
        due_at: Timestamp,
    },
    /// An operator asks to skip the planned interval of a suspended span. A worker carries that out
    /// ([`Change::Skipped`]).
    RequestSkip {
        /// The usage to be skipped, and the operator's action.
        skip: Skip,
        /// The suspension of the span. If that has changed, the change is rejected.
        suspension: Suspension,
        /// When the span needs a worker next.
        due_at: Timestamp,
    },
    /// Counts a usage as billed that was skipped or set aside, once the upstream has accepted it all the same.
    /// The span may be complete.
    Resent {
        resent: Resent,
        interval: Interval,
        reason: UncountedReason,
    },
    /// Records that the upstream has set aside a usage that it had accepted, so that a late stop does not take
    /// it back.
    SetAside { interval: Interval },
}

/// The step that follows an execution, decided in the same change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Next {
    /// The next interval is due already: this is it.
    Planned(Planned),
    /// Nothing is due until later.
    Wait,
    /// The span is sampled to its end.
    Complete,
}

/// Why the usage of a planned interval could not be delivered.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a thing of its own that may be so"
)]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Failure {
    pub at: Timestamp,
    pub retry_at: Timestamp,
    /// The name that the upstream gives the error, or else words for the operator.
    pub error: String,
    /// The status of the upstream's answer, if there was one.
    pub status: Option<u16>,
    /// Whether the upstream refused the usage itself: the same answer is to be expected until somebody
    /// does something about it.
    pub blames_usage: bool,
    /// Whether it was a post that failed, not a lookup: then the post has ended.
    pub is_post: bool,
    /// Whether the post may have been carried out all the same: it had no answer.
    pub unanswered: bool,
    /// Whether the span is to be suspended for it ([`Span::is_suspended_by_refusal`]).
    pub suspends: bool,
}

/// Why the planned interval of a span could not be delivered the last time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LastError {
    pub at: Timestamp,
    /// The status of the upstream's answer, if there was one.
    pub status: Option<u16>,
    /// The name that the upstream gives the error, or else words for the operator.
    pub error: String,
}

impl Failure {
    /// The part of it that the span keeps.
    pub fn to_last_error(&self) -> LastError {
        LastError {
            at: self.at,
            status: self.status,
            error: self.error.clone(),
        }
    }

    /// The cause under which the span is to be suspended, if it is.
    pub fn cause(&self, span: &Span) -> Option<Cause> {
        self.suspends
            .then(|| Cause::of(&span.target, &self.to_last_error()))
    }
}

/// The result of a conditional change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// It was made: the span is [`Span::after`] it.
    Made,
    /// It was not made: another worker, a stop or an operator has changed the span since it was read.
    Rejected,
}

impl Change {
    pub fn failed(span: &Span, failure: Failure) -> Self {
        let processing = &span.processing;
        let refused_at = failure.blames_usage.then_some(failure.at);
        let suspension = failure.cause(span).map(|cause| Suspension {
            cause: cause.id(),
            since: failure.at,
        });
        Self::Failed {
            attempts: processing.attempts.saturating_add(1),
            refusals: processing
                .refusals
                .saturating_add(u32::from(failure.blames_usage)),
            refused_at: processing.refused_at.or(refused_at),
            suspension,
            failure,
        }
    }

    /// When the span needs a worker next; `None` if the change does not set it.
    pub fn due_at(&self) -> Option<Timestamp> {
        match self {
            Self::Plan { due_at, .. }
            | Self::Executed { due_at, .. }
            | Self::Skipped { due_at, .. }
            | Self::Resume { due_at, .. }
            | Self::RequestSkip { due_at, .. }
            | Self::Postpone { due_at } => Some(*due_at),
            Self::Failed {
                suspension: Some(_),
                ..
            }
            | Self::KeepSuspended { .. } => Some(SUSPENDED_DUE_AT),
            Self::Failed { failure, .. } => Some(failure.retry_at),
            Self::NotFound { .. }
            | Self::Complete
            | Self::Resent { .. }
            | Self::SetAside { .. } => None,
        }
    }

    /// Whether nothing is left to do for the span after this change, for now.
    pub fn is_last(&self) -> bool {
        match self {
            Self::Plan { .. } | Self::NotFound { .. } => false,
            Self::Executed { next, .. } | Self::Skipped { next, .. } => {
                !matches!(next, Next::Planned(_))
            }
            Self::Complete
            | Self::Postpone { .. }
            | Self::Failed { .. }
            | Self::KeepSuspended { .. }
            | Self::Resume { .. }
            | Self::RequestSkip { .. }
            | Self::Resent { .. }
            | Self::SetAside { .. } => true,
        }
    }

    /// The suspension that the span must have for the change to be made, if it must have one.
    pub fn required_suspension(&self) -> Option<Suspension> {
        match self {
            Self::KeepSuspended { suspension }
            | Self::Resume { suspension, .. }
            | Self::RequestSkip { suspension, .. } => Some(*suspension),
            _ => None,
        }
    }

    /// Whether the span is still suspended as the change requires: a span that was resumed meanwhile
    /// must not be put off again. True for a change that requires no suspension.
    pub fn suspension_holds(&self, current: &Span) -> bool {
        let required = self.required_suspension();
        required.is_none() || required == current.processing.suspended
    }

    /// Whether the change may be made to a span that is complete.
    pub fn is_of_complete(&self) -> bool {
        matches!(self, Self::Resent { .. })
    }

    /// Whether the change, which was decided for `read`, may still be made to the `current` span.
    pub fn is_allowed(&self, read: &Span, current: &Span) -> bool {
        read.is_unchanged(current)
            && (self.is_of_complete() || !current.processing.complete)
            && self.suspension_holds(current)
    }
}

impl Span {
    /// The span after a change. Besides stops, only probes and the end of a suspension by cause change
    /// a span otherwise ([`Span::resumed`]).
    ///
    /// # Panics
    /// If an execution is recorded and nothing is planned.
    #[must_use]
    pub fn after(&self, change: &Change) -> Self {
        let mut span = self.clone();
        let processing = &mut span.processing;
        match change {
            Change::Plan { planned, .. } => {
                processing.version += 1;
                span.plan(planned);
            }
            Change::NotFound { posts_end_by } => {
                // The entry of an earlier post may have this version. The totals count it, too.
                processing
                    .totals
                    .first_version
                    .get_or_insert(processing.version);
                processing.version += 1;
                processing.unanswered = false;
                if let Some(planned) = &mut processing.planned {
                    planned.posts_end_by = Some(*posts_end_by);
                }
            }
            Change::Executed { next, .. } => {
                span = self.executed();
                span.follow(next);
            }
            Change::Skipped { next, .. } => {
                span = self.skipped();
                span.follow(next);
            }
            Change::Complete => {
                processing.complete = true;
                processing.version += 1;
            }
            Change::Postpone { .. } | Change::KeepSuspended { .. } => {}
            Change::Resume { .. } => span = self.resumed(0, false),
            Change::Resent {
                resent,
                interval,
                reason,
            } => span = self.with_resent(resent, *interval, *reason),
            Change::SetAside { interval } => span.add_uncounted(Uncounted {
                interval: *interval,
                reason: UncountedReason::SetAside,
            }),
            Change::RequestSkip { skip, .. } => {
                span = self.resumed(0, false);
                span.processing.skip = Some(skip.clone());
            }
            Change::Failed {
                failure,
                attempts,
                refusals,
                refused_at,
                suspension,
            } => {
                processing.attempts = *attempts;
                processing.refusals = *refusals;
                processing.refused_at = *refused_at;
                processing.unanswered |= failure.unanswered;
                processing.last_error = Some(failure.to_last_error());
                // Since the lookup only this worker may have posted, and its post has ended.
                if let Some(planned) = processing.planned.as_mut().filter(|_| failure.is_post) {
                    planned.posts_end_by = planned.posts_end_by.map(|_| failure.at);
                }
                if suspension.is_some() {
                    processing.suspended = *suspension;
                    processing.probe = None;
                }
            }
        }
        span
    }

    fn follow(&mut self, next: &Next) {
        match next {
            Next::Planned(planned) => self.plan(planned),
            Next::Wait => {}
            Next::Complete => self.processing.complete = true,
        }
    }

    /// Whether the span that was read is `current` in all that a change is decided by: the version, the
    /// end, what is to be skipped, the last resend that the totals count, what does not count upstream, and
    /// whether a post had no answer. Only a worker that drives the span changes the version, but a change
    /// must be decided with knowledge of the others, too.
    pub fn is_unchanged(&self, current: &Self) -> bool {
        current.processing.version == self.processing.version
            && current.end == self.end
            && current.processing.skip == self.processing.skip
            && current.processing.resent == self.processing.resent
            && current.processing.uncounted == self.processing.uncounted
            && current.processing.unanswered == self.processing.unanswered
    }
}

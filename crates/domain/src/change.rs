//! The changes of a span while it is sampled (sections 6.5 and 6.6 of the paper).
//!
//! A worker or an operator decides a [`Change`] by the span that was read: the span as it is to be. The store
//! makes the change if the version is still the one that was read, and stores what differs in `processing`.
//! So each change is one statement with the conditions `_id`, `processing.key` and `processing.version`.

use crate::excluded::{EXCLUDED_MAX, add, take};
use crate::{
    Acceptance, Again, Cause, Delivery, Excluded, FailureState, Interval, Planned, Policy, RunId,
    SUSPENDED_DUE_AT, Span, Step, Suspension, Timestamp, next_step, usage_guid,
};

/// How many intervals a span that is behind gets ahead before its `due_at` follows.
const INTERVALS_IN_PLACE: i64 = 8;

/// A change of a span by a worker or an operator. Starts and stops come from providers and are not among
/// them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Change {
    pub kind: ChangeKind,
    /// The span once it is made.
    pub after: Span,
}

/// What a change is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// Plans an interval (section 6.5).
    Plan,
    /// Names the run that may post what is in hand.
    Name,
    /// Records that the upstream does not have the usage in hand, before it is posted.
    NotThere,
    /// Records that the upstream has accepted a usage of `again`, before that has its entry.
    Accept,
    /// Records that the planned interval was executed, and plans what follows (section 6.6).
    Record,
    /// Records the same of a usage of `again`.
    RecordAgain,
    /// Records that the usage in hand could not be delivered.
    Fail,
    /// Records that a post had no answer, wherever its interval stands by now.
    Flag,
    /// Moves an interval that was excluded to `again`, because the upstream has accepted it all the same.
    Move,
    /// A late stop over what is excluded: sampling goes back, and nothing is posted.
    Trim,
    /// Records that the span is sampled to its end (section 6.5, last paragraph).
    Complete,
    /// Sets when a span with nothing due needs a worker next.
    Postpone,
    /// An operator resumes a suspended span.
    Resume,
    /// An operator skips what the upstream refuses.
    Skip,
    /// An operator sends again what was excluded.
    Resend,
}

/// The result of a conditional change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    Made,
    /// It was not made: another worker, a stop or an operator has changed the span since it was read.
    Rejected,
}

/// Why a usage could not be delivered.
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
}

impl Span {
    fn changed(&self, kind: ChangeKind, make: impl FnOnce(&mut Self)) -> Change {
        let mut after = self.clone();
        after.processing.version += 1;
        make(&mut after);
        Change { kind, after }
    }

    /// When the span needs a worker next, by its state alone. What `again` holds is due at once.
    fn next_due_at(&self, now: Timestamp, policy: &Policy) -> Timestamp {
        if !self.processing.again.is_empty() {
            return now;
        }
        if self.suspension().is_some() {
            return SUSPENDED_DUE_AT;
        }
        next_step(self, now, policy).due_at(now, self)
    }

    /// Sets when the span needs a worker next. A span that stays due keeps its place in the index for some intervals:
    /// the server takes half as long again for a change that moves it.
    fn move_due_at(&mut self, now: Timestamp, policy: &Policy) {
        let (before, due_at) = (self.processing.due_at, self.next_due_at(now, policy));
        let planned = self.processing.planned.as_ref();
        let near = planned.map_or(0, |it| it.interval.duration().abs() * INTERVALS_IN_PLACE);
        let is_near = due_at.since(before).abs() < near;
        if before > now || due_at > now || !is_near {
            self.processing.due_at = due_at;
        }
    }

    /// Plans this interval. Who plans may post.
    pub(crate) fn to_plan(
        &self,
        interval: Interval,
        run: RunId,
        now: Timestamp,
        policy: &Policy,
    ) -> Change {
        self.changed(ChangeKind::Plan, |span| {
            span.plan(interval, run, now, policy);
            span.move_due_at(now, policy);
        })
    }

    fn plan(&mut self, interval: Interval, run: RunId, now: Timestamp, policy: &Policy) {
        if interval.start < interval.end {
            self.cut_by(policy.granularities.of(&self.target), interval.start);
        }
        let usage_guid = usage_guid(self, interval);
        self.processing.failure = None;
        self.processing.planned = Some(Planned {
            interval,
            usage_guid,
            planned_at: now,
            by: Some(run),
            unanswered: false,
            posts_end_by: None,
        });
    }

    /// Names the run that may post what is in hand. If that replaces another run, that one may have posted.
    pub(crate) fn to_name(&self, run: RunId) -> Change {
        self.changed(ChangeKind::Name, |span| {
            span.split_again();
            let processing = &mut span.processing;
            let (by, unanswered) = match (processing.again.first_mut(), &mut processing.planned) {
                (Some(again), _) => (&mut again.by, &mut again.range.unanswered),
                (None, Some(planned)) => (&mut planned.by, &mut planned.unanswered),
                (None, None) => return,
            };
            *unanswered |= by.is_some_and(|by| by != run);
            *by = Some(run);
        })
    }

    pub(crate) fn to_not_there(&self, posts_end_by: Timestamp) -> Change {
        self.changed(ChangeKind::NotThere, |span| {
            *span.posts_end_by() = Some(posts_end_by);
        })
    }

    /// The latest end of posts of what is in hand.
    fn posts_end_by(&mut self) -> &mut Option<Timestamp> {
        let processing = &mut self.processing;
        match (processing.again.first_mut(), &mut processing.planned) {
            (Some(again), _) => &mut again.posts_end_by,
            (None, Some(planned)) => &mut planned.posts_end_by,
            (None, None) => unreachable!("something is in hand"),
        }
    }

    pub(crate) fn to_accept(&self, acceptance: Acceptance) -> Change {
        self.changed(ChangeKind::Accept, |span| {
            span.split_again();
            if let Some(again) = span.processing.again.first_mut() {
                again.accepted = Some(acceptance);
            }
        })
    }

    /// Records that the planned interval was executed, and plans the next one if it is due.
    ///
    /// # Panics
    /// Where nothing is planned: nothing can have been executed then.
    pub(crate) fn to_record(&self, run: RunId, now: Timestamp, policy: &Policy) -> Change {
        self.changed(ChangeKind::Record, |span| {
            let planned = span.processing.planned.take();
            let planned = planned.expect("only what is planned is executed");
            span.processing.failure = None;
            span.processing.probe = None;
            span.processing.last = planned.interval;
            if span.processing.again.is_empty() {
                match next_step(span, now, policy) {
                    Step::Plan(interval) => span.plan(interval, run, now, policy),
                    Step::Complete => span.processing.complete = true,
                    // The next change trims.
                    Step::Trim(_) | Step::Wait(_) | Step::Execute => {}
                }
            }
            span.move_due_at(now, policy);
        })
    }

    /// Records that the usage of `again` in hand was executed: what is left is its way back, or nothing.
    pub(crate) fn to_record_again(&self, now: Timestamp, policy: &Policy) -> Change {
        self.changed(ChangeKind::RecordAgain, |span| {
            let first = span.processing.again.remove(0);
            let has_way_back = first.range.way_back().is_some_and(|it| !it.is_empty());
            if has_way_back && !first.is_way_back {
                let range = Excluded {
                    unanswered: false,
                    ..first.range
                };
                let way_back = Again {
                    is_way_back: true,
                    ..Again::new(range, first.at)
                };
                span.processing.again.insert(0, way_back);
            }
            span.processing.due_at = span.next_due_at(now, policy);
        })
    }

    /// Records that the usage in hand could not be delivered. `suspend_after` refusals suspend the span; one
    /// refusal puts a usage of `again` back.
    pub(crate) fn to_fail(
        &self,
        failure: &Failure,
        suspend_after: u32,
        now: Timestamp,
        policy: &Policy,
    ) -> Change {
        self.changed(ChangeKind::Fail, |span| {
            if failure.is_post {
                let ended = span.posts_end_by();
                *ended = ended.map(|_| failure.at);
            }
            if span.processing.again.is_empty() {
                span.fail_planned(failure, suspend_after);
            } else {
                span.fail_again(failure, now, policy);
            }
        })
    }

    fn fail_planned(&mut self, failure: &Failure, suspend_after: u32) {
        let target = &self.target;
        let processing = &mut self.processing;
        let before = processing.failure.take();
        let (attempts, refusals) = before.map_or((0, 0), |it| (it.attempts, it.refusals));
        let refusals = refusals.saturating_add(u32::from(failure.blames_usage));
        let suspends = failure.blames_usage && refusals >= suspend_after;
        let suspension = suspends.then(|| Suspension {
            cause: Cause::of(target, failure.status, &failure.error).id(),
            since: failure.at,
        });
        if let Some(planned) = &mut processing.planned {
            planned.unanswered |= failure.unanswered;
            if suspends {
                planned.by = None;
            }
        }
        if suspends {
            processing.probe = None;
        }
        processing.due_at = if suspends {
            SUSPENDED_DUE_AT
        } else {
            failure.retry_at
        };
        processing.failure = Some(FailureState {
            attempts: attempts.saturating_add(1),
            refusals,
            at: failure.at,
            status: failure.status,
            error: failure.error.clone(),
            suspension,
        });
    }

    fn fail_again(&mut self, failure: &Failure, now: Timestamp, policy: &Policy) {
        let first = &mut self.processing.again[0];
        first.range.unanswered |= failure.unanswered;
        if !failure.blames_usage {
            first.attempts = first.attempts.saturating_add(1);
            self.processing.due_at = failure.retry_at;
            return;
        }
        let mut first = self.processing.again.remove(0);
        first.range.error = Some(failure.error.clone());
        self.put_back(first);
        if self.processing.excluded.len() > EXCLUDED_MAX {
            for again in std::mem::take(&mut self.processing.again) {
                self.put_back(again);
            }
        }
        self.processing.due_at = self.next_due_at(now, policy);
    }

    /// Excludes what is left of a range that is sent again. Where its usage is recorded, its way back alone does not
    /// count.
    fn put_back(&mut self, again: Again) {
        let way_back = again.way_back_left();
        let mut range = again.range;
        if let Some(way_back) = way_back {
            range = Excluded {
                interval: way_back,
                back_to: None,
                usage_guid: None,
                ..range
            };
        }
        add(&mut self.processing.excluded, range);
    }

    /// Records that a post had no answer. None where the span says so already, or where the interval is
    /// recorded.
    pub(crate) fn to_flag(&self, delivery: &Delivery) -> Option<Change> {
        let processing = &self.processing;
        if let Some(planned) = &processing.planned
            && planned.usage_guid == delivery.usage_guid
        {
            return (!planned.unanswered).then(|| {
                self.changed(ChangeKind::Flag, |span| {
                    if let Some(planned) = &mut span.processing.planned {
                        planned.unanswered = true;
                    }
                })
            });
        }
        let covers = |range: &Excluded| range.covers(delivery.interval);
        if let Some(range) = processing.excluded.iter().find(|it| covers(it)) {
            return (!range.unanswered).then(|| {
                self.changed(ChangeKind::Flag, |span| {
                    let excluded = &mut span.processing.excluded;
                    let taken = take(excluded, delivery.interval);
                    if let Some(range) = taken {
                        let unanswered = true;
                        add(
                            excluded,
                            Excluded {
                                unanswered,
                                ..range
                            },
                        );
                    }
                })
            });
        }
        let place = processing
            .again
            .iter()
            .position(|it| it.has_left(delivery))?;
        (!processing.again[place].range.unanswered).then(|| {
            self.changed(ChangeKind::Flag, |span| {
                span.processing.again[place].range.unanswered = true;
            })
        })
    }

    /// Moves an interval that was excluded to `again`; none where it is not excluded.
    pub(crate) fn to_move(&self, delivery: &Delivery, now: Timestamp) -> Option<Change> {
        let covered = self
            .processing
            .excluded
            .iter()
            .any(|it| it.covers(delivery.interval));
        covered.then(|| {
            self.changed(ChangeKind::Move, |span| {
                let processing = &mut span.processing;
                let taken = take(&mut processing.excluded, delivery.interval);
                processing
                    .again
                    .extend(taken.map(|range| Again::new(range, now)));
                processing.complete = false;
                processing.due_at = now;
            })
        })
    }

    /// Goes back to `to` over the excluded range that sampling has reached; nothing is posted.
    pub(crate) fn to_trim(&self, to: Timestamp, now: Timestamp, policy: &Policy) -> Change {
        self.changed(ChangeKind::Trim, |span| {
            let sampled_to = span.sampled_to();
            let mut ranges = span.processing.excluded.iter_mut();
            if let Some(range) = ranges.find(|it| it.is_trimmed_from(sampled_to)) {
                range.back_to = Some(to);
            }
            span.processing.last = Interval {
                start: sampled_to,
                end: to,
            };
            span.processing.due_at = span.next_due_at(now, policy);
        })
    }

    pub(crate) fn to_complete(&self) -> Change {
        self.changed(ChangeKind::Complete, |span| span.processing.complete = true)
    }

    pub(crate) fn to_postpone(&self, due_at: Timestamp) -> Change {
        self.changed(ChangeKind::Postpone, |span| {
            span.processing.due_at = due_at;
        })
    }

    /// An operator resumes a suspended span: it is tried again, and its refusals are counted from zero. None
    /// where it is not suspended.
    pub fn to_resume(&self, now: Timestamp) -> Option<Change> {
        self.suspension()?;
        Some(self.changed(ChangeKind::Resume, |span| span.resume(0, now)))
    }

    /// The span after it was resumed with its cause: `refusals` refusals count already. With `is_probe`, an
    /// acceptance resumes all spans of its cause.
    #[must_use]
    pub fn resumed(&self, refusals: u32, is_probe: bool, now: Timestamp) -> Self {
        let cause = self.suspension().map(|it| it.cause);
        let change = self.changed(ChangeKind::Resume, |span| {
            span.resume(refusals, now);
            span.processing.probe = cause.filter(|_| is_probe);
        });
        change.after
    }

    fn resume(&mut self, refusals: u32, now: Timestamp) {
        if let Some(failure) = &mut self.processing.failure {
            failure.suspension = None;
            failure.refusals = refusals;
        }
        self.processing.due_at = now;
    }
}

impl Again {
    /// Whether the usage of `delivery` is one of it, and not recorded yet.
    fn has_left(&self, delivery: &Delivery) -> bool {
        let is_way_back = self.range.way_back() == Some(delivery.interval);
        is_way_back || !self.is_way_back && self.range.covers(delivery.interval)
    }
}

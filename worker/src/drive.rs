//! Drives one span through its due intervals: carries out the actions of the
//! [`Driver`](sampler_domain::Driver), which is the protocol.

use std::sync::atomic::Ordering;
use std::time::Duration;

use sampler_domain::partition::partition_of;
use sampler_domain::{
    Acceptance, Action, Change, Changed, Driver, Entry, EntryState, Failure, Key, Next, Planned,
    READ_VALID_FOR, Span, Target, Timestamp, Usage,
};
use sampler_settings::millis;
use sampler_store::{EntryKey, Finished, StoreError};
use sampler_upstream::{Answer, Details, Load, Posted};
use tokio::time::Instant;
use tracing::{Instrument, error, warn};

use crate::turn::{Turn, Yield};
use crate::{Worker, error_chain, trace};

/// The outcome of an attempt to deliver a usage.
enum Delivery {
    /// The upstream has it.
    Accepted(Acceptance),
    /// It could not be delivered.
    Failed(Failure),
    /// Nothing was posted, because the worker shuts down or sampling pauses. Nothing is to be noted.
    Held,
    /// The read of the span is too old to begin a post.
    Outdated,
}

pub(crate) enum PostOutcome {
    /// The upstream answered, or should have.
    Answered(Answer, Details),
    /// Nothing was posted, because the worker shuts down or sampling pauses.
    Held,
    /// Nothing was posted: what it is about was read too long ago.
    Outdated,
}

/// When something was read, by the clock that no step moves, and by the one that continues while the
/// machine sleeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadAt {
    at: Instant,
    wall: Timestamp,
}

impl ReadAt {
    /// Begins now.
    pub(crate) fn now(worker: &Worker) -> Self {
        Self {
            at: Instant::now(),
            wall: worker.parts.clock.now(),
        }
    }

    /// Whether it was too long ago to go by it.
    fn is_outdated(self, worker: &Worker) -> bool {
        millis(self.at.elapsed()) >= READ_VALID_FOR
            || worker.parts.clock.now().since(self.wall).abs() >= READ_VALID_FOR
    }
}

/// How long a post may still begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PostDeadline {
    /// When the state was read that the post follows from: a usage that was skipped since must not
    /// be posted.
    pub(crate) read_at: ReadAt,
    /// From then on it must be looked up first.
    pub(crate) begin_before: Timestamp,
}

impl PostDeadline {
    fn is_over(&self, worker: &Worker) -> bool {
        self.read_at.is_outdated(worker) || worker.now() >= self.begin_before
    }
}

/// Whether a span keeps its permit after a change.
#[derive(PartialEq)]
enum TurnState {
    Continues,
    Yielded,
}

impl Worker {
    /// Drives a span until nothing is due, its turn is over, something fails or another worker
    /// drives it. `read_at` is when it was read. Each failure is logged here, and nowhere else.
    ///
    /// Returns how long the span has to pause, if the store failed on it.
    pub(crate) async fn drive(&self, span: Span, read_at: ReadAt) -> Option<Duration> {
        let (id, partition) = (span.id.clone(), partition_of(&span.target));
        let driver = Driver::new(span, self.promises.contract, self.owned_since(partition));
        let carried_out = self.carry_out(driver, read_at);
        match carried_out.instrument(trace::of_turn(&id)).await {
            Ok(()) => {
                self.store_failures.forget(&id);
                None
            }
            Err(error) => {
                // The span stays as it is, due, and is found again.
                let pause = self.store_failures.note(&id, self.parts.random.fraction());
                let pause_ms = millis(pause);
                warn!(code = "span.store_failed", span.id = %id, pause_ms, error = error_chain(&error),
                    "the store failed on a span");
                Some(pause)
            }
        }
    }

    /// Carries out the driver's actions until it is done or the turn is over.
    async fn carry_out(&self, mut driver: Driver, mut read_at: ReadAt) -> Result<(), StoreError> {
        let mut turn = self.turn();
        // After a shutdown, the loop still notes the last answer of the upstream.
        while driver.has_unnoted_outcome() || self.may_begin() {
            match driver.next(self.now(), &self.policy) {
                Action::Change(change) => {
                    let step = trace::of_change(&change);
                    let asked = ReadAt::now(self);
                    let changing = self.change(&mut driver, change, &mut turn);
                    if changing.instrument(step).await? == TurnState::Yielded {
                        break;
                    }
                    read_at = asked;
                }
                Action::Find(planned) => self.look_up(&mut driver, &planned).await,
                Action::Post {
                    planned,
                    begin_before,
                } => {
                    let deadline = PostDeadline {
                        read_at,
                        begin_before,
                    };
                    match self.deliver(driver.span(), &planned, deadline).await {
                        Delivery::Accepted(acceptance) => driver.on_accepted(acceptance),
                        Delivery::Failed(failure) => driver.on_failed(failure),
                        Delivery::Held => break,
                        Delivery::Outdated => driver.on_outdated(),
                    }
                }
                Action::Register(cause) => {
                    self.register_cause(&cause).await?;
                    driver.on_registered();
                }
                Action::BeginResuming(cause) => {
                    self.begin_resuming(cause).await?;
                    driver.on_resuming_begun();
                }
                Action::WriteEntry(entry) => {
                    let step = trace::of_entry();
                    let written = self.write_entry(driver.span(), *entry).instrument(step);
                    driver.on_entry_written(written.await?);
                }
                Action::Reread => {
                    let span = driver.span();
                    read_at = ReadAt::now(self);
                    let found = self.parts.work.find(&span.id, &span.target).await?;
                    driver.on_reread(found);
                }
                Action::Done => break,
            }
        }
        Ok(())
    }

    /// Whether something new may be begun.
    fn may_begin(&self) -> bool {
        !self.stop.is_cancelled() && self.time.is_known() && !self.is_paused()
    }

    /// Writes the entry of a usage that the upstream has into the ledger. Only then its execution is noted:
    /// whatever dies in between, each noted execution has its entry.
    ///
    /// Where an operator has skipped the usage meanwhile, the ledger says so first, and the span notes
    /// that. The entry is marked, so that later both say that the upstream has the usage
    /// ([`Self::keep_resending`]).
    async fn write_entry(&self, span: &Span, entry: Entry) -> Result<EntryState, StoreError> {
        let lifetime = self.entry_lifetime(&entry.target);
        let usage_guid = entry.usage_guid.clone();
        let acceptance = entry.accepted_at.map(|at| Acceptance {
            at,
            status: entry.status,
            location: entry.location.clone(),
        });
        let entry = self.to_confirm(entry);
        let kept = self.parts.ledger.write_entry(entry, lifetime).await;
        self.parts.processing_progress.report();
        let kept = kept?;
        if let Some(acceptance) = acceptance.filter(|_| self.counts_after(kept)) {
            if kept == EntryState::Skipped {
                error!(code = "delivery.after_skip", span.id = %span.id, usage = usage_guid,
                    "the upstream accepted a usage that an operator had skipped: it counts as billed");
            }
            let key = EntryKey {
                usage_guid,
                span: span.id.clone(),
                target: span.target.clone(),
            };
            self.note_accepted(&key, kept, acceptance).await?;
        }
        Ok(kept)
    }

    /// How long the ledger keeps the entries of a target, ms.
    pub(crate) fn entry_lifetime(&self, target: &Target) -> i64 {
        let granularity = self.policy.granularities.of(target);
        millis(self.settings.ledger.retention.of(granularity))
    }

    /// Whether an acceptance overrides an entry that says the usage does not count. Where usages are found by
    /// their ids, it does: if the upstream took the post for a repeat and counts nothing, the confirmation
    /// finds that out. Abacus passes over a repeat of what it has set aside, and says nothing about it.
    fn counts_after(&self, from: EntryState) -> bool {
        from == EntryState::Skipped
            || from == EntryState::SetAside && self.promises.finds.is_by_id()
    }

    /// Lets the entries of a complete span expire. If that fails, or the worker dies before, the
    /// clean-up does it before it removes the span.
    async fn expire_entries(&self, span: &Span) {
        let finished = Finished {
            id: span.id.clone(),
            key: Some(Key::of(&span.target)),
        };
        if let Err(error) = self.parts.ledger.expire(&[finished]).await {
            warn!(code = "ledger.expiry_failed", span.id = %span.id, error = error_chain(&error),
                "the entries of a complete span have no expiry yet");
        }
        self.parts.processing_progress.report();
    }

    /// Makes a change in the store.
    async fn change(
        &self,
        driver: &mut Driver,
        mut change: Change,
        turn: &mut Turn,
    ) -> Result<TurnState, StoreError> {
        let now = self.now();
        let yielded = self.apply_yield(driver.span(), &mut change, turn, now);
        let changed = self.parts.work.change(driver.span(), &change, now).await?;
        self.parts.processing_progress.report();
        match changed {
            Changed::Made => {
                if matches!(change, Change::Executed { .. }) {
                    self.rate.note_done(now);
                }
                driver.on_change_made(&change);
            }
            Changed::Rejected => driver.on_change_rejected(),
        }
        if changed == Changed::Made && driver.span().processing.complete {
            self.expire_entries(driver.span()).await;
        }
        Ok(match yielded.filter(|_| changed == Changed::Made) {
            Some(yielded) => {
                if yielded.is_urgent {
                    self.urgent_has_yielded.store(true, Ordering::Relaxed);
                }
                TurnState::Yielded
            }
            None => TurnState::Continues,
        })
    }

    /// If the turn of a span is over, the change that notes its last execution sets a `due_at` after
    /// all spans that have waited longer.
    fn apply_yield(
        &self,
        span: &Span,
        change: &mut Change,
        turn: &mut Turn,
        now: Timestamp,
    ) -> Option<Yield> {
        let (Change::Executed {
            next: Next::Planned(_),
            due_at,
        }
        | Change::Skipped {
            next: Next::Planned(_),
            due_at,
        }) = change
        else {
            return None;
        };
        let yielded = self.yields_after(turn, &span.executed(), now)?;
        *due_at = yielded.due_at;
        Some(yielded)
    }

    /// Posts the usage of a planned interval. After a 429 it waits and posts again.
    async fn deliver(&self, span: &Span, planned: &Planned, deadline: PostDeadline) -> Delivery {
        let usage = Usage::new(span, planned);
        loop {
            let (answer, details) = match self.post_once(&usage, &deadline).await {
                PostOutcome::Answered(answer, details) => (answer, details),
                PostOutcome::Held => return Delivery::Held,
                PostOutcome::Outdated => return Delivery::Outdated,
            };
            match answer {
                Answer::Accepted => return Delivery::Accepted(self.acceptance(details)),
                Answer::Wait { after } => {
                    warn!(
                        code = "delivery.throttled",
                        wait_ms = millis(after),
                        "the upstream asks to wait"
                    );
                    self.post_limit.pause_for(after);
                }
                Answer::TryAgain { after, error } => {
                    let unanswered = is_unanswered(&details);
                    let wait = after.map_or(0, |wait| i64::try_from(wait.as_millis()).unwrap_or(0));
                    let retry_at = self.retry_at(span, wait);
                    warn!(code = "delivery.failed", span.id = %span.id,
                        usage = %planned.usage_guid, %retry_at,
                        attempts = span.processing.attempts + 1, error,
                        "a usage could not be delivered");
                    return Delivery::Failed(Failure {
                        unanswered,
                        ..self.failure(retry_at, error, details)
                    });
                }
                Answer::Refused { error } => {
                    let retry_at = self.retry_at(span, 0);
                    error!(code = "delivery.refused", span.id = %span.id,
                        usage = %planned.usage_guid, %retry_at,
                        attempts = span.processing.attempts + 1, error,
                        "the upstream refused a usage");
                    let blames_usage = blames_usage(&details);
                    return Delivery::Failed(Failure {
                        blames_usage,
                        suspends: blames_usage
                            && span.is_suspended_by_refusal(self.suspend_after()),
                        ..self.failure(retry_at, error, details)
                    });
                }
            }
        }
    }

    /// Posts a usage once, when there is a permit for that, unless its deadline is over by then.
    pub(crate) async fn post_once(&self, usage: &Usage, deadline: &PostDeadline) -> PostOutcome {
        let permit = self
            .post_limit
            .acquire(&*self.parts.processing_progress, &self.stop);
        let Some(permit) = permit.await else {
            return PostOutcome::Held;
        };
        if self.is_paused() {
            self.post_limit.give_back(permit);
            return PostOutcome::Held;
        }
        if deadline.is_over(self) {
            self.post_limit.give_back(permit);
            return PostOutcome::Outdated;
        }
        let asked = self.time.request_sent();
        let began = Instant::now();
        let post = trace::of_post(usage);
        let posting = self.parts.upstream.post(usage, self.now());
        let posted = posting.instrument(post.clone()).await;
        let Posted {
            answer,
            dated,
            details,
        } = posted;
        self.time.note_answer(asked, dated);
        self.metrics.note(began, &answer);
        post.record("http.response.status_code", details.status.map(i64::from));
        self.parts.processing_progress.report();
        self.post_limit.release(permit, load(&answer));
        PostOutcome::Answered(answer, details)
    }

    /// The upstream's answer that it has a usage.
    pub(crate) fn acceptance(&self, details: Details) -> Acceptance {
        Acceptance {
            at: self.now(),
            status: details.status,
            location: details.location,
        }
    }

    /// When to try again: later each time, and after `at_least` ms. The limit of retries is never
    /// exceeded, because it is what fits into the slack of a closing month.
    pub(crate) fn retry_at(&self, span: &Span, at_least: i64) -> Timestamp {
        let fraction = self.parts.random.fraction();
        let backoff = self.settings.abacus.backoff();
        let wait = backoff.wait(span.processing.attempts + 1, fraction);
        self.now().plus(wait.max(at_least.min(backoff.limit)))
    }

    /// The failure as it is kept: with the upstream's name of the error, if there is one.
    pub(crate) fn failure(&self, retry_at: Timestamp, error: String, details: Details) -> Failure {
        Failure {
            at: self.now(),
            retry_at,
            error: details.error_name.unwrap_or(error),
            status: details.status,
            blames_usage: false,
            is_post: true,
            unanswered: false,
            suspends: false,
        }
    }
}

/// The load that an answer shows. The upstream can refuse a usage without being overloaded.
fn load(answer: &Answer) -> Load {
    match answer {
        Answer::Accepted | Answer::Refused { .. } => Load::Sustained,
        Answer::Wait { .. } | Answer::TryAgain { .. } => Load::Overload,
    }
}

/// Whether a refusal is about the usage. Gateways give some of these answers while the upstream is away;
/// they name no error of the upstream's.
pub(crate) fn blames_usage(details: &Details) -> bool {
    !matches!(details.status, Some(404 | 408 | 421 | 425)) || details.error_name.is_some()
}

/// Whether the upstream may have taken a usage although the post failed: the request was sent, and no answer
/// of the upstream's came back. Gateways answer 500, 502 and 504 where they lose its answer.
fn is_unanswered(details: &Details) -> bool {
    let is_lost =
        details.error_name.is_none() && matches!(details.status, None | Some(500 | 502 | 504));
    is_lost && !details.unsent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_gateway_answers_while_abacus_is_away_blames_no_usage() {
        let blames = |status: u16, name: Option<&str>| {
            blames_usage(&Details {
                status: Some(status),
                error_name: name.map(str::to_owned),
                ..Details::default()
            })
        };
        assert!(!blames(404, None) && !blames(408, None) && !blames(425, None));
        assert!(blames(404, Some("plannotfound")) && blames(400, None) && blames(422, None));
    }
}

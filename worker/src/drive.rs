//! Drives one span through its due intervals: carries out the actions of the
//! [`Driver`](sampler_domain::Driver), which is the protocol.

use std::sync::atomic::Ordering;
use std::time::Duration;

use sampler_domain::partition::partition_of;
use sampler_domain::{Action, Change, ChangeKind, Changed, Driver, Entry, Span, Timestamp};
use sampler_settings::millis;
use sampler_store::StoreError;
use tracing::{Instrument, error, warn};

use crate::deliver::{PostDeadline, ReadAt};
use crate::search::Claim;
use crate::{Worker, error_chain, metrics, trace};

/// How many intervals a span executes before it yields its permit to one that waits. Finding it again
/// costs a read, which is little beside 32 posts and changes. Others wait about a second for a turn.
pub(crate) const TURN_LENGTH: u32 = 32;

/// How many intervals a span has executed since it got its permit.
///
/// A span with a long backlog has many intervals to post. If it kept its permit until none is left, a
/// few such spans would keep all others waiting for hours. So a span yields its permit after a turn, and
/// the change that records its last execution puts it behind all spans that have waited longer. That
/// order is in the store: it holds for all workers and searches, and over restarts.
#[derive(Default)]
struct Turn(u32);

#[derive(PartialEq)]
enum TurnState {
    Continues,
    Yielded,
}

impl Worker {
    /// Drives a span until nothing is due, its turn is over, something fails or another worker
    /// drives it. `read_at` is when it was read. A failure of the store that ends this is logged here, and
    /// nowhere else.
    ///
    /// Returns how long the span has to pause, if the store failed on it.
    pub(crate) async fn drive(
        &self,
        span: Span,
        read_at: ReadAt,
        claim: &Claim,
    ) -> Option<Duration> {
        let (id, partition) = (span.id.clone(), partition_of(&span.target));
        let remembered = self.troubles.remembered(&id);
        let mut driver = Driver::new(span, remembered, self.owned_since(partition));
        let carried_out = self.carry_out(&mut driver, read_at);
        let carried_out = carried_out.instrument(trace::of_turn(&id)).await;
        claim.leave(driver.span().processing.version);
        match carried_out {
            Ok(()) => {
                self.troubles.end(&id, driver.remembered());
                None
            }
            Err(error) => {
                // The span stays as it is, due, and is found again.
                let remembered = driver.into_remembered();
                let fraction = self.parts.random.fraction();
                let pause = self.troubles.note(&id, remembered, fraction);
                let pause_ms = millis(pause);
                warn!(code = "span.store_failed", span.id = %id, pause_ms, error = error_chain(&error),
                    "the store failed on a span");
                Some(pause)
            }
        }
    }

    /// Carries out the driver's actions until it is done or the turn is over.
    async fn carry_out(&self, driver: &mut Driver, mut read_at: ReadAt) -> Result<(), StoreError> {
        let mut turn = Turn::default();
        // After a shutdown, the loop still records the last answer of the upstream.
        while driver.has_unrecorded_outcome() || self.may_begin() {
            match driver.action(self.now(), &self.terms) {
                Action::Change(change) => {
                    let step = trace::of_change(change.kind);
                    // A change that is made proves that the span was as it was read when this was sent.
                    let sent_at = ReadAt::now(self);
                    let changing = self.change(driver, *change, &mut turn);
                    if changing.instrument(step).await? == TurnState::Yielded {
                        break;
                    }
                    read_at = sent_at;
                }
                Action::LookUp(delivery) => self.look_up(driver, &delivery).await,
                Action::Post {
                    delivery,
                    begin_before,
                } => {
                    let deadline = PostDeadline {
                        read_at,
                        begin_before,
                    };
                    if !self.deliver(driver, &delivery, deadline).await {
                        break;
                    }
                }
                Action::WriteEntry(entry) => {
                    let written = self.write_entry(&entry).instrument(trace::of_entry());
                    written.await?;
                    driver.on_entry_written();
                }
                Action::ResumeCause(cause) => {
                    self.resume_cause(cause).await?;
                    driver.on_cause_resumed();
                }
                Action::Reread => {
                    let span = driver.span();
                    read_at = ReadAt::now(self);
                    let found = self.parts.work.read(&span.id, &span.target).await?;
                    driver.on_reread(found);
                }
                Action::Done => break,
            }
        }
        Ok(())
    }

    fn may_begin(&self) -> bool {
        !self.stop.is_cancelled() && self.clock.is_sure() && !self.is_paused()
    }

    /// Writes an entry into the ledger. Only then the execution is recorded: whatever dies in between, each
    /// recorded execution has its entry.
    async fn write_entry(&self, entry: &Entry) -> Result<(), StoreError> {
        let retention = self.settings.ledger.retention.of(entry.dimension);
        let expires_at = entry.acceptance.at.plus(millis(retention));
        let watch_at = self.watch_at(entry);
        let ledger = &self.parts.ledger;
        let written = ledger.write_entry(entry, expires_at, watch_at).await;
        self.parts.processing_progress.report();
        written
    }

    async fn change(
        &self,
        driver: &mut Driver,
        mut change: Change,
        turn: &mut Turn,
    ) -> Result<TurnState, StoreError> {
        let now = self.now();
        let turn_state = self.yield_if_turn_over(&mut change, turn, now);
        let changed = self.parts.work.change(driver.span(), &change, now).await?;
        self.parts.processing_progress.report();
        if changed == Changed::Rejected {
            driver.on_change_rejected();
            return Ok(TurnState::Continues);
        }
        let kind = change.kind;
        driver.on_change_made(change);
        let span = driver.span();
        if is_execution(kind) {
            self.rate.count_interval();
        }
        if kind == ChangeKind::Fail && span.suspension().is_some() {
            self.report_suspension(span);
        }
        if span.processing.complete {
            self.check_ledger(span).await;
        }
        Ok(turn_state)
    }

    /// Counts the interval that a change records, if another one follows at once. If the turn is over then
    /// and a found span waits, the change gets a `due_at` after all spans that have waited longer.
    fn yield_if_turn_over(
        &self,
        change: &mut Change,
        turn: &mut Turn,
        now: Timestamp,
    ) -> TurnState {
        let after = &mut change.after;
        let goes_on = after.in_hand().is_some() && after.processing.due_at <= now;
        if !is_execution(change.kind) || !goes_on {
            return TurnState::Continues;
        }
        turn.0 += 1;
        if turn.0 < TURN_LENGTH || !self.spans_wait.load(Ordering::Relaxed) {
            return TurnState::Continues;
        }
        after.processing.due_at = now;
        TurnState::Yielded
    }

    /// Compares what a complete span says is billed with the entries of the ledger, which were written
    /// apart from that. What is excluded as unanswered may have an entry, and is left out.
    async fn check_ledger(&self, span: &Span) {
        let processing = &span.processing;
        if !processing.excluded.is_empty() || !processing.again.is_empty() {
            return;
        }
        let sum = match self.parts.ledger.sum_of(&span.id, &span.target).await {
            Ok(sum) => sum,
            Err(error) => {
                warn!(code = "ledger.not_checked", span.id = %span.id, error = error_chain(&error),
                    "the ledger of a complete span could not be read");
                return;
            }
        };
        let Some(since) = self.ledger_since(span, sum.since) else {
            return;
        };
        let difference = span.billed_since(since) - sum.duration;
        if difference != 0 {
            metrics::note_difference();
            error!(code = "ledger.differs", span.id = %span.id, difference_ms = difference,
                "a complete span and the ledger do not agree on what is billed");
        }
    }

    /// From when on the ledger surely has all entries of a span, given what it has first; none where entries of
    /// that time may have expired, and where it has none but of what was sent again: another program may have sampled
    /// the span, or an operator skipped all of it.
    fn ledger_since(&self, span: &Span, first: Option<Timestamp>) -> Option<Timestamp> {
        let first = first?;
        let cuts = &span.processing.cuts;
        let retention = self.settings.ledger.retention;
        let kept = cuts.iter().map(|cut| retention.of(cut.granularity)).min()?;
        let kept_from = self.now().plus(-millis(kept));
        // What is by one dimension expires in its order.
        (cuts.len() == 1 || first > kept_from).then_some(first)
    }
}

fn is_execution(kind: ChangeKind) -> bool {
    matches!(kind, ChangeKind::Record | ChangeKind::RecordAgain)
}

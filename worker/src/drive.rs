//! Drives one span through its due intervals: carries out the actions of the
//! [`Driver`](sampler_domain::Driver), which is the protocol.

use std::time::Duration;

use sampler_domain::partition::partition_of;
use sampler_domain::{
    Acceptance, Action, Change, Changed, Driver, Entry, EntryState, Key, Span, Target,
};
use sampler_settings::millis;
use sampler_store::{EntryKey, Finished, StoreError};
use tracing::{Instrument, error, warn};

use crate::deliver::{PostDeadline, ReadAt};
use crate::turn::{Turn, TurnState};
use crate::{Worker, error_chain, trace};

impl Worker {
    /// Drives a span until nothing is due, its turn is over, something fails or another worker
    /// drives it. `read_at` is when it was read. A failure of the store that ends this is logged here, and
    /// nowhere else.
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
        let mut turn = Turn::default();
        // After a shutdown, the loop still records the last answer of the upstream.
        while driver.has_unrecorded_outcome() || self.may_begin() {
            match driver.action(self.now(), &self.policy) {
                Action::Change(change) => {
                    let step = trace::of_change(&change);
                    // A change that is made proves that the span was as it was read when this was sent.
                    let sent_at = ReadAt::now(self);
                    let changing = self.change(&mut driver, change, &mut turn);
                    if changing.instrument(step).await? == TurnState::Yielded {
                        break;
                    }
                    read_at = sent_at;
                }
                Action::LookUp(planned) => self.look_up(&mut driver, &planned).await,
                Action::Post {
                    planned,
                    begin_before,
                } => {
                    let deadline = PostDeadline {
                        read_at,
                        begin_before,
                    };
                    if !self.deliver(&mut driver, &planned, deadline).await {
                        break;
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
                    let found = self.parts.work.read(&span.id, &span.target).await?;
                    if driver.loses_answer(found.as_ref()) {
                        warn_of_lost_answer(driver.span());
                    }
                    driver.on_reread(found);
                }
                Action::Done => break,
            }
        }
        Ok(())
    }

    fn may_begin(&self) -> bool {
        !self.stop.is_cancelled() && self.time.is_known() && !self.is_paused()
    }

    /// Writes an entry into the ledger. Only then the execution is recorded: whatever dies in between, each
    /// recorded execution has its entry.
    ///
    /// If an operator has skipped the usage meanwhile, the ledger keeps the skipped entry, and the span then
    /// records a skip, too. The entry is marked, so that the resend loop corrects the entry and the totals
    /// ([`Self::keep_resending`]).
    async fn write_entry(&self, span: &Span, entry: Entry) -> Result<EntryState, StoreError> {
        let lifetime = self.entry_lifetime(&entry.target);
        let usage_guid = entry.usage_guid.clone();
        let acceptance = entry.accepted_at.map(|at| Acceptance {
            at,
            status: entry.status,
            location: entry.location.clone(),
        });
        let entry = self.with_first_question(entry);
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
            self.mark_accepted(&key, kept, acceptance).await?;
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
    /// finds that out. At Abacus it does not: a 202 does not say whether the usage was taken once more, or
    /// passed over as a repeat.
    fn counts_after(&self, from: EntryState) -> bool {
        from == EntryState::Skipped
            || from == EntryState::SetAside && self.promises.lookups.is_by_id()
    }

    /// Lets the entries of a complete span expire. If that fails, or the worker dies before, the
    /// clean-up does it before it removes the span.
    async fn expire_entries(&self, span: &Span) {
        let finished = Finished {
            id: span.id.clone(),
            key: Key::of(&span.target),
        };
        if let Err(error) = self.parts.ledger.expire(&[finished]).await {
            warn!(code = "ledger.expiry_failed", span.id = %span.id, error = error_chain(&error),
                "the entries of a complete span have no expiry yet");
        }
        self.parts.processing_progress.report();
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
        match changed {
            Changed::Made => {
                if matches!(change, Change::Executed { .. }) {
                    self.rate.count_interval();
                }
                driver.on_change_made(&change);
            }
            Changed::Rejected => driver.on_change_rejected(),
        }
        if changed == Changed::Made && driver.span().processing.complete {
            self.expire_entries(driver.span()).await;
        }
        Ok(match changed {
            Changed::Made => turn_state,
            Changed::Rejected => TurnState::Continues,
        })
    }
}

fn warn_of_lost_answer(span: &Span) {
    let planned = span.processing.planned.as_ref();
    warn!(
        code = "delivery.lost_answer",
        span.id = %span.id,
        usage = planned.map(|planned| &*planned.usage_guid),
        "a post had no answer, and another worker recorded or looked up the usage meanwhile"
    );
}

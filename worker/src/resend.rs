//! Usages that are to be sent again, though they were skipped or set aside
//! (`docs/decisions.md#what-does-not-count`).
//!
//! Another worker can repeat each step: the post has the same bytes, the entry changes its state once, the
//! span says which resend it knows last, and what was withheld is marked once. The mark on the entry is
//! removed last. So if a worker dies in between, the next one finds the entry and continues.

use std::time::Duration;

use sampler_domain::{
    Acceptance, Changed, Correction, Entry, EntryState, LastError, Resend, Resent, Timestamp, Usage,
};
use sampler_store::{EntryKey, StoreError};
use sampler_upstream::Answer;
use tracing::{error, info, warn};

use crate::deliver::{PostDeadline, PostOutcome, ReadAt, blames_usage};
use crate::lookup::LookupOutcome;
use crate::{IgnoreProgress, Worker, error_chain};

/// Marked entries that are read with one command.
const BATCH: usize = 100;

/// Attempts to correct the totals of a span while others change the span. After that the entry waits.
const TRIES: usize = 5;

/// How long a usage waits while its span has not recorded the skip yet, or its totals could not be
/// corrected, ms.
const NOT_RECORDED_WAIT: i64 = 5_000;

/// How long a worker waits before it tries again to mark a usage that the upstream has accepted.
const MARK_PAUSE: Duration = Duration::from_secs(1);

enum ResendOutcome {
    Accepted(Acceptance),
    Refused(LastError),
    /// It is to be tried later.
    Later(Later),
}

/// Why a usage is tried later.
enum Later {
    /// The upstream is away, or failed on this usage.
    Failed(String),
    /// Nothing may be posted now: the upstream asks to wait, sampling is paused, or the worker stops.
    Held,
    /// The upstream does not say whether it has the usage.
    Unclear(String),
    /// It was not found, which proves something only from then on.
    Unsettled(Timestamp),
}

impl Worker {
    /// Sends marked usages again, until the shutdown. Only the owner of partition 0 does it. This loop
    /// is separate, so that probes and resumes do not wait for it.
    pub(crate) async fn keep_resending(&self) {
        while self.wait_until_time_known(&IgnoreProgress).await {
            if !(self.ownership.owns_first() && self.resend_due().await) {
                self.sleep(self.periods.causes).await;
            }
        }
    }

    /// Sends again the usages whose entries are marked. Returns whether there may be more.
    async fn resend_due(&self) -> bool {
        let mut due = match self.parts.ledger.due_resends(self.now(), BATCH).await {
            Ok(due) => due,
            Err(error) => {
                log_failure(&error, None);
                return false;
            }
        };
        // Usages that need no lookup are sent first, because lookups may fail or hang.
        due.sort_by_key(|entry| self.resend_safe_until(entry).is_none());
        for entry in &due {
            match self.resend(entry).await {
                Ok(true) => {}
                // It, and all others, are found again.
                Ok(false) => return false,
                Err(error) => {
                    log_failure(&error, Some(entry));
                    self.postpone(entry, self.settings.delivery.backoff().limit)
                        .await;
                }
            }
        }
        due.len() == BATCH
    }

    /// Does all steps that are left for one usage. Returns whether the next one may be tried: not while
    /// the upstream is away or the worker stops.
    async fn resend(&self, entry: &Entry) -> Result<bool, StoreError> {
        let Some(resend) = &entry.resend else {
            return Ok(true);
        };
        // Otherwise an earlier attempt has accepted the entry, and the span is still to be corrected.
        if entry.is_uncounted() {
            let span = self.parts.work.read(&entry.span, &entry.target).await?;
            if !entry.is_recorded_on(span.as_ref()) {
                self.postpone(entry, NOT_RECORDED_WAIT).await;
                return Ok(true);
            }
            // What does not count is not taken back: the usage may have been set aside since.
            if resend.acceptance.is_none() && self.parts.ledger.takes_back_uncounted(entry).await? {
                self.postpone(entry, self.settings.delivery.backoff().limit)
                    .await;
                return Ok(true);
            }
            let acceptance = match &resend.acceptance {
                Some(acceptance) => acceptance.clone(),
                None => match self.look_up_or_post(entry, resend).await? {
                    ResendOutcome::Accepted(acceptance) => acceptance,
                    ResendOutcome::Refused(refusal) => {
                        return self.end_refused(entry, resend, &refusal).await;
                    }
                    ResendOutcome::Later(later) => return Ok(self.try_later(entry, later).await),
                },
            };
            if !self.accept(entry, acceptance).await? {
                return Ok(true);
            }
        }
        if self.correct_span(entry, resend).await? && self.send_withheld(entry, resend).await? {
            let key = EntryKey::of(entry);
            self.parts.ledger.end_resend(&key, resend.act, None).await?;
        } else {
            self.postpone(entry, NOT_RECORDED_WAIT).await;
        }
        Ok(true)
    }

    /// Posts the usage of an entry while earlier posts of it are surely remembered; after that it is looked
    /// up first, as the driver does it (`docs/decisions.md#upstreams-are-contracts`).
    async fn look_up_or_post(
        &self,
        entry: &Entry,
        resend: &Resend,
    ) -> Result<ResendOutcome, StoreError> {
        if let Some(begin_before) = self.resend_safe_until(entry) {
            return Ok(self.post_again(entry, begin_before).await);
        }
        let contract = self.promises.contract;
        let settled_at = contract.resend_settled_at(entry, self.owned_since(0));
        let later = match self.look_up_once(&entry.usage_guid).await {
            LookupOutcome::Found(acceptance) => return Ok(ResendOutcome::Accepted(acceptance)),
            LookupOutcome::NotFound { sent_at, .. } if sent_at < settled_at => {
                // A post that is remembered as a repeat would be taken for an acceptance, and may count
                // nothing.
                Later::Unsettled(settled_at)
            }
            LookupOutcome::NotFound { .. } => {
                let now = self.now();
                // Until the post has settled, no other worker takes the usage up.
                let claim = now.plus(contract.claim());
                let key = EntryKey::of(entry);
                let ledger = &self.parts.ledger;
                if ledger.claim_resend(&key, resend, claim).await? {
                    return Ok(self.post_again(entry, contract.post_before(now)).await);
                }
                Later::Held
            }
            LookupOutcome::Unclear(unclear) => Later::Unclear(unclear.error),
            LookupOutcome::Postponed => Later::Unclear("find: too many are under way".to_owned()),
        };
        Ok(ResendOutcome::Later(later))
    }

    /// Until then the usage of an entry may be posted without a lookup; none where that is over.
    fn resend_safe_until(&self, entry: &Entry) -> Option<Timestamp> {
        // It may have come in after all.
        if self.promises.lookups.is_by_id() && entry.state == EntryState::SetAside {
            return None;
        }
        let until = self.promises.contract.resend_safe_until(entry)?;
        (self.now() < until).then_some(until)
    }

    /// Posts the same document as before.
    async fn post_again(&self, entry: &Entry, begin_before: Timestamp) -> ResendOutcome {
        let usage = Usage::of_entry(entry);
        let deadline = PostDeadline {
            read_at: ReadAt::now(self),
            begin_before,
        };
        match self.post_once(&usage, &deadline).await {
            PostOutcome::Outdated | PostOutcome::Held => ResendOutcome::Later(Later::Held),
            PostOutcome::Posted(Answer::Accepted, details) => {
                ResendOutcome::Accepted(self.acceptance(details))
            }
            PostOutcome::Posted(Answer::Wait { after }, _) => {
                self.post_limit.pause_for(after);
                ResendOutcome::Later(Later::Held)
            }
            PostOutcome::Posted(Answer::Refused { error }, details) if blames_usage(&details) => {
                ResendOutcome::Refused(LastError {
                    at: self.now(),
                    status: details.status,
                    error: details.error_name.unwrap_or(error),
                })
            }
            PostOutcome::Posted(Answer::Refused { error } | Answer::TryAgain { error, .. }, _) => {
                ResendOutcome::Later(Later::Failed(error))
            }
        }
    }

    /// Records that the upstream has accepted the usage. If the mark is gone, another worker got another
    /// answer and has removed it: then the entry is marked again, together with this answer. So it is if the
    /// store gives no answer, because the mark may go meanwhile. Returns whether the entry is `accepted` now.
    async fn accept(&self, entry: &Entry, acceptance: Acceptance) -> Result<bool, StoreError> {
        let (span, usage) = (&entry.span, &entry.usage_guid);
        let asked = self.with_next_question(entry, &acceptance);
        if let Ok(true) = self.parts.ledger.accept_resent(&asked, &acceptance).await {
            info!(span.id = %span, usage, "the upstream accepted a usage that was sent again");
            return Ok(true);
        }
        self.mark_accepted(&EntryKey::of(entry), entry.state, acceptance)
            .await?;
        Ok(false)
    }

    /// Marks an entry: the upstream has accepted its usage, although it was skipped or set aside. An operator's
    /// mark gets this answer. If the entry is `accepted`, or its mark has an answer, nothing changes.
    ///
    /// Nobody else knows that the upstream has the usage, so this continues however long the store is
    /// away, until the shutdown.
    pub(crate) async fn mark_accepted(
        &self,
        key: &EntryKey,
        from: EntryState,
        acceptance: Acceptance,
    ) -> Result<(), StoreError> {
        let resend = Resend {
            act: self.parts.random.uuid_v4(),
            from,
            at: acceptance.at,
            due_at: acceptance.at,
            acceptance: Some(acceptance),
        };
        loop {
            match self.parts.ledger.mark_resend(key, &resend).await {
                Err(_) if !self.stop.is_cancelled() => self.sleep(MARK_PAUSE).await,
                marked => return marked.map(drop),
            }
        }
    }

    async fn end_refused(
        &self,
        entry: &Entry,
        resend: &Resend,
        refusal: &LastError,
    ) -> Result<bool, StoreError> {
        let (key, error) = (EntryKey::of(entry), &refusal.error);
        error!(code = "resend.refused", span.id = %entry.span, usage = entry.usage_guid,
            status = refusal.status, error,
            "the upstream refused a usage that was sent again; it stays as it was");
        let ledger = &self.parts.ledger;
        ledger.end_resend(&key, resend.act, Some(refusal)).await?;
        Ok(true)
    }

    /// Has a usage tried later. Returns whether the next one may be tried now: not while the upstream is away.
    async fn try_later(&self, entry: &Entry, later: Later) -> bool {
        let wait = self.settings.delivery.backoff().limit;
        let (error, wait) = match later {
            Later::Held => return false,
            Later::Unsettled(at) => {
                self.postpone(entry, at.since(self.now()).max(1)).await;
                return true;
            }
            Later::Unclear(error) => (error, wait),
            // What came of the post must be found before it is posted again.
            Later::Failed(error) => (error, wait.max(self.promises.contract.claim())),
        };
        warn!(code = "resend.delayed", span.id = %entry.span, usage = entry.usage_guid,
            wait_ms = wait, error, "a usage could not be sent again yet");
        self.postpone(entry, wait).await;
        false
    }

    /// Sets when a usage is tried next. If that fails, it is tried sooner.
    async fn postpone(&self, entry: &Entry, wait: i64) {
        let Some(resend) = &entry.resend else { return };
        let (key, due_at) = (EntryKey::of(entry), self.now().plus(wait));
        let ledger = &self.parts.ledger;
        if let Err(error) = ledger.postpone_resend(&key, resend.act, due_at).await {
            log_failure(&error, Some(entry));
        }
    }

    /// Corrects the span: the usage counts. Returns whether it is right now, also if there was nothing to
    /// correct.
    async fn correct_span(&self, entry: &Entry, resend: &Resend) -> Result<bool, StoreError> {
        let key = EntryKey::of(entry);
        for _ in 0..TRIES {
            let span = self.parts.work.read(&entry.span, &entry.target).await?;
            let correction = entry.correction(span.as_ref());
            let (Correction::Make { after, change }, Some(span)) = (correction, span) else {
                return Ok(true);
            };
            if let Some(last) = &after
                && !self.has_ended(&key, last).await?
            {
                return Ok(false);
            }
            if !self.parts.ledger.has_resend(&key, resend.act).await? {
                return Ok(true);
            }
            let now = self.now();
            if self.parts.work.change(&span, &change, now).await? == Changed::Made {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Marks what was withheld when the usage was taken back: it is sent from now on, because the usage
    /// counts. Returns false while a piece is planned that was withheld before the span knew that.
    async fn send_withheld(&self, entry: &Entry, resend: &Resend) -> Result<bool, StoreError> {
        let span = self.parts.work.read(&entry.span, &entry.target).await?;
        if span.is_some_and(|span| span.plans_to_withhold(entry.interval)) {
            return Ok(false);
        }
        let ledger = &self.parts.ledger;
        for withheld in ledger.withheld_of(entry).await? {
            let mark = resend.of_withheld(&withheld);
            ledger.mark_resend(&EntryKey::of(&withheld), &mark).await?;
        }
        Ok(true)
    }

    /// Whether the last resend of another usage of the same span has ended. Until then, the
    /// usages that were withheld for it may not be marked yet.
    async fn has_ended(&self, key: &EntryKey, last: &Resent) -> Result<bool, StoreError> {
        let counted = EntryKey {
            usage_guid: last.usage_guid.clone(),
            ..key.clone()
        };
        let has_mark = self.parts.ledger.has_resend(&counted, last.act).await?;
        Ok(!has_mark)
    }
}

fn log_failure(error: &StoreError, entry: Option<&Entry>) {
    let usage = entry.map(|entry| entry.usage_guid.as_str());
    warn!(
        code = "resend.failed",
        usage,
        error = error_chain(error),
        "sending a usage again failed"
    );
}

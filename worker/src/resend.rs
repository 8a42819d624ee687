//! Usages that are to be sent again, though they were skipped or set aside
//! (`docs/adr/042-resending.md`).
//!
//! Another worker can repeat each step: the post has the same bytes, the entry changes its state once, and
//! the totals of the span say which resend they count last. The mark on the entry is removed last. So if
//! a worker dies in between, the next one finds the entry and goes on.

use sampler_domain::{
    Acceptance, Change, Changed, Entry, EntryState, LastError, Resend, Resent, Span, Usage,
};
use sampler_store::{EntryKey, StoreError};
use tracing::{error, info, warn};
use uuid::Uuid;

use crate::drive::{PostOutcome, ReadAt, blames_usage};
use crate::{Worker, error_chain};
use sampler_abacus::Answer;

/// Marked entries that are read with one command.
const BATCH: usize = 100;

/// Attempts to correct the totals of a span while others change the span. After that the entry waits.
const TRIES: usize = 5;

/// How long a usage waits while its span has not noted the skip yet, or its totals could not be
/// corrected, ms.
const NOT_NOTED_WAIT: i64 = 5_000;

/// The outcome of sending a usage again.
enum SentAgain {
    Accepted(Acceptance),
    /// Abacus refused this usage.
    Refused(LastError),
    /// It is to be tried later.
    Later(Later),
}

/// Why a usage is tried later.
enum Later {
    /// Abacus is away, or failed on this usage.
    Failed(String),
    /// Abacus asks to wait, or this worker begins nothing new.
    Held,
}

impl Worker {
    /// Sends again the usages whose entries are marked. The owner of partition 0 does this for all.
    /// Returns whether there may be more.
    pub(crate) async fn send_again(&self) -> bool {
        let due = match self.parts.resends.due_resends(self.now(), BATCH).await {
            Ok(due) => due,
            Err(error) => {
                log_failure(error, None);
                return false;
            }
        };
        for entry in &due {
            match self.resend(entry).await {
                Ok(true) => {}
                // It, and all others, are found again.
                Ok(false) => return false,
                Err(error) => {
                    log_failure(error, Some(entry));
                    self.postpone(entry, self.options.abacus.backoff().limit)
                        .await;
                }
            }
        }
        due.len() == BATCH
    }

    /// Does all steps that are left for one usage. Returns whether the next one may be tried: not while
    /// Abacus is away or the worker stops.
    async fn resend(&self, entry: &Entry) -> Result<bool, StoreError> {
        let Some(resend) = &entry.resend else {
            return Ok(true);
        };
        if entry.is_resendable() {
            let span = self.parts.work.find(&entry.span, &entry.target).await?;
            if !is_noted(entry, span.as_ref()) {
                self.postpone(entry, NOT_NOTED_WAIT).await;
                return Ok(true);
            }
            let acceptance = match &resend.acceptance {
                Some(acceptance) => acceptance.clone(),
                None => match self.post_again(entry).await {
                    SentAgain::Accepted(acceptance) => acceptance,
                    SentAgain::Refused(refusal) => {
                        return self.end_refused(entry, resend, &refusal).await;
                    }
                    SentAgain::Later(later) => return Ok(self.put_off(entry, later).await),
                },
            };
            if !self.accept(entry, acceptance).await? {
                return Ok(true);
            }
            if entry.state == EntryState::SetAside {
                // Its totals count it all the while.
                return Ok(true);
            }
        }
        if self.correct_totals(entry, resend.act).await? {
            let key = EntryKey::of(entry);
            self.parts
                .resends
                .end_resend(&key, resend.act, None)
                .await?;
        } else {
            self.postpone(entry, NOT_NOTED_WAIT).await;
        }
        Ok(true)
    }

    /// Posts the same document as before. If another worker posts it at the same moment, Abacus recognises
    /// the id and counts it once.
    async fn post_again(&self, entry: &Entry) -> SentAgain {
        let usage = Usage::of_entry(entry);
        let read_at = ReadAt::now(self);
        match self.post_once(&usage, &read_at).await {
            PostOutcome::Outdated | PostOutcome::Held => SentAgain::Later(Later::Held),
            PostOutcome::Answered(Answer::Accepted, details) => {
                SentAgain::Accepted(self.acceptance(details))
            }
            PostOutcome::Answered(Answer::Wait { after }, _) => {
                self.post_limit.pause_for(after);
                SentAgain::Later(Later::Held)
            }
            PostOutcome::Answered(Answer::Refused { error }, details) if blames_usage(&details) => {
                SentAgain::Refused(LastError {
                    at: self.now(),
                    status: details.status,
                    error: details.error_name.unwrap_or(error),
                })
            }
            PostOutcome::Answered(
                Answer::Refused { error } | Answer::TryAgain { error, .. },
                _,
            ) => SentAgain::Later(Later::Failed(error)),
        }
    }

    /// Notes that Abacus has accepted the usage. If the mark is gone, another worker got another answer and
    /// has removed it: then the entry is marked again, together with this answer. Returns whether the
    /// entry is `accepted` now.
    async fn accept(&self, entry: &Entry, acceptance: Acceptance) -> Result<bool, StoreError> {
        let (span, usage) = (&entry.span, &entry.usage_guid);
        let asked = self.to_confirm_again(entry, &acceptance);
        if self
            .parts
            .resends
            .accept_resent(&asked, &acceptance)
            .await?
        {
            info!(span.id = %span, usage, "Abacus accepted a usage that was sent again");
            return Ok(true);
        }
        self.note_accepted(&EntryKey::of(entry), acceptance).await?;
        Ok(false)
    }

    /// Marks an entry: Abacus has accepted its usage, although it was skipped. If the entry is `accepted`
    /// or marked already, nothing changes.
    pub(crate) async fn note_accepted(
        &self,
        key: &EntryKey,
        acceptance: Acceptance,
    ) -> Result<(), StoreError> {
        let mut bytes = [0; 16];
        self.parts.random.fill(&mut bytes);
        let resend = Resend {
            act: uuid::Builder::from_random_bytes(bytes).into_uuid(),
            at: acceptance.at,
            due_at: acceptance.at,
            acceptance: Some(acceptance),
        };
        self.parts.resends.mark_resend(key, &resend).await.map(drop)
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
            "Abacus refused a usage that was sent again; it stays as it was");
        let resends = &self.parts.resends;
        resends.end_resend(&key, resend.act, Some(refusal)).await?;
        Ok(true)
    }

    /// Postpones a usage that failed. Returns false: no other usage is tried while Abacus is away.
    async fn put_off(&self, entry: &Entry, later: Later) -> bool {
        if let Later::Failed(error) = later {
            let wait = self.options.abacus.backoff().limit;
            warn!(code = "resend.delayed", span.id = %entry.span, usage = entry.usage_guid,
                wait_ms = wait, error, "a usage could not be sent again yet");
            self.postpone(entry, wait).await;
        }
        false
    }

    /// Sets when a usage is tried next. If that fails, it is tried sooner.
    async fn postpone(&self, entry: &Entry, wait: i64) {
        let Some(resend) = &entry.resend else { return };
        let (key, due_at) = (EntryKey::of(entry), self.now().plus(wait));
        let resends = &self.parts.resends;
        if let Err(error) = resends.postpone_resend(&key, resend.act, due_at).await {
            log_failure(error, Some(entry));
        }
    }

    /// Corrects the totals of the span: the usage is billed, not skipped. Returns whether they are right
    /// now, also if there was nothing to correct.
    async fn correct_totals(&self, entry: &Entry, act: Uuid) -> Result<bool, StoreError> {
        let key = EntryKey::of(entry);
        let change = Change::Resent {
            resent: Resent {
                usage_guid: entry.usage_guid.clone(),
                act,
            },
            duration: entry.interval.duration(),
        };
        for _ in 0..TRIES {
            let span = self.parts.work.find(&entry.span, &entry.target).await?;
            let Some(span) = span.filter(|span| span.counts(entry.version)) else {
                return Ok(true);
            };
            let last = span.processing.resent.as_ref();
            if last.is_some_and(|last| last.act == act) {
                return Ok(true);
            }
            // The change overwrites the resend that the span names. So the mark of that one is removed
            // first. If our own mark is gone after the span was read, another worker has removed it: then
            // the totals count this resend already.
            if let Some(last) = last {
                self.end_counted(&key, &last.usage_guid, last.act).await?;
            }
            if !self.parts.resends.has_resend(&key, act).await? {
                return Ok(true);
            }
            let now = self.now();
            if self.parts.work.change(&span, &change, now).await? == Changed::Made {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes the mark of another usage of the same span, because the totals count its resend.
    async fn end_counted(
        &self,
        key: &EntryKey,
        usage_guid: &str,
        act: Uuid,
    ) -> Result<(), StoreError> {
        let counted = EntryKey {
            usage_guid: usage_guid.to_owned(),
            ..key.clone()
        };
        self.parts.resends.end_resend(&counted, act, None).await
    }
}

/// Whether the span has noted the skip. Until then a worker may be about to note what the ledger says, so
/// the entry must stay `skipped`.
fn is_noted(entry: &Entry, span: Option<&Span>) -> bool {
    span.is_none_or(|span| span.processing.version > entry.version)
}

fn log_failure(error: StoreError, entry: Option<&Entry>) {
    let usage = entry.map(|entry| entry.usage_guid.as_str());
    warn!(
        code = "resend.failed",
        usage,
        error = error_chain(error),
        "sending a usage again failed"
    );
}

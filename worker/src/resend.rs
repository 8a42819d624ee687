//! Usages that are to be sent again, though they were given up or put aside
//! (`docs/adr/042-resending.md`).
//!
//! Each step can be made again by another worker: the post has the same bytes, the entry changes its
//! state once, and the totals of the span say which resend they count last. The mark on the entry goes
//! last. So whatever dies in between, the next worker finds the entry and goes on.

use sampler_domain::{
    Change, Changed, Delivered, Entry, EntryState, LastError, Resend, Resent, Span, Usage,
};
use sampler_store::{EntryKey, StoreError};
use tracing::{error, info, warn};
use uuid::Uuid;

use crate::drive::{Known, Posting, blames_usage};
use crate::{Worker, error_chain};
use sampler_abacus::Answer;

/// Usages that are sent again in one go; the others come next.
const BATCH: usize = 100;

/// How often the totals of a span are tried to be corrected in one go, while others change the span.
const TRIES: usize = 5;

/// How long a usage waits whose span has not noted yet that it was given up, ms.
const NOT_NOTED_WAIT: i64 = 5_000;

/// What became of a usage that was sent again.
enum SentAgain {
    Delivered(Delivered),
    /// Abacus does not take it.
    Refused(LastError),
    /// It is to be tried later.
    Later(Later),
}

/// Why a usage is tried later.
enum Later {
    /// Abacus is away, or failed on it.
    Failed(String),
    /// Abacus asks to wait, or this worker takes nothing new on.
    Held,
}

impl Worker {
    /// Sends usages again that are marked. One worker does this for all. Says whether there may be more.
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

    /// Takes one usage as far as it gets. Says whether the next one may be tried.
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
            let delivered = match &resend.delivered {
                Some(delivered) => delivered.clone(),
                None => match self.post_again(entry).await {
                    SentAgain::Delivered(delivered) => delivered,
                    SentAgain::Refused(refusal) => {
                        return self.give_up_resend(entry, resend, &refusal).await;
                    }
                    SentAgain::Later(later) => return Ok(self.put_off(entry, later).await),
                },
            };
            if !self.accept(entry, delivered).await? {
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

    /// Posts the same document as before. A post that is on its way from somebody else has the same id.
    async fn post_again(&self, entry: &Entry) -> SentAgain {
        let usage = Usage::of_entry(entry);
        let known = Known::now(self);
        match self.post_once(&usage, &known).await {
            Posting::Outdated | Posting::Stopped => SentAgain::Later(Later::Held),
            Posting::Answered(Answer::Accepted, details) => {
                SentAgain::Delivered(self.delivered(details))
            }
            Posting::Answered(Answer::Wait { after }, _) => {
                self.post_limit.pause_for(after);
                SentAgain::Later(Later::Held)
            }
            Posting::Answered(Answer::Refused { error }, details) if blames_usage(&details) => {
                SentAgain::Refused(LastError {
                    at: self.now(),
                    status: details.status,
                    error: details.error_name.unwrap_or(error),
                })
            }
            Posting::Answered(Answer::Refused { error } | Answer::TryAgain { error, .. }, _) => {
                SentAgain::Later(Later::Failed(error))
            }
        }
    }

    /// Notes that Abacus has the usage. Where the mark has gone meanwhile, somebody else has met another
    /// answer: then it is noted anew that Abacus has it.
    async fn accept(&self, entry: &Entry, delivered: Delivered) -> Result<bool, StoreError> {
        let (span, usage) = (&entry.span, &entry.usage_guid);
        if self.parts.resends.accept_resent(entry, &delivered).await? {
            info!(span.id = %span, usage, "Abacus accepted a usage that was sent again");
            return Ok(true);
        }
        self.note_delivered(&EntryKey::of(entry), delivered).await?;
        Ok(false)
    }

    /// Marks an entry: Abacus has accepted its usage, though it was given up. Where the ledger says that
    /// already, or is about to, nothing is changed.
    pub(crate) async fn note_delivered(
        &self,
        key: &EntryKey,
        delivered: Delivered,
    ) -> Result<(), StoreError> {
        let mut bytes = [0; 16];
        self.parts.random.fill(&mut bytes);
        let resend = Resend {
            act: uuid::Builder::from_random_bytes(bytes).into_uuid(),
            at: delivered.at,
            due_at: delivered.at,
            delivered: Some(delivered),
        };
        self.parts.resends.mark_resend(key, &resend).await.map(drop)
    }

    async fn give_up_resend(
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

    /// Tries a usage later. Says whether the next one may be tried: not while Abacus is away.
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

    /// Has the totals of the span count a usage as billed that they counted as given up. Says whether
    /// they do, or whether there is nothing to correct.
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
            // What the span names is overwritten. So the mark of that goes first; and this one must be
            // there after the span was read. Otherwise the totals count it already.
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

    /// Removes the mark of another usage of the same span, which the totals count.
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

/// Whether the span has noted that the usage was given up. Before that a worker is about to, and it goes
/// by what the ledger says.
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

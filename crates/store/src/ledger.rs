//! The ledger: an entry for each usage, for as long as anybody may ask.

use async_trait::async_trait;
use sampler_domain::{Acceptance, Entry, EntryState, LastError, Resend, SpanId, Target, Timestamp};
use uuid::Uuid;

use crate::{Confirmation, Finished, StoreError, Unconfirmed, UnconfirmedQuery};

/// Some entries of a span, in the order in which they were planned.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entries {
    pub entries: Vec<Entry>,
    /// The number of documents that cannot be read.
    pub unreadable: u64,
    /// The version of the last entry that was read, if there may be more after it.
    pub next: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EntryKey {
    pub usage_guid: String,
    pub span: SpanId,
    pub target: Target,
}

impl EntryKey {
    pub fn of(entry: &Entry) -> Self {
        Self {
            usage_guid: entry.usage_guid.clone(),
            span: entry.span.clone(),
            target: entry.target.clone(),
        }
    }
}

/// Keeps an entry for each usage that the upstream accepted, or that was skipped or withheld. A usage that is
/// planned or refused is on its span ([`Entry::of_planned`]).
#[async_trait]
pub trait Ledger: Send + Sync + 'static {
    /// Keeps an entry, and returns the state of the kept entry. The entry that was written first
    /// under the id of the usage stays, so writing it again is always safe. Only when the upstream is asked
    /// for an accepted usage, and until when, becomes as late as in this one: it was posted once more, and
    /// that post settles later.
    ///
    /// The entry is kept until its span is complete, and at least for `lifetime` ms after its usage
    /// was accepted or skipped.
    async fn write_entry(&self, entry: Entry, lifetime: i64) -> Result<EntryState, StoreError>;

    /// Lets the entries of these spans expire: each once its lifetime is over. To be called before
    /// the spans are removed, and only for spans that are complete.
    async fn expire(&self, finished: &[Finished]) -> Result<(), StoreError>;

    /// Marks an entry whose usage is in the state [`Resend::from`] ([`Entry::marked`]), unless it is
    /// marked already. If `resend` has the upstream's acceptance, a mark without an acceptance gets it. An
    /// entry that expires is kept for its lifetime from then on. Returns whether the entry was
    /// changed.
    async fn mark_resend(&self, entry: &EntryKey, resend: &Resend) -> Result<bool, StoreError>;

    /// The entries of the same span that were withheld when a part of this one's interval was taken back
    /// ([`Entry::was_withheld_of`]). Only what a majority has.
    async fn withheld_of(&self, entry: &Entry) -> Result<Vec<Entry>, StoreError>;

    /// Whether this usage takes back a usage of the same span that does not count by now: it was skipped,
    /// or set aside. Only what a majority has.
    async fn takes_back_uncounted(&self, entry: &Entry) -> Result<bool, StoreError>;

    /// Up to `limit` marked entries that are to be tried by now, the longest waiting first. Entries
    /// that cannot be read are logged and left out.
    async fn due_resends(&self, now: Timestamp, limit: usize) -> Result<Vec<Entry>, StoreError>;

    /// Sets when a marked entry is tried next. Where it has another mark or none, nothing is changed.
    async fn postpone_resend(
        &self,
        entry: &EntryKey,
        act: Uuid,
        due_at: Timestamp,
    ) -> Result<(), StoreError>;

    /// Sets when a marked entry is tried next, if its mark is as it was read, with the same `due_at`
    /// and without an acceptance. Returns whether the time was set. So one alone of several workers
    /// that have read the entry sends the usage.
    async fn claim_resend(
        &self,
        entry: &EntryKey,
        read: &Resend,
        due_at: Timestamp,
    ) -> Result<bool, StoreError>;

    /// Records that the upstream has accepted the usage of a marked entry ([`Entry::resent`]), if the entry
    /// still is as it was read. Returns whether it was recorded.
    ///
    /// From then on the upstream is asked by the question of the given entry. An entry expires only once it
    /// is no longer asked for.
    async fn accept_resent(
        &self,
        entry: &Entry,
        acceptance: &Acceptance,
    ) -> Result<bool, StoreError>;

    /// Whether the entry has this mark, whatever a primary that was replaced says.
    async fn has_resend(&self, entry: &EntryKey, act: Uuid) -> Result<bool, StoreError>;

    /// Removes the mark, if the entry still has this one. `refusal` is why the upstream refuses the usage,
    /// if it does; the entry keeps the reason. A refusal does not remove a mark with the upstream's
    /// acceptance, nor the mark of an entry that is `accepted` by now: the span may not have recorded
    /// the acceptance yet.
    async fn end_resend(
        &self,
        entry: &EntryKey,
        act: Uuid,
        refusal: Option<&LastError>,
    ) -> Result<(), StoreError>;

    /// Usages that are to be asked for by now: those of the oldest month first, and of each month those
    /// that wait longest. Only what a majority has.
    async fn unconfirmed(&self, query: &UnconfirmedQuery) -> Result<Vec<Unconfirmed>, StoreError>;

    /// Records the answer, for each usage that is to be asked for as it was read. Says how many
    /// that were.
    ///
    /// An entry whose span is complete expires only from then on ([`expire`](Self::expire)).
    async fn confirm(&self, confirmed: &[(Unconfirmed, Confirmation)]) -> Result<u64, StoreError>;
}

/// The time from which the lifetime of an entry counts: its last change of state.
pub fn lifetime_from(entry: &Entry) -> Timestamp {
    let answers = [
        entry.accepted_at,
        entry.counted_at,
        entry.set_aside_at,
        entry.skipped_at,
        entry.resent_at,
        entry.resend.as_ref().map(|resend| resend.at),
    ];
    let last = answers.into_iter().flatten().max();
    last.unwrap_or(entry.planned_at)
}

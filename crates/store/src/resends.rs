//! Usages that are to be sent again, though they were skipped or set aside.

use async_trait::async_trait;
use sampler_domain::{Acceptance, Entry, LastError, Resend, SpanId, Target, Timestamp};
use uuid::Uuid;

use crate::StoreError;

/// The key of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EntryKey {
    /// The id of the usage.
    pub usage_guid: String,
    /// The span that the entry names.
    pub span: SpanId,
    /// The target of the span.
    pub target: Target,
}

impl EntryKey {
    /// The key of this entry.
    pub fn of(entry: &Entry) -> Self {
        Self {
            usage_guid: entry.usage_guid.clone(),
            span: entry.span.clone(),
            target: entry.target.clone(),
        }
    }
}

/// Carries resends through the ledger. Each of these is one conditional change of one entry, and can be
/// made again at any time.
#[async_trait]
pub trait Resends: Send + Sync + 'static {
    /// Marks an entry whose usage was skipped or set aside ([`Entry::is_resendable`]), unless it is
    /// marked already. An entry that expires is kept for its lifetime from then on. Says whether it is
    /// marked by this.
    async fn mark_resend(&self, entry: &EntryKey, resend: &Resend) -> Result<bool, StoreError>;

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

    /// Notes that Abacus has accepted the usage of a marked entry ([`Entry::resent`]), if the entry still
    /// is as it was read. Returns whether it did.
    ///
    /// `ask_again` of the given entry is what Abacus is asked from then on. An entry that expires does so
    /// only once that is over.
    async fn accept_resent(
        &self,
        entry: &Entry,
        acceptance: &Acceptance,
    ) -> Result<bool, StoreError>;

    /// Whether the entry has this mark, whatever a primary that was replaced says.
    async fn has_resend(&self, entry: &EntryKey, act: Uuid) -> Result<bool, StoreError>;

    /// Removes the mark, if it is still this one. `refusal` is why Abacus does not take the usage, if it
    /// does not: the entry tells of that then.
    async fn end_resend(
        &self,
        entry: &EntryKey,
        act: Uuid,
        refusal: Option<&LastError>,
    ) -> Result<(), StoreError>;
}

//! The ledger: an entry for each usage, for as long as anybody may ask.

use async_trait::async_trait;
use sampler_domain::{Entry, EntryState, SpanId, Target, Timestamp};

use crate::{Finished, StoreError};

/// Some entries of a span, in the order in which they were planned.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entries {
    /// Entries.
    pub entries: Vec<Entry>,
    /// The number of documents that cannot be read.
    pub unreadable: u64,
    /// The version of the last one that was read, if there may be more behind it.
    pub next: Option<i64>,
}

/// Keeps an entry for each usage that Abacus accepted or that was skipped. A usage that is planned
/// or refused is on its span ([`Entry::of_planned`]).
#[async_trait]
pub trait Ledger: Send + Sync + 'static {
    /// Keeps an entry, and returns the state of the kept entry. The entry that was written first
    /// under the id of the usage stays, so writing it again is always safe.
    ///
    /// The entry is kept until its span is complete, and at least for `lifetime` ms after its usage
    /// was accepted or skipped.
    async fn write_entry(&self, entry: Entry, lifetime: i64) -> Result<EntryState, StoreError>;

    /// Lets the entries of these spans expire: each once its lifetime is over. To be called before
    /// the spans are removed, and only for spans that are complete.
    async fn expire(&self, finished: &[Finished]) -> Result<(), StoreError>;

    /// Up to `limit` entries of a span that were planned at a later version than `after`, with
    /// majority read concern.
    async fn entries(
        &self,
        span: &SpanId,
        target: &Target,
        after: Option<i64>,
        limit: usize,
    ) -> Result<Entries, StoreError>;
}

/// The moment from which the lifetime of an entry counts: its last change of state.
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

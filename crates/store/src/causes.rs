//! Causes: the reasons of suspensions, by which spans are resumed.

use async_trait::async_trait;
use sampler_domain::{Cause, CauseId, Timestamp};

use crate::StoreError;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeptCause {
    pub id: CauseId,
    pub cause: Cause,
    /// Since when there are spans of it.
    pub since: Timestamp,
    /// When a span of it is to be tried next.
    pub probe_at: Timestamp,
    /// When a span was last suspended under it, or was about to be.
    pub touched_at: Timestamp,
    /// While its spans are resumed: the spans that were suspended by this time.
    pub resuming: Option<Timestamp>,
    /// How often operators have resumed it. So a worker that was about to record something of an earlier
    /// resume does not take a later one for it.
    pub resumes: i64,
}

/// The result of the attempt to begin a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// A span of the cause is tried again.
    Begun,
    /// The span that was tried last has no answer yet: one is enough.
    Running,
    /// No span is suspended under it.
    NoSpan,
}

/// The state of a span that is resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumption {
    /// The time by which the spans are due.
    pub now: Timestamp,
    /// How many refusals count already ([`sampler_domain::Span::resumed`]).
    pub refusals: u32,
}

/// Keeps causes, and resumes their spans.
///
/// A cause is kept before a span is suspended under it. If a worker sleeps in between, the cause may be
/// removed before the span is suspended; [`Self::register_missing`] writes it again.
#[async_trait]
pub trait Causes: Send + Sync + 'static {
    /// Keeps a cause, with its first probe at `probe_at`, unless it is there.
    async fn register(
        &self,
        cause: &Cause,
        now: Timestamp,
        probe_at: Timestamp,
    ) -> Result<(), StoreError>;

    /// Writes the missing causes of suspended spans; returns how many.
    async fn register_missing(
        &self,
        now: Timestamp,
        probe_at: Timestamp,
    ) -> Result<u64, StoreError>;

    /// Up to `limit` causes that are due for a probe, or whose spans are being resumed, the longest
    /// waiting first.
    async fn due_causes(&self, now: Timestamp, limit: usize) -> Result<Vec<KeptCause>, StoreError>;

    /// Sets when the cause is to be probed next, unless another worker did; returns whether it did.
    async fn claim_probe(&self, cause: &KeptCause, next: Timestamp) -> Result<bool, StoreError>;

    /// Resumes one span as a probe: the one that has been suspended under the cause for longest.
    /// Does nothing while a probe that began less than `lasts` ms ago has no answer.
    async fn probe(
        &self,
        cause: CauseId,
        resumption: Resumption,
        lasts: i64,
    ) -> Result<Probe, StoreError>;

    /// Marks the cause, so that all spans that are suspended under it by now are resumed; returns
    /// whether there is such a cause.
    async fn begin_resuming(&self, cause: CauseId, now: Timestamp) -> Result<bool, StoreError>;

    /// Resumes up to `limit` spans that were suspended under the cause by `until`. Returns how
    /// many: spans that cannot be changed do not count.
    async fn resume_batch(
        &self,
        cause: CauseId,
        until: Timestamp,
        resumption: Resumption,
        limit: usize,
    ) -> Result<u64, StoreError>;

    /// Changes `resuming` to `until`, if it still is as it was read and no operator has resumed the
    /// cause since. So a worker replaces the mark of [`crate::Operating::resume_by_operator`].
    async fn set_resuming(&self, cause: &KeptCause, until: Timestamp) -> Result<(), StoreError>;

    /// Records that all spans that were to be resumed are resumed, unless the cause was resumed again since
    /// it was read.
    async fn end_resuming(&self, cause: &KeptCause) -> Result<(), StoreError>;

    /// Removes a cause if nothing was suspended or resumed under it since it was read, and nothing is
    /// kept under it: no suspended span, and no usage that was set aside. Returns whether it did.
    async fn remove_cause(&self, cause: &KeptCause) -> Result<bool, StoreError>;
}

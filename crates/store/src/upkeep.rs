//! The worker's interface for upkeep: adopting the spans and stops of an original Sampler, and
//! removing complete spans (section 6.3 of the paper).

use std::time::Duration;

use async_trait::async_trait;
use sampler_domain::{Id, Policy, SpanId, Timestamp};

use crate::StoreError;

/// How long the slack that a receiver has announced counts after the announcement. A receiver that is
/// away for a roll-back, an outage or a long weekend still accepts old events when it returns, so its
/// slack must outlast such an absence.
pub const SLACK_LIFETIME: Duration = Duration::from_hours(7 * 24);

/// How many spans of an original Sampler were adopted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adopted {
    /// Spans that an original receiver started.
    pub starts: u64,
    /// Spans that an original receiver stopped after they had been adopted.
    pub stops: u64,
}

/// A complete span, as the ledger and the clean-up need it: its id and its shard key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The span.
    pub id: SpanId,
    /// Its partition; `None` if an original Sampler completed it before it was adopted.
    pub partition: Option<u32>,
    /// Its instance; none where that cannot be read.
    pub instance: Option<Id>,
}

/// Maintains the spans that are kept.
#[async_trait]
pub trait Upkeep: Send + Sync + 'static {
    /// Takes in up to `limit` spans that an original Sampler started, and notices the stops that
    /// it wrote.
    async fn adopt(
        &self,
        policy: &Policy,
        now: Timestamp,
        limit: usize,
    ) -> Result<Adopted, StoreError>;

    /// Up to `limit` complete spans that end before `cutoff` (section 6.3).
    async fn completed_before(
        &self,
        cutoff: Timestamp,
        limit: usize,
    ) -> Result<Vec<Finished>, StoreError>;

    /// Removes those of the spans that are complete. Returns how many.
    async fn remove(&self, finished: &[Finished]) -> Result<u64, StoreError>;

    /// The largest slack that receivers have announced within [`SLACK_LIFETIME`], by the store's
    /// own clock; `None` if none was announced. Older announcements are removed.
    async fn largest_slack(&self) -> Result<Option<i64>, StoreError>;
}

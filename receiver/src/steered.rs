//! The backlog that a receiver shows.

use sampler_settings::millis;
use sampler_steering::MonthClose;
use sampler_store::{Backlog, BacklogQuery, Published, StoreError};

use crate::Receiver;

/// The age at which a count that took no time is old, ms. A worker counts every 2 s.
const OLD: i64 = 3_000;

/// A worker waits 20 times as long as a count took.
const OLD_BY_COST: i64 = 21;

impl Receiver {
    pub fn month(&self) -> MonthClose {
        MonthClose {
            month_slack: millis(self.settings.month.month_slack),
            stop_grace: self.policy.stop_grace,
        }
    }

    /// The last count. If that is old, because no worker counts, the backlog is counted now.
    pub(crate) async fn backlog(&self) -> Result<Backlog, StoreError> {
        let operating = &self.parts.operating;
        if let Some(published) = operating.published_backlog().await?
            && is_recent(&published)
        {
            return Ok(published.value);
        }
        let now = self.parts.clock.now();
        let closing = self.month().closing(now);
        operating
            .count_backlog(&BacklogQuery { now, closing })
            .await
    }
}

fn is_recent(published: &Published<Backlog>) -> bool {
    published.age <= OLD.saturating_add(published.value.cost.saturating_mul(OLD_BY_COST))
}

//! What a receiver does beside its requests: it follows the control, and counts the backlog if no worker
//! does.

use std::time::Duration;

use sampler_service::telemetry::error_chain;
use sampler_settings::millis;
use sampler_steering::{FOLLOW_INTERVAL, MonthClose, count_backlog, count_pause};
use sampler_store::{Backlog, BacklogQuery, Published, StoreError};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::Receiver;

/// How late a count may come before it counts as missing, ms.
const LATE: i64 = 1_000;

/// If no worker has counted for this long, a receiver counts, for its metrics. In ms.
const NOBODY_COUNTS: i64 = 30_000;

/// The interval of the checks whether a worker counts.
const LOOK: Duration = Duration::from_secs(10);

impl Receiver {
    pub fn month(&self) -> MonthClose {
        MonthClose {
            month_slack: millis(self.settings.month.month_slack),
            stop_grace: self.policy.stop_grace,
        }
    }

    /// The last count. If that is old, because no worker counts, the backlog is counted now.
    pub(crate) async fn backlog(&self) -> Result<Backlog, StoreError> {
        let published = self.parts.operating.published_backlog().await?;
        match published {
            Some(published) if overdue(&published) <= LATE => Ok(published.value),
            _ => self.count_backlog().await,
        }
    }

    async fn count_backlog(&self) -> Result<Backlog, StoreError> {
        let now = self.parts.clock.now();
        let query = BacklogQuery {
            now,
            closing: self.month().closing(now),
        };
        count_backlog(&*self.parts.operating, &query).await
    }

    /// Follows the control, and counts the backlog if no worker does.
    pub async fn stay_steered(&self, stop: &CancellationToken) {
        let counting = async {
            while !stop.is_cancelled() {
                stop.run_until_cancelled(tokio::time::sleep(LOOK)).await;
                if !stop.is_cancelled() {
                    self.count_where_nobody_does().await;
                }
            }
        };
        tokio::join!(self.steering.follow(FOLLOW_INTERVAL, stop), counting);
    }

    async fn count_where_nobody_does(&self) {
        let counted = self.steering.backlog();
        if counted.is_some_and(|counted| overdue(&counted) <= NOBODY_COUNTS) {
            return;
        }
        if let Err(failure) = self.count_backlog().await
            && self.steering.may_report("backlog.not_counted")
        {
            warn!(
                code = "backlog.not_counted",
                error = error_chain(&failure),
                "the backlog could not be counted"
            );
        }
    }
}

/// How long ago the next count was to come, ms.
fn overdue(published: &Published<Backlog>) -> i64 {
    let cost = Duration::from_millis(published.value.cost.unsigned_abs());
    published
        .age
        .saturating_sub(millis(count_pause(cost) + cost))
}

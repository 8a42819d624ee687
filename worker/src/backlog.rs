//! Counts the backlog, and publishes it and this worker's rate for all instances.

use sampler_settings::millis;
use sampler_steering::MonthClose;
use sampler_store::{BacklogQuery, StoreError};
use tokio::time::Instant;
use tracing::warn;

use crate::{Worker, error_chain};

/// The longer a count takes, the longer it is until the next, so that counting takes a twentieth of one
/// processor of the database at the most.
const COUNT_SHARE: u32 = 20;

impl Worker {
    /// Counts the backlog again and again. Only the owner of partition 0 does it.
    pub(crate) async fn keep_backlog_counted(&self) {
        while self.wait_until_ready().await {
            let began = Instant::now();
            if self.ownership.owns_first()
                && let Err(error) = self.count_backlog().await
                && self.steering.may_report("backlog.not_counted")
            {
                warn!(
                    code = "backlog.not_counted",
                    error = error_chain(&error),
                    "the backlog could not be counted"
                );
            }
            let pause = began.elapsed().saturating_mul(COUNT_SHARE);
            self.sleep(pause.max(self.periods.backlog)).await;
        }
    }

    pub fn month(&self) -> MonthClose {
        MonthClose {
            month_slack: millis(self.settings.month.month_slack),
            stop_grace: self.terms.policy.stop_grace,
        }
    }

    async fn count_backlog(&self) -> Result<(), StoreError> {
        let now = self.now();
        let query = BacklogQuery {
            now,
            closing: self.month().closing(now),
        };
        let operating = &self.parts.operating;
        let began = Instant::now();
        let mut backlog = operating.count_backlog(&query).await?;
        backlog.cost = millis(began.elapsed());
        operating.publish_backlog(&backlog).await
    }

    /// Reports the rate of this worker. If that fails, the next heartbeat reports it.
    pub(crate) async fn report_rate(&self) {
        let rate = self.rate.rate();
        let reported = self.parts.operating.report_rate(&self.name, rate);
        if let Err(error) = reported.await
            && self.steering.may_report("heartbeat.rate_not_told")
        {
            warn!(
                code = "heartbeat.rate_not_told",
                error = error_chain(&error),
                "this worker could not report its rate"
            );
        }
    }
}

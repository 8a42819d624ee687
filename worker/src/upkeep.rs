//! Clean-up (section 6.3 of the paper), and adopting what the original Sampler wrote.

use std::time::Duration;

use sampler_metrics::Limiter;
use sampler_settings::millis;
use sampler_store::{Adopted, StoreError};
use tracing::{error, info, warn};

use crate::settings::RETENTION_MARGIN;
use crate::{IgnoreProgress, Worker, error_chain};

/// How often the log says that the retention is too short.
const REPORT_INTERVAL: Duration = Duration::from_hours(1);

impl Worker {
    /// Removes complete spans after the retention. One worker does this for all.
    pub(crate) async fn clean_up(&self) {
        let reports = Limiter::new(1, REPORT_INTERVAL);
        while self
            .wait_until_time_known(&*self.parts.cleanup_progress)
            .await
        {
            let removed = if self.ownership.owns_first() {
                self.remove_batch(&reports).await
            } else {
                Ok(0)
            };
            match removed {
                Ok(count) => {
                    self.parts.cleanup_progress.report();
                    if count == self.settings.cleanup.batch_size {
                        continue;
                    }
                }
                Err(error) => warn!(
                    code = "cleanup.failed",
                    error = error_chain(&error),
                    "the clean-up failed"
                ),
            }
            self.sleep(self.settings.cleanup.interval).await;
        }
    }

    /// Removes up to a batch. Returns how many spans there were to remove.
    async fn remove_batch(&self, reports: &Limiter<()>) -> Result<usize, StoreError> {
        let retention = self.retention(reports).await?;
        let cutoff = self.now().plus(-retention);
        let finished = self
            .parts
            .work
            .completed_before(cutoff, self.settings.cleanup.batch_size)
            .await?;
        if finished.is_empty() {
            return Ok(0);
        }
        // Before the span is removed: after that, nothing would find its entries to let them
        // expire.
        self.parts.ledger.expire(&finished).await?;
        let removed = self.parts.work.remove(&finished).await?;
        info!(spans = removed, "removed complete spans");
        Ok(finished.len())
    }

    /// How long complete spans are kept, ms: as long as the setting says, or longer if a receiver
    /// still takes their events again. `reports` limits how often the log says so.
    async fn retention(&self, reports: &Limiter<()>) -> Result<i64, StoreError> {
        let set = millis(self.settings.cleanup.retention);
        let slack = self.parts.work.largest_slack().await?;
        let needed = slack.map(|slack| slack.saturating_add(millis(RETENTION_MARGIN)));
        let Some(needed) = needed.filter(|needed| *needed > set) else {
            return Ok(set);
        };
        if reports.admit(()).is_some() {
            error!(
                code = "cleanup.retention_too_short",
                retention_ms = set,
                kept_ms = needed,
                "complete spans are kept for longer than SAMPLER_RETENTION, because a receiver takes older events"
            );
        }
        Ok(needed)
    }

    /// Adopts what the original Sampler wrote, for as long as one may run beside us. One worker does
    /// this for all.
    pub(crate) async fn adopt(&self) {
        while self.wait_until_time_known(&IgnoreProgress).await {
            if self.ownership.owns_first() && self.adopt_batch().await {
                continue;
            }
            self.sleep(self.settings.processing.adopt_interval).await;
        }
    }

    /// Adopts up to a batch. Returns whether there may be more.
    async fn adopt_batch(&self) -> bool {
        let limit = self.settings.processing.batch_size.max(1_000);
        let now = self.now();
        match self.parts.work.adopt(&self.policy, now, limit).await {
            Ok(Adopted {
                starts: 0,
                stops: 0,
            }) => false,
            Ok(Adopted { starts, stops }) => {
                info!(starts, stops, "adopted what the original Sampler wrote");
                [starts, stops].contains(&(limit as u64))
            }
            Err(error) => {
                warn!(
                    code = "adoption.failed",
                    error = error_chain(&error),
                    "the search for spans of the original Sampler failed"
                );
                false
            }
        }
    }
}

//! Clean-up (section 6.3 of the paper), and taking in what an original Sampler wrote.

use std::time::Duration;

use sampler_settings::millis;
use sampler_store::{Adopted, StoreError};
use tokio::time::Instant;
use tracing::{error, info, warn};

use crate::settings::RETENTION_MARGIN;
use crate::{NoBeat, Worker};

/// How often it is told that the retention is too short.
const TELL_EVERY: Duration = Duration::from_hours(1);

impl Worker {
    /// Removes complete spans after the retention. One worker does it for all.
    pub(crate) async fn clean_up(&self) {
        let mut told = None;
        while self.knows_the_time(&*self.parts.cleanup).await {
            let removed = if self.share.is_first() {
                self.remove_batch(&mut told).await
            } else {
                Ok(0)
            };
            match removed {
                Ok(count) => {
                    self.parts.cleanup.beat();
                    if count == self.options.cleanup.batch_size {
                        continue;
                    }
                }
                Err(error) => {
                    let error = anyhow::Error::from(error);
                    warn!(error = format!("{error:#}"), "the clean-up failed");
                }
            }
            self.pause(self.options.cleanup.interval).await;
        }
    }

    /// Removes up to a batch; says how many there were to remove.
    async fn remove_batch(&self, told: &mut Option<Instant>) -> Result<usize, StoreError> {
        let retention = self.retention(told).await?;
        let cutoff = self.now().plus(-retention);
        let finished = self
            .parts
            .upkeep
            .completed_before(cutoff, self.options.cleanup.batch_size)
            .await?;
        if finished.is_empty() {
            return Ok(0);
        }
        let removed = self.parts.upkeep.remove(&finished).await?;
        info!(spans = removed, "removed complete spans");
        Ok(finished.len())
    }

    /// How long complete spans are kept, ms: as long as is set, but never shorter than a receiver may
    /// still take their events again. `told` is when that was told last.
    async fn retention(&self, told: &mut Option<Instant>) -> Result<i64, StoreError> {
        let set = millis(self.options.cleanup.retention);
        let slack = self.parts.upkeep.largest_slack().await?;
        let needed = slack.map(|slack| slack.saturating_add(millis(RETENTION_MARGIN)));
        let Some(needed) = needed.filter(|needed| *needed > set) else {
            *told = None;
            return Ok(set);
        };
        if told.is_none_or(|at| at.elapsed() >= TELL_EVERY) {
            *told = Some(Instant::now());
            error!(
                retention_ms = set,
                kept_ms = needed,
                "complete spans are kept for longer than SAMPLER_RETENTION, because a receiver takes older events"
            );
        }
        Ok(needed)
    }

    /// Takes in what an original Sampler wrote, as long as one may be running beside us. One
    /// worker does it for all.
    pub(crate) async fn adopt(&self) {
        while self.knows_the_time(&NoBeat).await {
            if self.share.is_first() && self.adopt_batch().await {
                continue;
            }
            self.pause(self.options.processing.adopt_interval).await;
        }
    }

    /// Takes in up to a batch; says whether there may be more.
    async fn adopt_batch(&self) -> bool {
        let limit = self.options.processing.batch_size.max(1_000);
        let now = self.now();
        match self
            .parts
            .upkeep
            .adopt(&self.options.policy, now, limit)
            .await
        {
            Ok(Adopted {
                starts: 0,
                stops: 0,
            }) => false,
            Ok(Adopted { starts, stops }) => {
                info!(starts, stops, "took in what an original Sampler wrote");
                let is_full = |count| usize::try_from(count) == Ok(limit);
                is_full(starts) || is_full(stops)
            }
            Err(error) => {
                let error = anyhow::Error::from(error);
                warn!(
                    error = format!("{error:#}"),
                    "looking for spans of an original failed"
                );
                false
            }
        }
    }
}

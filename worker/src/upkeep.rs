//! Clean-up (section 6.3 of the paper).

use sampler_domain::Timestamp;
use sampler_settings::millis;
use sampler_store::StoreError;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::{Worker, error_chain};

/// A time that the next spans to be removed ended before, and when receivers were told.
struct Cutoff {
    time: Timestamp,
    told: Instant,
}

impl Worker {
    /// Removes complete spans after the retention. One worker does this for all.
    ///
    /// With a span the ids of its events go, by which a repeat would be known. So receivers are told first
    /// to take no event of its time ([`sampler_store::Work::limit_event_age`]), and nothing is removed
    /// before each of them knows. What was told holds for ever, also where this worker dies at once, or where
    /// another one keeps spans for longer.
    pub(crate) async fn clean_up(&self) {
        let mut cutoff = None;
        while self.wait_until_ready().await {
            let may_be_more = if self.ownership.owns_first() {
                self.remove_batch(&mut cutoff).await
            } else {
                Ok(false)
            };
            match may_be_more {
                Ok(may_be_more) => {
                    self.parts.cleanup_progress.report();
                    if may_be_more {
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

    /// Tells receivers what is to be removed; or removes up to a batch of that, once they have had the time
    /// to learn it. Returns whether there may be more to remove now.
    async fn remove_batch(&self, cutoff: &mut Option<Cutoff>) -> Result<bool, StoreError> {
        let Some(Cutoff { time, told }) = cutoff else {
            *cutoff = Some(self.tell_receivers().await?);
            return Ok(false);
        };
        if told.elapsed() < self.periods.notice {
            return Ok(false);
        }
        let limit = self.settings.cleanup.batch_size;
        let finished = self.parts.work.completed_before(*time, limit).await?;
        if !finished.is_empty() {
            let removed = self.parts.work.remove(&finished).await?;
            info!(spans = removed, "removed complete spans");
        }
        let may_be_more = finished.len() == limit;
        if !may_be_more {
            *cutoff = None;
        }
        Ok(may_be_more)
    }

    async fn tell_receivers(&self) -> Result<Cutoff, StoreError> {
        let retention = millis(self.settings.cleanup.retention);
        let age = retention.saturating_sub(millis(self.periods.event_margin));
        let now = self.parts.work.limit_event_age(age.max(0)).await?;
        Ok(Cutoff {
            time: now.plus(-retention),
            told: Instant::now(),
        })
    }
}

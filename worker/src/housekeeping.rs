//! Clean-up (section 6.3 of the paper), and taking in what an original Sampler wrote.

use sampler_store::{Adopted, StoreError};
use tracing::{info, warn};

use crate::{NoBeat, Worker};

impl Worker {
    /// Removes complete spans after the retention. One worker does it for all.
    pub(crate) async fn clean_up(&self) {
        while self.knows_the_time(&*self.parts.cleanup).await {
            let removed = if self.share.is_first() {
                self.remove_batch().await
            } else {
                Ok(0)
            };
            match removed {
                Ok(count) => {
                    self.parts.cleanup.beat();
                    if count == self.options.cleanup_batch {
                        continue;
                    }
                }
                Err(error) => {
                    let error = anyhow::Error::from(error);
                    warn!(error = format!("{error:#}"), "the clean-up failed");
                }
            }
            self.pause(self.options.cleanup_interval).await;
        }
    }

    /// Removes up to a batch; says how many there were to remove.
    async fn remove_batch(&self) -> Result<usize, StoreError> {
        let cutoff = self.now().plus(-self.options.retention);
        let ids = self
            .parts
            .store
            .completed_before(cutoff, self.options.cleanup_batch)
            .await?;
        if ids.is_empty() {
            return Ok(0);
        }
        let removed = self.parts.store.remove(&ids).await?;
        info!(spans = removed, "removed complete spans");
        Ok(ids.len())
    }

    /// Takes in what an original Sampler wrote, as long as one may be running beside us. One
    /// worker does it for all.
    pub(crate) async fn adopt(&self) {
        while self.knows_the_time(&NoBeat).await {
            if self.share.is_first() && self.adopt_batch().await {
                continue;
            }
            self.pause(self.options.adopt_interval).await;
        }
    }

    /// Takes in up to a batch; says whether there may be more.
    async fn adopt_batch(&self) -> bool {
        let limit = self.options.process_batch.max(1_000);
        let now = self.now();
        match self
            .parts
            .store
            .adopt(&self.options.policy, now, limit)
            .await
        {
            Ok(Adopted {
                starts: 0,
                stops: 0,
            }) => false,
            Ok(Adopted { starts, stops }) => {
                info!(starts, stops, "took in what an original Sampler wrote");
                usize::try_from(starts) == Ok(limit)
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

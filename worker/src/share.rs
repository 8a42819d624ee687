//! Which partitions this worker looks after.

use std::sync::{Arc, Mutex};

use sampler_domain::partition::partitions_of;
use tracing::{info, warn};

use crate::Worker;

/// The partitions of this worker; none before the first heartbeat.
#[derive(Debug, Default)]
pub(crate) struct Share {
    partitions: Mutex<Arc<[u32]>>,
}

impl Share {
    pub(crate) fn partitions(&self) -> Arc<[u32]> {
        Arc::clone(&self.partitions.lock().expect("nobody panics with it"))
    }

    /// Whether this is the one worker of all that does what one should do for all.
    pub(crate) fn is_first(&self) -> bool {
        self.partitions().contains(&0)
    }

    /// Says whether the share changed. One that did not stays the same: a search goes on with it.
    fn set(&self, partitions: &[u32]) -> bool {
        let mut share = self.partitions.lock().expect("nobody panics with it");
        let changed = **share != *partitions;
        if changed {
            *share = partitions.into();
        }
        changed
    }
}

impl Worker {
    /// Says again and again that this worker is alive, and learns who else is.
    pub(crate) async fn keep_registered(&self) {
        while !self.stop.is_cancelled() {
            self.register().await;
            self.pause(self.options.processing.heartbeat_interval).await;
        }
    }

    /// One heartbeat. Where it fails the share stays as it was: two workers that look after the
    /// same span do each other no harm.
    async fn register(&self) {
        match self.parts.membership.heartbeat(&self.options.name).await {
            Ok(workers) => {
                let partitions = partitions_of(&self.options.name, &workers);
                let count = partitions.len();
                if self.share.set(&partitions) {
                    info!(
                        workers = workers.len(),
                        partitions = count,
                        "the share has changed"
                    );
                }
            }
            Err(error) => {
                let error = anyhow::Error::from(error);
                warn!(error = format!("{error:#}"), "the heartbeat failed");
            }
        }
    }

    /// Leaves its partitions to the others at once.
    pub(crate) async fn leave(&self) {
        if let Err(error) = self.parts.membership.leave(&self.options.name).await {
            let error = anyhow::Error::from(error);
            warn!(
                error = format!("{error:#}"),
                "leaving failed; the others will notice in time"
            );
        }
    }
}

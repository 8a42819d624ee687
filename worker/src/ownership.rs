//! The heartbeats of this worker, and the partitions that it owns.

use std::sync::{Arc, Mutex};

use sampler_domain::partition::partitions_of;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::{Worker, error_chain};

/// The partitions of this worker; none before the first heartbeat.
#[derive(Debug, Default)]
pub(crate) struct OwnedPartitions {
    partitions: Mutex<Arc<[u32]>>,
}

impl OwnedPartitions {
    pub(crate) fn partitions(&self) -> Arc<[u32]> {
        Arc::clone(&self.partitions.lock().expect("nobody panics with it"))
    }

    /// Whether this worker owns partition 0. Its owner does the work that only one worker should
    /// do.
    pub(crate) fn owns_first(&self) -> bool {
        self.partitions().contains(&0)
    }

    /// Sets the partitions, and returns whether they changed. If not, the list stays the same
    /// object, and a search goes on with it.
    fn set(&self, partitions: &[u32]) -> bool {
        let mut owned = self.partitions.lock().expect("nobody panics with it");
        let changed = **owned != *partitions;
        if changed {
            *owned = partitions.into();
        }
        changed
    }
}

impl Worker {
    /// Sends heartbeats, and learns which workers are alive.
    pub(crate) async fn send_heartbeats(&self) {
        while !self.stop.is_cancelled() {
            self.send_heartbeat().await;
            self.report_rate().await;
            self.pause(self.options.processing.heartbeat_interval).await;
        }
    }

    /// Sends one heartbeat. If it fails, the worker keeps its partitions: two workers on the same span do
    /// no harm.
    async fn send_heartbeat(&self) {
        let began = Instant::now();
        let alive = self.parts.work.heartbeat(&self.options.name).await;
        self.note_commit(began.elapsed(), alive.is_err());
        match alive {
            Ok(workers) => {
                let partitions = partitions_of(&self.options.name, &workers);
                let count = partitions.len();
                if self.ownership.set(&partitions) {
                    info!(
                        workers = workers.len(),
                        partitions = count,
                        "the partitions of this worker have changed"
                    );
                }
            }
            Err(error) => warn!(
                code = "heartbeat.failed",
                error = error_chain(&error),
                "the heartbeat failed"
            ),
        }
    }

    /// Removes this worker's name, so that the others take its partitions over at once.
    pub(crate) async fn leave(&self) {
        if let Err(error) = self.parts.work.leave(&self.options.name).await {
            warn!(
                code = "heartbeat.deregister_failed",
                error = error_chain(&error),
                "this worker could not remove its name; others take over when its heartbeat is too old"
            );
        }
    }
}

//! The heartbeats of this worker, and the partitions that it owns.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sampler_domain::Timestamp;
use sampler_domain::partition::partitions_of;
use sampler_settings::millis;
use sampler_store::Alive;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::{Worker, error_chain};

/// How long after its last heartbeat a worker surely still has its partitions: a little less than a
/// heartbeat lives.
const SURE_FOR: Duration = Duration::from_secs(15);

/// The partitions of this worker; none before the first heartbeat.
#[derive(Debug, Default)]
pub(crate) struct OwnedPartitions {
    partitions: Mutex<Arc<[u32]>>,
    /// When this worker took over each of them.
    since: Mutex<BTreeMap<u32, Instant>>,
    /// When its last heartbeat was kept.
    kept: Mutex<Option<Instant>>,
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

    /// When this worker took a partition over; none where it does not own it.
    pub(crate) fn since(&self, partition: u32) -> Option<Instant> {
        let since = self.since.lock().expect("nobody panics with it");
        since.get(&partition).copied()
    }

    /// Notes a heartbeat that was sent then. After a gap, others may have had the partitions in between.
    fn note(&self, partitions: &[u32], sent: Instant, sure_for: Duration) {
        let mut kept = self.kept.lock().expect("nobody panics with it");
        let is_sure = kept.is_some_and(|kept| sent.duration_since(kept) < sure_for);
        *kept = Some(sent);
        let mut since = self.since.lock().expect("nobody panics with it");
        since.retain(|partition, _| is_sure && partitions.contains(partition));
        for partition in partitions {
            since.entry(*partition).or_insert_with(Instant::now);
        }
    }

    /// Sets the partitions, and returns whether they changed. If not, the list stays the same
    /// object, and a search continues with it.
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
            self.sleep(self.periods.heartbeat).await;
        }
    }

    /// Sends one heartbeat. If it fails, the worker keeps its partitions: two workers on the same span do
    /// no harm.
    async fn send_heartbeat(&self) {
        let began = Instant::now();
        let alive = self.parts.work.heartbeat(&self.name).await;
        self.note_commit(began.elapsed(), alive.is_err());
        match alive {
            Ok(Alive { workers, now }) => {
                self.clock.note(began, now);
                let partitions = partitions_of(&self.name, &workers);
                let count = partitions.len();
                let sure_for = SURE_FOR.max(2 * self.periods.heartbeat);
                self.ownership.note(&partitions, began, sure_for);
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

    /// When this worker took the partition over; now, if it does not own the partition.
    pub(crate) fn owned_since(&self, partition: u32) -> Timestamp {
        let since = self.ownership.since(partition);
        let elapsed = since.map_or(0, |since| millis(since.elapsed()));
        self.now().plus(-elapsed)
    }

    /// Removes this worker's name, so that the others take its partitions over at once.
    pub(crate) async fn leave(&self) {
        if let Err(error) = self.parts.work.leave(&self.name).await {
            warn!(
                code = "heartbeat.deregister_failed",
                error = error_chain(&error),
                "this worker could not remove its name; others take over when its heartbeat is too old"
            );
        }
    }
}

//! The processing loop: has each span that is due driven.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;

use crate::Worker;
use crate::search::Found;

impl Worker {
    /// Looks for due spans and has each driven, so many at once as there are slots. What has been
    /// read waits in a short queue, so that a slot that gets free need not wait for the next look.
    pub(crate) async fn process(self: &Arc<Self>) {
        let slots = Arc::new(Semaphore::new(self.options.processing.concurrency));
        let tasks = TaskTracker::new();
        let mut found = Found::default();
        while self.knows_the_time(&*self.parts.processing).await {
            self.drop_less_urgent(&mut found);
            if self.is_too_early(&found) && slots.available_permits() == 0 {
                self.pause_until_free(&slots).await;
            }
            if found.runs_low(self.options.processing.batch_size) {
                self.look(&mut found).await;
                if found.is_empty() {
                    self.pause(self.options.processing.interval).await;
                    continue;
                }
            }
            let Some(slot) = self.slot(&slots).await else {
                break;
            };
            let Some((span, kept)) = self.next_found(&mut found) else {
                continue;
            };
            let worker = Arc::clone(self);
            tasks.spawn(async move {
                worker.drive(span).await;
                drop((kept, slot));
            });
        }
        tasks.close();
        tasks.wait().await;
    }

    /// Pauses as between two searches that find nothing; ends early when a slot is free.
    async fn pause_until_free(&self, slots: &Arc<Semaphore>) {
        let slot = self.slot(slots);
        let paused = tokio::time::timeout(self.options.processing.interval, slot);
        drop(paused.await);
    }

    /// Waits for a free slot; none when the worker is told to stop.
    async fn slot(&self, slots: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
        let slot = Arc::clone(slots).acquire_owned();
        self.stop.run_until_cancelled(slot).await?.ok()
    }
}

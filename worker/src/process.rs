//! The processing loop: finds due spans and drives each.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;

use crate::Worker;
use crate::search::DueQueue;

impl Worker {
    /// Polls for due spans and drives as many at once as there are permits. Spans that were read
    /// wait in a short queue, so that a free permit need not wait for the next poll.
    pub(crate) async fn process(self: &Arc<Self>) {
        let permits = Arc::new(Semaphore::new(self.options.processing.concurrency));
        let tasks = TaskTracker::new();
        let mut due = DueQueue::default();
        while self
            .wait_until_time_known(&*self.parts.processing_progress)
            .await
        {
            self.drop_less_urgent(&mut due);
            // With all permits in use, a new search would only find spans that cannot be driven yet.
            // So the loop waits for a permit or the schedule interval. With a free permit the search
            // begins at once.
            if self.is_search_recent(&due) && permits.available_permits() == 0 {
                self.pause_until_permit(&permits).await;
            }
            if due.runs_low(self.options.processing.batch_size) {
                self.poll(&mut due).await;
                if due.is_empty() {
                    self.pause(self.options.processing.interval).await;
                    continue;
                }
            }
            let Some(permit) = self.permit(&permits).await else {
                break;
            };
            let Some((span, claim)) = self.next_due(&mut due) else {
                continue;
            };
            let worker = Arc::clone(self);
            tasks.spawn(async move {
                worker.drive(span).await;
                drop((claim, permit));
            });
        }
        tasks.close();
        tasks.wait().await;
    }

    /// Pauses for the schedule interval; ends early when a permit is free.
    async fn pause_until_permit(&self, permits: &Arc<Semaphore>) {
        let permit = self.permit(permits);
        let paused = tokio::time::timeout(self.options.processing.interval, permit);
        drop(paused.await);
    }

    /// Waits for the permit to drive a span; `None` on shutdown.
    async fn permit(&self, permits: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
        let permit = Arc::clone(permits).acquire_owned();
        self.stop.run_until_cancelled(permit).await?.ok()
    }
}

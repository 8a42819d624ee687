//! The processing loop: looks for due spans (section 6.4 of the paper) and has each driven.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex};

use sampler_domain::{ClosingMonth, Span, SpanId};
use sampler_store::{DueQuery, StoreError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;
use tracing::warn;

use crate::Worker;

/// Spans that this worker has read and not yet let go of: waiting for a slot, or being driven.
#[derive(Clone, Default)]
struct Held(Arc<Mutex<HashSet<SpanId>>>);

/// One span's place among the held; gives it up when dropped.
struct Hold {
    held: Held,
    id: SpanId,
}

impl Held {
    /// Takes hold of a span, unless it is held.
    fn take(&self, id: &SpanId) -> Option<Hold> {
        let new = self
            .0
            .lock()
            .expect("nobody panics with it")
            .insert(id.clone());
        new.then(|| Hold {
            held: self.clone(),
            id: id.clone(),
        })
    }

    fn len(&self) -> usize {
        self.0.lock().expect("nobody panics with it").len()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.held
            .0
            .lock()
            .expect("nobody panics with it")
            .remove(&self.id);
    }
}

impl Worker {
    /// Looks for due spans and has each driven, so many at once as there are slots. What has been
    /// read waits in a short queue, so that a slot that gets free need not wait for the next look.
    pub(crate) async fn process(self: &Arc<Self>) {
        let slots = Arc::new(Semaphore::new(self.options.spans));
        let tasks = TaskTracker::new();
        let held = Held::default();
        let mut queue = VecDeque::new();
        let mut more = true;
        while !self.stop.is_cancelled() {
            if queue.is_empty() || (more && queue.len() <= self.options.process_batch / 2) {
                more = self.look(&held, &mut queue).await;
                if queue.is_empty() {
                    self.pause(self.options.process_interval).await;
                    continue;
                }
            }
            let Some(slot) = self.slot(&slots).await else {
                break;
            };
            let Some((span, kept)) = queue.pop_front() else {
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

    /// Waits for a free slot; none when the worker is told to stop.
    async fn slot(&self, slots: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
        let slot = Arc::clone(slots).acquire_owned();
        self.stop.run_until_cancelled(slot).await?.ok()
    }

    /// Fills the queue with due spans that are not held yet; says whether there may be more.
    async fn look(&self, held: &Held, queue: &mut VecDeque<(Span, Hold)>) -> bool {
        let limit = held.len() + self.options.process_batch;
        match self.due(limit).await {
            Ok(spans) => {
                self.parts.processing.beat();
                let more = spans.len() == limit;
                for span in spans {
                    if queue.len() < self.options.process_batch
                        && let Some(hold) = held.take(&span.id)
                    {
                        queue.push_back((span, hold));
                    }
                }
                more
            }
            Err(error) => {
                let error = anyhow::Error::from(error);
                warn!(error = format!("{error:#}"), "looking for due spans failed");
                false
            }
        }
    }

    async fn due(&self, limit: usize) -> Result<Vec<Span>, StoreError> {
        let partitions = self.share.partitions();
        if partitions.is_empty() {
            return Ok(Vec::new());
        }
        let now = self.now();
        let closing = ClosingMonth::at(now, self.options.month_slack);
        self.parts
            .store
            .due(&DueQuery {
                partitions: &partitions,
                now,
                limit,
                closing,
            })
            .await
    }
}

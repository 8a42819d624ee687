//! The processing loop: finds due spans and drives each.

use std::sync::Arc;
use std::time::Duration;

use sampler_domain::Span;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;

use crate::Worker;
use crate::search::DueQueue;

/// The memory that all large spans may take while they are driven. Each of them is there several
/// times for a short time: as a span, as a usage, and as the bytes for the upstream or for the ledger.
const DRIVEN_BYTES: usize = 4 << 20;

/// A span up to this size is not charged to a budget: the numbers of spans bound those.
const SMALL_SPAN: usize = 4 << 10;

/// The bytes of a span that count against a budget.
pub(crate) fn bytes_of(span: &Span) -> usize {
    let bytes = span.measures.weight();
    if bytes <= SMALL_SPAN { 0 } else { bytes }
}

impl Worker {
    /// Polls for due spans and drives as many at once as there are permits. Spans that were read
    /// wait in a short queue, so that a free permit need not wait for the next poll.
    pub(crate) async fn process(self: &Arc<Self>) {
        let permits = Arc::new(Semaphore::new(self.settings.processing.concurrency));
        let memory = Arc::new(Semaphore::new(DRIVEN_BYTES));
        let tasks = TaskTracker::new();
        let mut due = DueQueue::default();
        while self.wait_until_ready().await {
            if self.is_paused() {
                self.wait_while_paused(&mut due).await;
                continue;
            }
            // With all permits in use, a new search would only find spans that cannot be driven yet.
            // So the loop waits for a permit or the schedule interval. With a free permit the search
            // begins at once.
            if self.is_search_recent(&due) && permits.available_permits() == 0 {
                self.pause_until_permit(&permits).await;
            }
            if due.runs_low(self.settings.processing.batch_size) {
                self.poll(&mut due).await;
                if due.is_empty() {
                    self.sleep(self.settings.processing.interval).await;
                    continue;
                }
            }
            let Some(permit) = self.permit(&permits).await else {
                break;
            };
            let Some((span, read_at, claim)) = due.next() else {
                continue;
            };
            let Some(charge) = self.charge(&memory, &span).await else {
                break;
            };
            // While it waited for memory, spans in progress have yielded to this span, too.
            self.update_spans_wait(&due);
            let worker = Arc::clone(self);
            tasks.spawn(async move {
                let driving = worker.rate.begin();
                let pause = worker.drive(span, read_at, &claim).await;
                drop(driving);
                worker.pause_span(pause, (permit, charge)).await;
                drop(claim);
            });
        }
        tasks.close();
        tasks.wait().await;
    }

    /// Releases the permits of a span. If the store has failed on the span, it pauses: this worker does
    /// not search for it meanwhile; another worker may. A span that pauses needs no permits, unless too
    /// many pause already.
    async fn pause_span<H>(&self, pause: Option<Duration>, held: H) {
        let Some(pause) = pause else { return };
        let paused = self.troubles.pause();
        let held = paused.is_none().then_some(held);
        self.sleep(pause).await;
        drop((held, paused));
    }

    /// Waits briefly while sampling is paused. A pause counts as progress for the health check,
    /// unless the worker only waits because it could not read the control document yet.
    async fn wait_while_paused(&self, due: &mut DueQueue) {
        // The queued spans may be long out of date when sampling resumes.
        self.clear_queue(due);
        if self.steering.is_known() {
            self.parts.processing_progress.report();
        }
        self.sleep(self.periods.paused).await;
    }

    /// Pauses for the schedule interval; ends early when a permit is free.
    async fn pause_until_permit(&self, permits: &Arc<Semaphore>) {
        let permit = self.permit(permits);
        let paused = tokio::time::timeout(self.settings.processing.interval, permit);
        drop(paused.await);
    }

    /// Waits until there is memory to drive the span. A span alone always fits. `None` on shutdown.
    async fn charge(&self, memory: &Arc<Semaphore>, span: &Span) -> Option<OwnedSemaphorePermit> {
        let bytes = bytes_of(span).min(DRIVEN_BYTES);
        let bytes = u32::try_from(bytes).expect("the budget is less");
        if let Ok(charge) = Arc::clone(memory).try_acquire_many_owned(bytes) {
            return Some(charge);
        }
        let charge = Arc::clone(memory).acquire_many_owned(bytes);
        self.stop.run_until_cancelled(charge).await?.ok()
    }

    /// Waits for the permit to drive a span; `None` on shutdown.
    async fn permit(&self, permits: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
        let permit = Arc::clone(permits).acquire_owned();
        self.stop.run_until_cancelled(permit).await?.ok()
    }
}

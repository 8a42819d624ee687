//! Polling for due spans (section 6.4 of the paper), and the queue of spans that wait for a permit to
//! be driven.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use sampler_domain::{ClosingMonth, Span, SpanId};
use sampler_store::{DuePages, DueQuery};
use tokio::time::Instant;
use tracing::warn;

use crate::deliver::ReadAt;
use crate::process::bytes_of;
use crate::{Worker, error_chain};

/// How long a search runs before a new one begins. With a backlog, a span that becomes more urgent
/// or whose retry becomes due waits up to this long until a search can find it.
pub(crate) const SEARCH_LENGTH: Duration = Duration::from_secs(10);

/// The memory that large spans in the queue may take before a further page is read. A page adds a
/// few of them.
const QUEUE_BYTES: usize = 2 << 20;

/// Due spans that wait for a permit, and the search for more.
#[derive(Default)]
pub(crate) struct DueQueue {
    claimed: ClaimedSpans,
    queue: VecDeque<QueuedSpan>,
    search: Option<Search>,
    began: Option<Instant>,
    /// The month that was closing when the spans in the queue were found.
    closing: Option<ClosingMonth>,
}

/// A due span that waits for a permit.
struct QueuedSpan {
    span: Span,
    /// When its page was asked for. What a page leaves in the cursor, because it became too large, was read
    /// with that page: up to [`SEARCH_LENGTH`] earlier.
    read_at: ReadAt,
    claim: Claim,
    /// Whether its next interval belongs to the closing month.
    is_urgent: bool,
}

/// A search that is not exhausted.
struct Search {
    pages: DuePages,
    partitions: Arc<[u32]>,
    began: Instant,
    closing: Option<ClosingMonth>,
}

/// Spans that this worker has claimed: they wait for a permit, or are being driven.
#[derive(Clone, Default)]
struct ClaimedSpans(Arc<Mutex<HashSet<SpanId>>>);

/// The claim to one span. Until it is dropped, the worker ignores the span in searches.
pub(crate) struct Claim {
    claimed: ClaimedSpans,
    id: SpanId,
}

impl ClaimedSpans {
    /// Claims a span, unless it is claimed already.
    fn take(&self, id: &SpanId) -> Option<Claim> {
        let new = self.lock().insert(id.clone());
        new.then(|| Claim {
            claimed: self.clone(),
            id: id.clone(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<SpanId>> {
        self.0.lock().expect("nobody panics with it")
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.claimed.lock().remove(&self.id);
    }
}

impl DueQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether the next page must be read now, so that a free permit does not wait for a span.
    pub(crate) fn runs_low(&self, page: usize) -> bool {
        self.queue.is_empty()
            || (self.search.is_some()
                && self.queue.len() <= page / 2
                && self.bytes() <= QUEUE_BYTES)
    }

    fn bytes(&self) -> usize {
        self.queue.iter().map(|queued| bytes_of(&queued.span)).sum()
    }

    /// The position of the first urgent span.
    fn first_urgent(&self) -> Option<usize> {
        self.queue.iter().position(|queued| queued.is_urgent)
    }
}

impl Worker {
    /// Clears the queue if a month has begun to close, because other spans come first now. Also
    /// clears it while a month closes, if no urgent span waits and the last search is old: a new one
    /// may find an urgent span.
    pub(crate) fn drop_less_urgent(&self, due: &mut DueQueue) {
        let closing = self.closing(self.now());
        let is_old = due
            .began
            .is_some_and(|began| began.elapsed() >= SEARCH_LENGTH);
        let may_be_more = is_old && due.first_urgent().is_none();
        if closing.is_some() && (closing != due.closing || may_be_more) {
            self.clear_queue(due);
        }
        due.closing = closing;
    }

    /// Takes the span to drive next. If a month closes, and no urgent span waits but one has yielded
    /// its permit, a new search comes first.
    pub(crate) fn next_due(&self, due: &mut DueQueue) -> Option<(Span, ReadAt, Claim)> {
        // A month may have begun to close while all permits were in use.
        self.drop_less_urgent(due);
        let urgent = due.first_urgent();
        let has_yielded = self.urgent_has_yielded.load(Ordering::Relaxed);
        if due.closing.is_some() && urgent.is_none() && has_yielded {
            self.clear_queue(due);
        }
        let queued = due.queue.remove(urgent.unwrap_or(0))?;
        Some((queued.span, queued.read_at, queued.claim))
    }

    /// Drops all spans that wait, and the search, so that a new one begins with the most urgent spans.
    pub(crate) fn clear_queue(&self, due: &mut DueQueue) {
        due.queue.clear();
        due.search = None;
        due.began = None;
        self.update_spans_wait(due);
    }

    /// Tells the spans that are being driven whether others wait.
    pub(crate) fn update_spans_wait(&self, due: &DueQueue) {
        self.spans_wait.store(!due.is_empty(), Ordering::Relaxed);
    }

    /// Whether the last search has ended, and began less than a schedule interval ago. A new search
    /// costs the database the index entries of all spans that were done in the last minutes.
    pub(crate) fn is_search_recent(&self, due: &DueQueue) -> bool {
        let is_over = due.search.is_none() && due.queue.is_empty();
        let began = due.began.filter(|_| is_over);
        began.is_some_and(|began| began.elapsed() < self.settings.processing.interval)
    }

    /// Queues the spans that are not claimed yet.
    fn add(&self, due: &mut DueQueue, spans: Vec<Span>, read_at: ReadAt) {
        let now = self.now();
        for span in spans {
            if let Some(claim) = due.claimed.take(&span.id) {
                due.queue.push_back(QueuedSpan {
                    is_urgent: self.is_urgent(&span, now),
                    span,
                    read_at,
                    claim,
                });
            }
        }
        self.update_spans_wait(due);
    }

    /// Queues the next page that has unclaimed spans, if there is one. If the search is exhausted and
    /// the queue is empty, a new search begins; if that finds nothing either, the queue stays empty.
    pub(crate) async fn poll(&self, due: &mut DueQueue) {
        let before = due.queue.len();
        let mut is_new = false;
        while !self.stop.is_cancelled() && due.queue.len() == before {
            let current = due.search.take().filter(|search| self.is_current(search));
            is_new |= current.is_none();
            let mut search = current.unwrap_or_else(|| self.begin_search());
            due.began = Some(search.began);
            let read_at = ReadAt::now(self);
            match search.pages.next().await {
                Some(Ok(spans)) => {
                    self.add(due, spans, read_at);
                    due.search = Some(search);
                }
                Some(Err(error)) => {
                    warn!(
                        code = "search.failed",
                        error = error_chain(&error),
                        "the search for due spans failed"
                    );
                    return;
                }
                // This search found nothing more, and it was new, or spans still wait.
                None if is_new || before > 0 => return self.parts.processing_progress.report(),
                None => {}
            }
            self.parts.processing_progress.report();
        }
    }

    /// Whether a search still has the right partitions and month, and is not too old.
    fn is_current(&self, search: &Search) -> bool {
        Arc::ptr_eq(&search.partitions, &self.ownership.partitions())
            && search.closing == self.closing(self.now())
            && search.began.elapsed() < SEARCH_LENGTH
    }

    fn begin_search(&self) -> Search {
        self.urgent_has_yielded.store(false, Ordering::Relaxed);
        let partitions = self.ownership.partitions();
        let now = self.now();
        let closing = self.closing(now);
        let query = DueQuery {
            partitions: Arc::clone(&partitions),
            now,
            page: self.settings.processing.batch_size,
            closing,
        };
        let pages = if partitions.is_empty() {
            stream::empty().boxed()
        } else {
            self.parts.work.due(query)
        };
        Search {
            pages,
            partitions,
            began: Instant::now(),
            closing,
        }
    }
}

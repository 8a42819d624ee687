//! Polling for due spans (section 6.4 of the paper), and the queue of spans that wait for a permit to
//! be driven.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use sampler_domain::{Span, SpanId};
use sampler_store::{DuePages, DueQuery};
use tokio::time::Instant;
use tracing::warn;

use crate::deliver::ReadAt;
use crate::process::bytes_of;
use crate::{Worker, error_chain};

/// How long a search runs before a new one begins. With a backlog, a span whose retry becomes due
/// waits up to this long until a search can find it.
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
}

/// A due span that waits for a permit.
struct QueuedSpan {
    span: Span,
    /// When its page was asked for. What a page leaves in the cursor, because it became too large, was read
    /// with that page: up to [`SEARCH_LENGTH`] earlier.
    read_at: ReadAt,
    claim: Claim,
}

/// A search that is not exhausted.
struct Search {
    pages: DuePages,
    partitions: Arc<[u32]>,
    began: Instant,
}

/// Spans that this worker has claimed: they wait for a permit, or are being driven.
#[derive(Clone, Default)]
struct ClaimedSpans(Arc<Mutex<Claims>>);

#[derive(Default)]
struct Claims {
    held: HashSet<SpanId>,
    /// The versions that drives have left since the search began. A page that was read earlier names this run
    /// where it may not post any more: its failure has suspended the span meanwhile, and an operator has skipped
    /// the usage.
    left: HashMap<SpanId, i64>,
}

/// The claim to one span. Until it is dropped, the worker ignores the span in searches.
pub(crate) struct Claim {
    claimed: ClaimedSpans,
    id: SpanId,
}

impl ClaimedSpans {
    /// Claims a span, unless it is claimed already, or was read before this worker has changed it.
    fn take(&self, span: &Span) -> Option<Claim> {
        let mut claims = self.lock();
        let left = claims.left.get(&span.id);
        let is_outdated = left.is_some_and(|left| span.processing.version < *left);
        let is_new = !is_outdated && claims.held.insert(span.id.clone());
        is_new.then(|| Claim {
            claimed: self.clone(),
            id: span.id.clone(),
        })
    }

    /// A search begins: all that it reads is newer than what drives have left before.
    fn begin_search(&self) {
        self.lock().left.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Claims> {
        self.0.lock().expect("nobody panics with it")
    }
}

impl Claim {
    /// Notes the version of the span that a drive has left.
    pub(crate) fn leave(&self, version: i64) {
        let mut claims = self.claimed.lock();
        claims.left.insert(self.id.clone(), version);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.claimed.lock().held.remove(&self.id);
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

    /// Takes the span to drive next.
    pub(crate) fn next(&mut self) -> Option<(Span, ReadAt, Claim)> {
        let queued = self.queue.pop_front()?;
        Some((queued.span, queued.read_at, queued.claim))
    }

    fn bytes(&self) -> usize {
        self.queue.iter().map(|queued| bytes_of(&queued.span)).sum()
    }
}

impl Worker {
    /// Drops all spans that wait, and the search, so that a new one begins with those that wait longest.
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
        for span in spans {
            if let Some(claim) = due.claimed.take(&span) {
                due.queue.push_back(QueuedSpan {
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
            let mut search = current.unwrap_or_else(|| {
                due.claimed.begin_search();
                self.begin_search()
            });
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

    /// Whether a search still has the right partitions, and is not too old.
    fn is_current(&self, search: &Search) -> bool {
        Arc::ptr_eq(&search.partitions, &self.ownership.partitions())
            && search.began.elapsed() < SEARCH_LENGTH
    }

    fn begin_search(&self) -> Search {
        let partitions = self.ownership.partitions();
        let query = DueQuery {
            partitions: Arc::clone(&partitions),
            now: self.now(),
            page: self.settings.processing.batch_size,
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
        }
    }
}

#[cfg(test)]
mod tests {
    use sampler_domain::{Measures, StartEvent, Target, Timestamp};

    use super::*;

    fn span(version: i64) -> Span {
        let event = StartEvent {
            id: None,
            timestamp: Timestamp::MIN,
            target: Target::from_store([""; 6]),
            measures: Measures::default(),
        };
        let mut span = Span::open(SpanId::Text("s".to_owned()), event, Timestamp::MIN);
        span.processing.version = version;
        span
    }

    #[test]
    fn a_page_that_was_read_before_a_drive_ended_is_passed_over() {
        let claimed = ClaimedSpans::default();
        let claim = claimed.take(&span(4)).expect("nobody has it");
        assert!(claimed.take(&span(4)).is_none(), "it is being driven");
        claim.leave(6);
        drop(claim);
        assert!(claimed.take(&span(5)).is_none(), "it was read earlier");
        assert!(claimed.take(&span(6)).is_some());
        claimed.begin_search();
        assert!(claimed.take(&span(5)).is_some());
    }
}

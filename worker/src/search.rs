//! Looking for due spans (section 6.4 of the paper), and holding those that were found until they
//! are let go.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use sampler_domain::{ClosingMonth, Span, SpanId};
use sampler_store::{DuePages, DueQuery};
use tokio::time::Instant;
use tracing::warn;

use crate::Worker;

/// How long a search goes on before it is begun anew: what has become more urgent meanwhile, or is
/// to be tried again, waits so long behind a backlog.
const SEARCH_LENGTH: Duration = Duration::from_secs(10);

/// Due spans that wait for a slot, and where to look for more.
#[derive(Default)]
pub(crate) struct Found {
    held: Held,
    queue: VecDeque<Waits>,
    search: Option<Search>,
    /// When the last search was begun, if one was.
    begun: Option<Instant>,
    /// The month that was closing when the spans in the queue were found.
    closing: Option<ClosingMonth>,
}

/// A found span that waits for a slot.
struct Waits {
    span: Span,
    hold: Hold,
    /// Whether it goes on within the month that closes.
    is_urgent: bool,
}

/// A search that has not come to its end.
struct Search {
    pages: DuePages,
    partitions: Arc<[u32]>,
    begun: Instant,
    closing: Option<ClosingMonth>,
}

/// Spans that this worker has read and not yet let go of: waiting for a slot, or being driven.
#[derive(Clone, Default)]
struct Held(Arc<Mutex<HashSet<SpanId>>>);

/// One span's place among the held; gives it up when dropped.
pub(crate) struct Hold {
    held: Held,
    id: SpanId,
}

impl Held {
    /// Takes hold of a span, unless it is held.
    fn take(&self, id: &SpanId) -> Option<Hold> {
        let new = self.lock().insert(id.clone());
        new.then(|| Hold {
            held: self.clone(),
            id: id.clone(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<SpanId>> {
        self.0.lock().expect("nobody panics with it")
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.held.lock().remove(&self.id);
    }
}

impl Found {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether it is time for the next page, so that a slot that gets free finds a span waiting.
    pub(crate) fn runs_low(&self, page: usize) -> bool {
        self.queue.is_empty() || (self.search.is_some() && self.queue.len() <= page / 2)
    }

    /// How many wait, of those that go on within the month that closes or of the others.
    fn count(&self, is_urgent: bool) -> usize {
        let of = |waits: &&Waits| waits.is_urgent == is_urgent;
        self.queue.iter().filter(of).count()
    }
}

impl Worker {
    /// Where a month has begun to close, lets go of all that wait: others may come before them. So,
    /// too, where none that waits goes on within the month that closes, and it is time for a search.
    pub(crate) fn drop_less_urgent(&self, found: &mut Found) {
        let closing = self.closing(self.now());
        let is_old = |begun: Instant| begun.elapsed() >= SEARCH_LENGTH;
        let may_be_more = || found.begun.is_some_and(is_old) && found.count(true) == 0;
        if closing.is_some() && (closing != found.closing || may_be_more()) {
            self.drop_found(found);
        }
        found.closing = closing;
    }

    /// The span that gets a free slot. Where that would go to one that is less urgent than some that
    /// gave theirs back, a search for those comes first.
    pub(crate) fn next_found(&self, found: &mut Found) -> Option<(Span, Hold)> {
        // A month may have begun to close while there was no slot.
        self.drop_less_urgent(found);
        let urgent = found.queue.iter().position(|waits| waits.is_urgent);
        if found.closing.is_some() && urgent.is_none() && self.waiting.is_put_back() {
            self.drop_found(found);
        }
        let waits = found.queue.remove(urgent.unwrap_or(0))?;
        self.waiting
            .limit(waits.is_urgent, found.count(waits.is_urgent));
        Some((waits.span, waits.hold))
    }

    /// Lets go of all that wait, so that a search begins at the front.
    fn drop_found(&self, found: &mut Found) {
        found.queue.clear();
        found.search = None;
        found.begun = None;
        self.waiting.clear();
    }

    /// Whether the next search would be begun right behind the one before, though nothing waits
    /// and nobody gives a slot back. Each begins at the front, where it steps over what was done
    /// within the last minutes.
    pub(crate) fn is_too_early(&self, found: &Found) -> bool {
        let is_over = found.search.is_none() && found.queue.is_empty();
        let begun = found.begun.filter(|_| is_over);
        begun.is_some_and(|begun| begun.elapsed() < self.options.processing.interval)
    }

    /// Takes in those that are not held yet.
    fn add(&self, found: &mut Found, spans: Vec<Span>) {
        let now = self.now();
        for span in spans {
            if let Some(hold) = found.held.take(&span.id) {
                let is_urgent = self.is_urgent(&span, now);
                self.waiting.add(is_urgent);
                found.queue.push_back(Waits {
                    span,
                    hold,
                    is_urgent,
                });
            }
        }
    }

    /// Adds the next page that has spans which are not held yet, if there is one. A search that has
    /// come to its end is begun anew where nothing else is left to do.
    pub(crate) async fn look(&self, found: &mut Found) {
        let before = found.queue.len();
        let mut is_new = false;
        while !self.stop.is_cancelled() && found.queue.len() == before {
            let going_on = found.search.take().filter(|search| self.is_good(search));
            is_new |= going_on.is_none();
            let mut search = going_on.unwrap_or_else(|| self.search());
            found.begun = Some(search.begun);
            match search.pages.next().await {
                Some(Ok(spans)) => {
                    self.add(found, spans);
                    found.search = Some(search);
                }
                Some(Err(error)) => {
                    let error = anyhow::Error::from(error);
                    warn!(error = format!("{error:#}"), "looking for due spans failed");
                    return;
                }
                None if is_new || before > 0 => return self.parts.processing.beat(),
                None => {}
            }
            self.parts.processing.beat();
        }
    }

    /// Whether a search is worth going on with.
    fn is_good(&self, search: &Search) -> bool {
        let is_mine = Arc::ptr_eq(&search.partitions, &self.share.partitions());
        let is_urgent = search.closing == self.closing(self.now());
        is_mine && is_urgent && search.begun.elapsed() < SEARCH_LENGTH
    }

    /// Begins a search.
    fn search(&self) -> Search {
        let partitions = self.share.partitions();
        let options = &self.options;
        let now = self.now();
        let closing = self.closing(now);
        let query = DueQuery {
            partitions: Arc::clone(&partitions),
            now,
            page: options.processing.batch_size,
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
            begun: Instant::now(),
            closing,
        }
    }
}

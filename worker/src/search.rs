//! Looking for due spans (section 6.4 of the paper), and holding those that were found until they
//! are let go.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use sampler_domain::{ClosingMonth, Span, SpanId};
use sampler_settings::millis;
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
    queue: VecDeque<(Span, Hold)>,
    search: Option<Search>,
}

/// A search that has not come to its end.
struct Search {
    pages: DuePages,
    partitions: Arc<[u32]>,
    begun: Instant,
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

    /// The span that has waited longest for a slot.
    pub(crate) fn next(&mut self) -> Option<(Span, Hold)> {
        self.queue.pop_front()
    }

    /// Whether it is time for the next page, so that a slot that gets free finds a span waiting.
    pub(crate) fn runs_low(&self, page: usize) -> bool {
        self.queue.is_empty() || (self.search.is_some() && self.queue.len() <= page / 2)
    }

    /// Takes in those that are not held yet.
    fn add(&mut self, spans: Vec<Span>) {
        for span in spans {
            if let Some(hold) = self.held.take(&span.id) {
                self.queue.push_back((span, hold));
            }
        }
    }
}

impl Worker {
    /// Adds the next page that has spans which are not held yet, if there is one. A search that has
    /// come to its end is begun anew where nothing else is left to do.
    pub(crate) async fn look(&self, found: &mut Found) {
        let before = found.queue.len();
        let mut is_new = false;
        while !self.stop.is_cancelled() && found.queue.len() == before {
            let going_on = found.search.take().filter(|search| self.is_good(search));
            is_new |= going_on.is_none();
            let mut search = going_on.unwrap_or_else(|| self.search());
            match search.pages.next().await {
                Some(Ok(spans)) => {
                    found.add(spans);
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
        is_mine && search.begun.elapsed() < SEARCH_LENGTH
    }

    /// Begins a search.
    fn search(&self) -> Search {
        let partitions = self.share.partitions();
        let options = &self.options;
        let now = self.now();
        let month_slack = millis(options.abacus.month_slack);
        let query = DueQuery {
            partitions: Arc::clone(&partitions),
            now,
            page: options.processing.batch_size,
            closing: ClosingMonth::at(now, month_slack, options.policy.grace),
        };
        let pages = if partitions.is_empty() {
            stream::empty().boxed()
        } else {
            self.parts.store.due(query)
        };
        Search {
            pages,
            partitions,
            begun: Instant::now(),
        }
    }
}

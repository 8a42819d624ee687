//! The store in memory: for tests and the simulation. Its rules are those of the MongoDB store,
//! written the obvious way.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use sampler_domain::partition::partition_of;
use sampler_domain::{EventId, Planned, Policy, Span, SpanId, Target, Timestamp, next_step};

use crate::{
    Adopted, Changed, DueQuery, Failure, NewSpan, NewStop, Next, Page, SpanPages, SpanStore,
    Started, Stopped, StoreError,
};

/// How long a worker counts as alive after a heartbeat, ms.
const WORKER_LIFETIME: i64 = 20_000;

/// A span with what only the store knows of it.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The span.
    pub span: Span,
    /// When it needs a worker next; none where an original Sampler started it.
    pub due_at: Option<Timestamp>,
    /// Why its planned interval could not be delivered.
    pub last_error: Option<String>,
}

#[derive(Debug, Default)]
struct State {
    spans: BTreeMap<SpanId, Kept>,
    workers: BTreeMap<String, Timestamp>,
}

/// A store in memory.
pub struct MemoryStore {
    state: Mutex<State>,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

impl MemoryStore {
    /// An empty store whose own clock (for heartbeats) is `clock`.
    pub fn new(clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self {
            state: Mutex::default(),
            clock: Arc::new(clock),
        }
    }

    /// All that is kept, by id.
    pub fn all(&self) -> Vec<Kept> {
        self.lock().spans.values().cloned().collect()
    }

    /// Puts a span in as an original Sampler leaves it: without a moment at which it is due.
    pub fn insert_original(&self, span: Span) {
        let kept = Kept {
            span,
            due_at: None,
            last_error: None,
        };
        self.lock().spans.insert(kept.span.id.clone(), kept);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .expect("a test that broke a rule has ended")
    }

    /// Makes a change of `processing` if the span still is as it was read.
    fn change(&self, span: &Span, change: impl FnOnce(&mut Kept)) -> Changed {
        let mut state = self.lock();
        let Some(kept) = state.spans.get_mut(&span.id) else {
            return Changed::Lost;
        };
        let unchanged = kept.span.processing.version == span.processing.version
            && kept.span.end == span.end
            && !kept.span.processing.complete;
        if !unchanged {
            return Changed::Lost;
        }
        change(kept);
        Changed::Done(Box::new(kept.span.clone()))
    }
}

impl State {
    fn find(&self, matches: impl Fn(&Span) -> bool) -> Option<&Span> {
        self.spans
            .values()
            .map(|kept| &kept.span)
            .find(|span| matches(span))
    }

    fn open(&self, target: &Target) -> Option<&Span> {
        self.find(|span| span.end.is_none() && span.target == *target)
    }

    fn overlap(&self, target: &Target, start: Timestamp) -> Option<Timestamp> {
        let later = |span: &Span| span.target == *target && span.end > Some(start);
        self.find(later).and_then(|span| span.end)
    }
}

#[async_trait]
impl SpanStore for MemoryStore {
    async fn start(&self, new: NewSpan) -> Result<Started, StoreError> {
        let mut state = self.lock();
        let event = sampler_domain::StartEvent {
            id: new.span.start_id.clone(),
            timestamp: new.span.start,
            target: new.span.target.clone(),
            measures: new.span.measures.clone(),
        };
        if event.id.is_some()
            && let Some(earlier) = state.find(|span| span.start_id == event.id)
        {
            let differences = event.differences(earlier);
            return Ok(if differences.is_empty() {
                Started::Repeated
            } else {
                Started::IdTaken(differences)
            });
        }
        if state.open(&event.target).is_some() {
            return Ok(Started::AlreadyOpen);
        }
        if !new.may_overlap
            && let Some(until) = state.overlap(&event.target, event.timestamp)
        {
            return Ok(Started::Overlaps { until });
        }
        let kept = Kept {
            span: new.span,
            due_at: Some(new.due_at),
            last_error: None,
        };
        let replaced = state.spans.insert(kept.span.id.clone(), kept);
        assert!(replaced.is_none(), "ids of documents are never drawn twice");
        Ok(Started::Opened)
    }

    async fn stop(&self, new: NewStop) -> Result<Stopped, StoreError> {
        let NewStop { event, .. } = new;
        let mut state = self.lock();
        if event.id.is_some()
            && let Some(earlier) = state.find(|span| span.end_id == event.id)
        {
            let differences = event.differences(earlier);
            return Ok(if differences.is_empty() {
                Stopped::Repeated
            } else {
                Stopped::IdTaken(differences)
            });
        }
        let Some(open) = state.open(&event.target) else {
            return Ok(Stopped::NotOpen);
        };
        if event.timestamp < open.start {
            return Ok(Stopped::BeforeStart { start: open.start });
        }
        let id = open.id.clone();
        let kept = state
            .spans
            .get_mut(&id)
            .expect("it was found under the same lock");
        kept.span.end = Some(event.timestamp);
        kept.span.end_id = event.id;
        kept.due_at = Some(
            kept.due_at
                .map_or(event.timestamp, |due| due.min(event.timestamp)),
        );
        Ok(Stopped::Ended)
    }

    async fn started_by(&self, id: &EventId) -> Result<Option<Span>, StoreError> {
        Ok(self
            .lock()
            .find(|span| span.start_id.as_ref() == Some(id))
            .cloned())
    }

    async fn stopped_by(&self, id: &EventId) -> Result<Option<Span>, StoreError> {
        Ok(self
            .lock()
            .find(|span| span.end_id.as_ref() == Some(id))
            .cloned())
    }

    async fn due(&self, query: &DueQuery<'_>) -> Result<Vec<Span>, StoreError> {
        let state = self.lock();
        let mut due: Vec<(u8, Timestamp, &Span)> = Vec::new();
        for Kept { span, due_at, .. } in state.spans.values() {
            let Some(due_at) = due_at.filter(|due_at| *due_at <= query.now) else {
                continue;
            };
            let mine = query.partitions.contains(&partition_of(&span.target));
            if mine && !span.processing.complete {
                due.push((query.urgency(span, due_at), due_at, span));
            }
        }
        due.sort_by_key(|(urgency, due_at, _)| (*urgency, *due_at));
        Ok(due
            .into_iter()
            .take(query.limit)
            .map(|(_, _, span)| span.clone())
            .collect())
    }

    async fn find(&self, id: &SpanId) -> Result<Option<Span>, StoreError> {
        Ok(self.lock().spans.get(id).map(|kept| kept.span.clone()))
    }

    async fn plan(
        &self,
        span: &Span,
        planned: Planned,
        _now: Timestamp,
        due_at: Timestamp,
    ) -> Result<Changed, StoreError> {
        Ok(self.change(span, |kept| {
            kept.span.processing.planned = Some(planned);
            kept.span.processing.version += 1;
            kept.due_at = Some(due_at);
        }))
    }

    async fn executed(
        &self,
        span: &Span,
        next: Next,
        _now: Timestamp,
        due_at: Timestamp,
    ) -> Result<Changed, StoreError> {
        Ok(self.change(span, |kept| {
            kept.span = kept.span.executed();
            match next {
                Next::Planned(planned) => kept.span.processing.planned = Some(planned),
                Next::Wait => {}
                Next::Complete => kept.span.processing.complete = true,
            }
            kept.due_at = Some(due_at);
            kept.last_error = None;
        }))
    }

    async fn complete(&self, span: &Span, _now: Timestamp) -> Result<Changed, StoreError> {
        Ok(self.change(span, |kept| {
            kept.span.processing.complete = true;
            kept.span.processing.version += 1;
        }))
    }

    async fn postpone(&self, span: &Span, due_at: Timestamp) -> Result<Changed, StoreError> {
        Ok(self.change(span, |kept| kept.due_at = Some(due_at)))
    }

    async fn failed(&self, span: &Span, failure: Failure) -> Result<Changed, StoreError> {
        Ok(self.change(span, |kept| {
            kept.span.processing.attempts += 1;
            kept.due_at = Some(failure.retry_at);
            kept.last_error = Some(failure.error);
        }))
    }

    async fn adopt(
        &self,
        policy: &Policy,
        now: Timestamp,
        limit: usize,
    ) -> Result<Adopted, StoreError> {
        let mut state = self.lock();
        let strangers = state
            .spans
            .values_mut()
            .filter(|kept| kept.due_at.is_none() && !kept.span.processing.complete);
        let mut adopted = Adopted::default();
        for kept in strangers.take(limit) {
            kept.due_at = Some(next_step(&kept.span, now, policy).due_at(now));
            adopted.starts += 1;
        }
        Ok(adopted)
    }

    async fn completed_before(
        &self,
        cutoff: Timestamp,
        limit: usize,
    ) -> Result<Vec<SpanId>, StoreError> {
        let state = self.lock();
        let over = state
            .spans
            .values()
            .filter(|kept| kept.span.processing.complete && kept.span.processing.last.end < cutoff);
        Ok(over.take(limit).map(|kept| kept.span.id.clone()).collect())
    }

    async fn remove(&self, ids: &[SpanId]) -> Result<u64, StoreError> {
        let mut state = self.lock();
        let before = state.spans.len();
        state
            .spans
            .retain(|id, kept| !(kept.span.processing.complete && ids.contains(id)));
        Ok((before - state.spans.len()) as u64)
    }

    async fn heartbeat(&self, worker: &str) -> Result<Vec<String>, StoreError> {
        let now = (self.clock)();
        let mut state = self.lock();
        state.workers.insert(worker.to_owned(), now);
        state
            .workers
            .retain(|_, seen_at| now.since(*seen_at) < WORKER_LIFETIME);
        Ok(state.workers.keys().cloned().collect())
    }

    async fn leave(&self, worker: &str) -> Result<(), StoreError> {
        self.lock().workers.remove(worker);
        Ok(())
    }

    async fn ping(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[async_trait]
impl SpanPages for MemoryStore {
    async fn page(&self, after: Option<&SpanId>, limit: usize) -> Result<Page, StoreError> {
        let state = self.lock();
        let behind = (after.map_or(Unbounded, Excluded), Unbounded);
        let spans = state.spans.range::<SpanId, _>(behind).take(limit);
        let spans: Vec<Span> = spans.map(|(_, kept)| kept.span.clone()).collect();
        let last = spans.last().filter(|_| spans.len() == limit);
        Ok(Page {
            next: last.map(|span| span.id.clone()),
            spans,
            unreadable: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::support::{Shared, at};

    #[tokio::test]
    async fn pages_hold_each_span_once() {
        crate::contract::pages_hold_each_span_once(&*store()).await;
    }

    fn store() -> Arc<MemoryStore> {
        Arc::new(MemoryStore::new(|| at(0)))
    }

    crate::store_contract_tests!(std::future::ready(store() as Shared));
}

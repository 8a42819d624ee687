//! The store in memory: for tests and the simulation. Its rules are those of the MongoDB store,
//! written the obvious way: a [`Table`] behind a lock.

/// A port, whose calls are those of the table.
macro_rules! of_table {
    ($port:ident { $($name:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)* } $($rest:tt)*) => {
        #[async_trait]
        impl $port for MemoryStore {
            $(async fn $name(&self, $($argument: $kind),*) -> Result<$answer, StoreError> {
                Ok(self.lock().table.$name($($argument),*))
            })*
            $($rest)*
        }
    };
}

mod operating;
mod reading;
mod table;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt};
use sampler_domain::{CauseId, Change, Changed, Entry, Key, Span, SpanId, Target, Timestamp};
use sampler_store::{
    Alive, AuditPosition, AuditRecord, DuePages, DueQuery, DueWatches, Events, Finished, Ledger,
    LedgerSum, NewSpan, NewStop, Resumption, SpansBy, StartOutcome, StopOutcome, StoreError, Watch,
    WatchOutcome, Work,
};

pub use table::{StoredEntry, StoredSpan, Table};

/// How long a worker counts as alive after a heartbeat, ms.
const WORKER_LIFETIME: i64 = 20_000;

#[derive(Debug, Default)]
struct State {
    table: Table,
    workers: BTreeMap<String, Timestamp>,
    /// Since when receivers take events.
    events_taken_since: Option<Timestamp>,
    steering: operating::Steering,
    audit: BTreeMap<AuditPosition, AuditRecord>,
}

/// A store in memory.
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// How long a worker counts as alive after a heartbeat, ms.
    worker_lifetime: i64,
}

impl MemoryStore {
    /// An empty store whose own clock (for heartbeats) is `clock`.
    pub fn new(clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self {
            state: Arc::default(),
            clock: Arc::new(clock),
            worker_lifetime: WORKER_LIFETIME,
        }
    }

    /// The same, where a worker counts as alive for so long after a heartbeat, ms.
    #[must_use]
    pub fn with_worker_lifetime(self, worker_lifetime: i64) -> Self {
        Self {
            worker_lifetime,
            ..self
        }
    }

    /// All that is kept, by id.
    pub fn all(&self) -> Vec<StoredSpan> {
        self.lock().table.all().cloned().collect()
    }

    /// Puts a span in as it is.
    pub fn put(&self, span: Span) {
        self.lock().table.put(span);
    }

    /// Does something with the table at one moment.
    pub fn with<T>(&self, work: impl FnOnce(&mut Table) -> T) -> T {
        work(&mut self.lock().table)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().expect("a test that broke a rule has ended")
}

#[async_trait]
impl Events for MemoryStore {
    async fn start(&self, new: NewSpan) -> Result<StartOutcome, StoreError> {
        Ok(self.lock().table.start(new))
    }

    async fn stop(&self, new: NewStop) -> Result<StopOutcome, StoreError> {
        Ok(self.lock().table.stop(&new))
    }

    async fn find_spans(&self, target: &Target, by: &SpansBy) -> Result<Vec<Span>, StoreError> {
        let state = self.lock();
        Ok(state
            .table
            .find_spans(target, by)
            .into_iter()
            .cloned()
            .collect())
    }
}

of_table! {
    Work {
        suspended_causes(limit: usize) -> Vec<CauseId>;
        probe(cause: CauseId, resumption: Resumption) -> bool;
    }

    fn due(&self, query: DueQuery) -> DuePages {
        let state = Arc::clone(&self.state);
        let mut reached = None;
        let mut page = move || -> Vec<Span> {
            let state = locked(&state);
            let due = state.table.due(&query).into_iter();
            let behind = due.filter(|(key, _)| reached.as_ref() < Some(key));
            let (mut keys, spans): (Vec<_>, Vec<_>) = behind.take(query.page).unzip();
            reached = keys.pop();
            spans.into_iter().cloned().collect()
        };
        stream::repeat_with(move || Ok(page()))
            .take_while(|page| std::future::ready(page.as_ref().is_ok_and(|page| !page.is_empty())))
            .boxed()
    }

    async fn read(&self, id: &SpanId, target: &Target) -> Result<Option<Span>, StoreError> {
        let state = self.lock();
        let found = state.table.find(id).filter(|span| span.target == *target);
        Ok(found.cloned())
    }

    async fn change(
        &self,
        span: &Span,
        change: &Change,
        _now: Timestamp,
    ) -> Result<Changed, StoreError> {
        Ok(self.lock().table.change(span, change))
    }

    async fn completed_before(
        &self,
        cutoff: Timestamp,
        limit: usize,
    ) -> Result<Vec<Finished>, StoreError> {
        let state = self.lock();
        let ids = state.table.completed_before(cutoff, limit).into_iter();
        let finished = |id: SpanId| {
            let key = Key::of(&state.table.find(&id)?.target);
            Some(Finished { id, key })
        };
        Ok(ids.filter_map(finished).collect())
    }

    async fn remove(&self, finished: &[Finished]) -> Result<u64, StoreError> {
        let ids: Vec<SpanId> = finished.iter().map(|span| span.id.clone()).collect();
        Ok(self.lock().table.remove(&ids))
    }

    async fn limit_event_age(&self, age: i64) -> Result<Timestamp, StoreError> {
        let now = (self.clock)();
        let since = &mut self.lock().events_taken_since;
        *since = (*since).max(Some(now.plus(-age)));
        Ok(now)
    }

    async fn heartbeat(&self, worker: &str) -> Result<Alive, StoreError> {
        let now = (self.clock)();
        let mut state = self.lock();
        state.workers.insert(worker.to_owned(), now);
        state
            .workers
            .retain(|_, seen_at| now.since(*seen_at) < self.worker_lifetime);
        let workers = state.workers.keys().cloned().collect();
        Ok(Alive { workers, now })
    }

    async fn leave(&self, worker: &str) -> Result<(), StoreError> {
        self.lock().workers.remove(worker);
        Ok(())
    }
}

of_table! {
    Ledger {
        write_entry(entry: &Entry, expires_at: Timestamp, watch_at: Option<Timestamp>) -> ();
        sum_of(span: &SpanId, target: &Target) -> LedgerSum;
        due_watches(query: &DueWatches) -> Vec<Watch>;
        claim_watch(watch: &Watch, due_at: Timestamp) -> bool;
    }

    async fn entry(&self, usage_guid: &str) -> Result<Option<Entry>, StoreError> {
        Ok(self.lock().table.entry(usage_guid).cloned())
    }

    async fn settle_watches(&self, outcomes: &[(Watch, WatchOutcome)]) -> Result<(), StoreError> {
        let mut state = self.lock();
        for (watch, outcome) in outcomes {
            state.table.settle_watch(watch, outcome);
        }
        Ok(())
    }
}

//! The store in memory: for tests and the simulation. Its rules are those of the MongoDB store,
//! written the obvious way: a [`Table`] behind a lock.

mod operating;
mod reading;
mod table;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt};
use sampler_domain::{
    Acceptance, Cause, CauseId, Change, Changed, Entry, EntryState, Key, LastError, Resend, Span,
    SpanId, Target, Timestamp,
};
use sampler_store::{
    AuditPosition, AuditRecord, Causes, Confirmation, DuePages, DueQuery, EntryKey, Events,
    Finished, KeptCause, Ledger, NewSpan, NewStop, Probe, Resumption, SpansBy, StartOutcome,
    StopOutcome, StoreError, Unconfirmed, UnconfirmedQuery, Work,
};
use uuid::Uuid;

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
}

impl MemoryStore {
    /// An empty store whose own clock (for heartbeats) is `clock`.
    pub fn new(clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self {
            state: Arc::default(),
            clock: Arc::new(clock),
        }
    }

    /// All that is kept, by id.
    pub fn all(&self) -> Vec<StoredSpan> {
        self.lock().table.all().cloned().collect()
    }

    /// Puts a span in as it is once the original Sampler's collection is taken over.
    pub fn insert_original(&self, span: Span, due_at: Timestamp) {
        self.lock().table.insert_original(span, due_at);
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

#[async_trait]
impl Work for MemoryStore {
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
}

#[async_trait]
impl Ledger for MemoryStore {
    async fn write_entry(&self, entry: Entry, lifetime: i64) -> Result<EntryState, StoreError> {
        Ok(self.lock().table.write_entry(entry, lifetime))
    }

    async fn expire(&self, finished: &[Finished]) -> Result<(), StoreError> {
        let ids: Vec<SpanId> = finished.iter().map(|span| span.id.clone()).collect();
        self.lock().table.expire(&ids);
        Ok(())
    }

    async fn mark_resend(&self, entry: &EntryKey, resend: &Resend) -> Result<bool, StoreError> {
        Ok(self.lock().table.mark_resend(entry, resend))
    }

    async fn withheld_of(&self, entry: &Entry) -> Result<Vec<Entry>, StoreError> {
        Ok(self.lock().table.withheld_of(entry))
    }

    async fn takes_back_uncounted(&self, entry: &Entry) -> Result<bool, StoreError> {
        Ok(self.lock().table.takes_back_uncounted(entry))
    }

    async fn due_resends(&self, now: Timestamp, limit: usize) -> Result<Vec<Entry>, StoreError> {
        Ok(self.lock().table.due_resends(now, limit))
    }

    async fn postpone_resend(
        &self,
        entry: &EntryKey,
        act: Uuid,
        due_at: Timestamp,
    ) -> Result<(), StoreError> {
        self.lock().table.postpone_resend(entry, act, due_at);
        Ok(())
    }

    async fn claim_resend(
        &self,
        entry: &EntryKey,
        read: &Resend,
        due_at: Timestamp,
    ) -> Result<bool, StoreError> {
        Ok(self.lock().table.claim_resend(entry, read, due_at))
    }

    async fn accept_resent(
        &self,
        entry: &Entry,
        acceptance: &Acceptance,
    ) -> Result<bool, StoreError> {
        Ok(self.lock().table.accept_resent(entry, acceptance))
    }

    async fn has_resend(&self, entry: &EntryKey, act: Uuid) -> Result<bool, StoreError> {
        Ok(self.lock().table.has_resend(entry, act))
    }

    async fn end_resend(
        &self,
        entry: &EntryKey,
        act: Uuid,
        refusal: Option<&LastError>,
    ) -> Result<(), StoreError> {
        self.lock().table.end_resend(entry, act, refusal);
        Ok(())
    }

    async fn unconfirmed(&self, query: &UnconfirmedQuery) -> Result<Vec<Unconfirmed>, StoreError> {
        Ok(self.lock().table.unconfirmed(query))
    }

    async fn confirm(&self, confirmed: &[(Unconfirmed, Confirmation)]) -> Result<u64, StoreError> {
        let mut state = self.lock();
        let noted = confirmed
            .iter()
            .filter(|(read, confirmation)| state.table.confirm(read, confirmation));
        Ok(noted.count() as u64)
    }
}

#[async_trait]
impl Causes for MemoryStore {
    async fn register(
        &self,
        cause: &Cause,
        now: Timestamp,
        probe_at: Timestamp,
    ) -> Result<(), StoreError> {
        self.lock().table.register(cause, now, probe_at);
        Ok(())
    }

    async fn register_missing(
        &self,
        now: Timestamp,
        probe_at: Timestamp,
    ) -> Result<u64, StoreError> {
        Ok(self.lock().table.register_missing(now, probe_at))
    }

    async fn due_causes(&self, now: Timestamp, limit: usize) -> Result<Vec<KeptCause>, StoreError> {
        Ok(self.lock().table.due_causes(now, limit))
    }

    async fn claim_probe(&self, cause: &KeptCause, next: Timestamp) -> Result<bool, StoreError> {
        Ok(self.lock().table.claim_probe(cause, next))
    }

    async fn probe(
        &self,
        cause: CauseId,
        resumption: Resumption,
        lasts: i64,
    ) -> Result<Probe, StoreError> {
        Ok(self.lock().table.probe(cause, resumption, lasts))
    }

    async fn begin_resuming(&self, cause: CauseId, now: Timestamp) -> Result<bool, StoreError> {
        Ok(self.lock().table.begin_resuming(cause, now))
    }

    async fn resume_batch(
        &self,
        cause: CauseId,
        until: Timestamp,
        resumption: Resumption,
        limit: usize,
    ) -> Result<u64, StoreError> {
        let mut state = self.lock();
        Ok(state.table.resume_batch(cause, until, resumption, limit))
    }

    async fn set_resuming(&self, cause: &KeptCause, until: Timestamp) -> Result<(), StoreError> {
        self.lock().table.set_resuming(cause, until);
        Ok(())
    }

    async fn end_resuming(&self, cause: &KeptCause) -> Result<(), StoreError> {
        self.lock().table.end_resuming(cause);
        Ok(())
    }

    async fn remove_cause(&self, cause: &KeptCause) -> Result<bool, StoreError> {
        Ok(self.lock().table.remove_cause(cause))
    }
}

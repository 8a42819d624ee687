//! A store in memory whose answers can be held back, spoilt or lost.

use std::future::Future;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use sampler_domain::{EventId, Planned, Policy, Span, SpanId, Timestamp};
use sampler_store::memory::MemoryStore;
use sampler_store::{
    Adopted, Changed, DuePages, DueQuery, Failure, NewSpan, NewStop, Next, SpanStore, Started,
    Stopped, StoreError,
};
use tokio::sync::{Semaphore, watch};

/// What the store's errors say, and no answer may.
pub(crate) const SECRET: &str = "mongodb://sampler:secret@db.internal";

/// What becomes of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// They are answered.
    Served,
    /// They wait until they are let go, then are answered.
    Held,
    /// The store cannot be reached.
    Unavailable,
    /// Too many others wait.
    Overloaded,
    /// They are done, and their answers are lost.
    Lost,
    /// They are not done, and nobody can say so.
    Unknown,
    /// The store refuses.
    Refused,
    /// The call panics.
    Panics,
}

/// The store.
pub(crate) struct Store {
    pub(crate) memory: MemoryStore,
    fate: Mutex<Fate>,
    calls: AtomicUsize,
    held: watch::Sender<usize>,
    gate: Semaphore,
}

impl Store {
    pub(crate) fn new(memory: MemoryStore) -> Self {
        Self {
            memory,
            fate: Mutex::new(Fate::Served),
            calls: AtomicUsize::new(0),
            held: watch::Sender::new(0),
            gate: Semaphore::new(0),
        }
    }

    /// Decides what becomes of calls from now on.
    pub(crate) fn meets(&self, fate: Fate) {
        *self.fate.lock().unwrap() = fate;
    }

    /// How often the store was asked.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    /// Waits until so many calls have been held.
    pub(crate) async fn holds(&self, count: usize) {
        let mut held = self.held.subscribe();
        held.wait_for(|now| *now == count).await.unwrap();
    }

    /// Lets go what is held, and holds nothing more.
    pub(crate) fn release(&self) {
        self.meets(Fate::Served);
        self.gate.close();
    }

    async fn met<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let fate = *self.fate.lock().unwrap();
        match fate {
            Fate::Served => call.await,
            Fate::Held => {
                self.held.send_modify(|held| *held += 1);
                let _ = self.gate.acquire().await;
                call.await
            }
            Fate::Unavailable => Err(StoreError::Unavailable(SECRET.into())),
            Fate::Overloaded => Err(StoreError::Overloaded),
            Fate::Lost => {
                call.await?;
                Err(StoreError::Unknown(SECRET.into()))
            }
            Fate::Unknown => Err(StoreError::Unknown(SECRET.into())),
            Fate::Refused => Err(StoreError::Refused(SECRET.into())),
            Fate::Panics => panic!("{SECRET}"),
        }
    }
}

const NOT_OURS: &str = "a receiver never asks for this";

#[async_trait]
impl SpanStore for Store {
    async fn start(&self, new: NewSpan) -> Result<Started, StoreError> {
        self.met(self.memory.start(new)).await
    }

    async fn stop(&self, new: NewStop) -> Result<Stopped, StoreError> {
        self.met(self.memory.stop(new)).await
    }

    async fn started_by(&self, id: &EventId) -> Result<Option<Span>, StoreError> {
        self.met(self.memory.started_by(id)).await
    }

    async fn stopped_by(&self, id: &EventId) -> Result<Option<Span>, StoreError> {
        self.met(self.memory.stopped_by(id)).await
    }

    fn due(&self, _: DueQuery) -> DuePages {
        unimplemented!("{NOT_OURS}")
    }

    async fn find(&self, _: &SpanId) -> Result<Option<Span>, StoreError> {
        unimplemented!("{NOT_OURS}")
    }

    async fn plan(
        &self,
        _: &Span,
        _: Planned,
        _: Timestamp,
        _: Timestamp,
    ) -> Result<Changed, StoreError> {
        unimplemented!("{NOT_OURS}")
    }

    async fn executed(
        &self,
        _: &Span,
        _: Next,
        _: Timestamp,
        _: Timestamp,
    ) -> Result<Changed, StoreError> {
        unimplemented!("{NOT_OURS}")
    }

    async fn complete(&self, _: &Span, _: Timestamp) -> Result<Changed, StoreError> {
        unimplemented!("{NOT_OURS}")
    }

    async fn postpone(&self, _: &Span, _: Timestamp) -> Result<Changed, StoreError> {
        unimplemented!("{NOT_OURS}")
    }

    async fn failed(&self, _: &Span, _: Failure) -> Result<Changed, StoreError> {
        unimplemented!("{NOT_OURS}")
    }

    async fn adopt(&self, _: &Policy, _: Timestamp, _: usize) -> Result<Adopted, StoreError> {
        unimplemented!("{NOT_OURS}")
    }

    async fn completed_before(&self, _: Timestamp, _: usize) -> Result<Vec<SpanId>, StoreError> {
        unimplemented!("{NOT_OURS}")
    }

    async fn remove(&self, _: &[SpanId]) -> Result<u64, StoreError> {
        unimplemented!("{NOT_OURS}")
    }

    async fn heartbeat(&self, _: &str) -> Result<Vec<String>, StoreError> {
        unimplemented!("{NOT_OURS}")
    }

    async fn leave(&self, _: &str) -> Result<(), StoreError> {
        unimplemented!("{NOT_OURS}")
    }

    async fn announce_slack(&self, past: i64) -> Result<(), StoreError> {
        self.met(self.memory.announce_slack(past)).await
    }

    async fn largest_slack(&self) -> Result<Option<i64>, StoreError> {
        unimplemented!("{NOT_OURS}")
    }

    async fn ping(&self) -> Result<(), StoreError> {
        unimplemented!("{NOT_OURS}")
    }
}

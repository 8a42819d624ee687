//! A store in memory whose answers can be held back, spoilt or lost.

use std::future::Future;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use sampler_domain::{
    CauseId, Change, Changed, Control, Entry, Id, Resend, Span, SpanId, Target, Timestamp,
};
use sampler_store::{
    ActOutcome, AuditPage, AuditQuery, AuditRecord, Backlog, BacklogQuery, CauseQuery,
    ControllerState, Entries, EntryKey, Events, KeptControl, ListedSpan, NewSpan, NewStop,
    Operating, Published, Reading, SpanPage, SpanQuery, SpansBy, StartOutcome, StopOutcome,
    StoreError, SumPage, SumQuery, SuspendedCause,
};
use sampler_store_testing::memory::MemoryStore;
use tokio::sync::{Semaphore, watch};
use tokio::time::interval;
use uuid::Uuid;

/// What the store's errors say, and no answer may.
pub(crate) const SECRET: &str = "mongodb://sampler:secret@db.internal";

/// How the store answers calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// They are answered.
    Served,
    /// They wait until they are let go, then are answered.
    Held,
    /// Events are answered in their order, at a fixed rate, and forgotten.
    Paced,
    /// The store cannot be reached.
    Unavailable,
    /// An index for sums, and for ids of instances, is being made. All else is answered.
    Preparing,
    /// Too many others wait.
    Overloaded,
    /// They are done, and their answers are lost.
    Lost,
    /// They are not done, and nobody can say so.
    Unknown,
    /// The store refuses.
    Refused,
    /// Only reads are served.
    ReadOnly,
    /// The call panics.
    Panics,
}

pub(crate) struct Store {
    pub(crate) memory: MemoryStore,
    behaviour: Mutex<Behaviour>,
    /// For the records of operators' actions, and for the actions themselves.
    record_behaviour: Mutex<Behaviour>,
    change_behaviour: Mutex<Behaviour>,
    /// For all calls once a stop has been answered.
    behaviour_after_stop: Mutex<Option<Behaviour>>,
    calls: AtomicUsize,
    held: watch::Sender<usize>,
    gate: Semaphore,
    pace: Semaphore,
}

impl Store {
    pub(crate) fn new(memory: MemoryStore) -> Self {
        Self {
            memory,
            behaviour: Mutex::new(Behaviour::Served),
            record_behaviour: Mutex::new(Behaviour::Served),
            change_behaviour: Mutex::new(Behaviour::Served),
            behaviour_after_stop: Mutex::new(None),
            calls: AtomicUsize::new(0),
            held: watch::Sender::new(0),
            gate: Semaphore::new(0),
            pace: Semaphore::new(0),
        }
    }

    /// Sets how calls are answered from now on.
    pub(crate) fn set_behaviour(&self, behaviour: Behaviour) {
        *self.behaviour.lock().unwrap() = behaviour;
    }

    /// Sets how records of operators' actions are answered from now on.
    pub(crate) fn set_record_behaviour(&self, behaviour: Behaviour) {
        *self.record_behaviour.lock().unwrap() = behaviour;
    }

    /// Loses the answers to operators' actions from now on.
    pub(crate) fn lose_answers_to_changes(&self) {
        *self.change_behaviour.lock().unwrap() = Behaviour::Lost;
    }

    /// Sets how calls are answered after the next stop.
    pub(crate) fn set_behaviour_after_next_stop(&self, behaviour: Behaviour) {
        *self.behaviour_after_stop.lock().unwrap() = Some(behaviour);
    }

    /// How often the store was asked.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    /// Waits until `count` calls have been held.
    pub(crate) async fn wait_until_held(&self, count: usize) {
        let mut held = self.held.subscribe();
        held.wait_for(|now| *now == count).await.unwrap();
    }

    /// Lets go what is held, and holds nothing more.
    pub(crate) fn release(&self) {
        self.set_behaviour(Behaviour::Served);
        self.gate.close();
    }

    /// Answers `calls` calls in each `period`, for ever.
    pub(crate) async fn keep_pace(&self, calls: usize, period: Duration) {
        self.set_behaviour(Behaviour::Paced);
        let mut ticks = interval(period);
        loop {
            ticks.tick().await;
            // What nobody has asked for in time cannot be had later.
            self.pace.forget_permits(usize::MAX);
            self.pace.add_permits(calls);
        }
    }

    /// Whether calls are paced; then waits for the turn of this one.
    async fn is_paced(&self) -> bool {
        let is_paced = *self.behaviour.lock().unwrap() == Behaviour::Paced;
        if is_paced {
            self.pace.acquire().await.unwrap().forget();
        }
        is_paced
    }

    fn refuse_write(&self) -> Result<(), StoreError> {
        if *self.behaviour.lock().unwrap() == Behaviour::ReadOnly {
            return Err(StoreError::Refused(SECRET.into()));
        }
        Ok(())
    }

    fn require_index(&self) -> Result<(), StoreError> {
        if *self.behaviour.lock().unwrap() == Behaviour::Preparing {
            return Err(StoreError::Preparing);
        }
        Ok(())
    }

    async fn respond<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let behaviour = *self.behaviour.lock().unwrap();
        self.respond_as(behaviour, call).await
    }

    async fn respond_as<T>(
        &self,
        behaviour: Behaviour,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        match behaviour {
            Behaviour::Served | Behaviour::Paced | Behaviour::Preparing | Behaviour::ReadOnly => {
                call.await
            }
            Behaviour::Held => {
                self.held.send_modify(|held| *held += 1);
                // Closed, it lets all go.
                if let Ok(permit) = self.gate.acquire().await {
                    permit.forget();
                }
                call.await
            }
            Behaviour::Unavailable => Err(StoreError::Unavailable(SECRET.into())),
            Behaviour::Overloaded => Err(StoreError::Overloaded),
            Behaviour::Lost => {
                call.await?;
                Err(StoreError::Unknown(SECRET.into()))
            }
            Behaviour::Unknown => Err(StoreError::Unknown(SECRET.into())),
            Behaviour::Refused => Err(StoreError::Refused(SECRET.into())),
            Behaviour::Panics => panic!("{SECRET}"),
        }
    }
}

/// A port of the store. Calls that are named alone behave like all others.
macro_rules! pass_on {
    ($port:ident { $($name:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)* } $($rest:tt)*) => {
        #[async_trait]
        impl $port for Store {
            $(async fn $name(&self, $($argument: $kind),*) -> Result<$answer, StoreError> {
                self.respond(self.memory.$name($($argument),*)).await
            })*
            $($rest)*
        }
    };
}

pass_on! {
    Reading {
        spans(query: &SpanQuery) -> SpanPage;
        span(id: &str, resources: Option<&[Id]>) -> Option<ListedSpan>;
        newest_spans(limit: usize) -> Vec<ListedSpan>;
        causes(query: &CauseQuery) -> Vec<SuspendedCause>;
        cause(id: CauseId) -> Option<SuspendedCause>;
        usages(span: &SpanId, target: &Target, after: Option<i64>, limit: usize) -> Entries;
        usages_from_end(span: &SpanId, target: &Target, before: Option<i64>, limit: usize) -> Entries;
        usage(id: &str) -> Option<Entry>;
        is_refused(usage: &str) -> bool;
        audit(query: &AuditQuery) -> AuditPage;
    }

    async fn sums(&self, query: &SumQuery) -> Result<SumPage, StoreError> {
        self.require_index()?;
        self.respond(self.memory.sums(query)).await
    }
}

pass_on! {
    Operating {
        resume_by_operator(cause: CauseId) -> bool;
        record_outcome(id: Uuid, outcome: ActOutcome) -> ();
        count_backlog(query: &BacklogQuery) -> Backlog;
        publish_backlog(backlog: &Backlog) -> ();
        published_backlog() -> Option<Published<Backlog>>;
        events_taken_since() -> Timestamp;
        report_rate(worker: &str, rate: f64) -> ();
        control() -> KeptControl;
        set_control(control: &Control, version: i64) -> bool;
        controller() -> Option<Published<ControllerState>>;
        set_controller(state: &ControllerState) -> bool;
    }

    async fn change_by_operator(
        &self,
        act: Uuid,
        span: &Span,
        change: &Change,
        now: Timestamp,
    ) -> Result<Changed, StoreError> {
        let behaviour = *self.change_behaviour.lock().unwrap();
        let call = self.memory.change_by_operator(act, span, change, now);
        self.respond_as(behaviour, call).await
    }

    async fn resend_by_operator(
        &self,
        entry: &EntryKey,
        resend: &Resend,
    ) -> Result<bool, StoreError> {
        let behaviour = *self.change_behaviour.lock().unwrap();
        let call = self.memory.resend_by_operator(entry, resend);
        self.respond_as(behaviour, call).await
    }

    async fn record_action(&self, record: &AuditRecord) -> Result<(), StoreError> {
        let behaviour = *self.record_behaviour.lock().unwrap();
        self.respond_as(behaviour, self.memory.record_action(record))
            .await
    }
}

pass_on! {
    Events {
        find_spans(target: &Target, by: &SpansBy) -> Vec<Span>;
    }

    async fn start(&self, new: NewSpan) -> Result<StartOutcome, StoreError> {
        self.refuse_write()?;
        if self.is_paced().await {
            return Ok(StartOutcome::Opened);
        }
        self.respond(self.memory.start(new)).await
    }

    async fn stop(&self, new: NewStop) -> Result<StopOutcome, StoreError> {
        self.refuse_write()?;
        if self.is_paced().await {
            return Ok(StopOutcome::Ended);
        }
        let stopped = self.respond(self.memory.stop(new)).await;
        if let Some(behaviour) = self.behaviour_after_stop.lock().unwrap().take() {
            self.set_behaviour(behaviour);
        }
        stopped
    }

}

//! A store in memory whose answers can be held back, spoilt or lost.

use std::future::{Future, pending};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use sampler_domain::partition::{partition_of, range_of};
use sampler_domain::{
    CauseId, Change, Changed, Control, Entry, EventId, Id, Resend, Span, SpanId, Target, Timestamp,
};
use sampler_store::{
    ActOutcome, AuditPage, AuditQuery, AuditRecord, Backlog, BacklogQuery, CauseQuery,
    ControllerState, Entries, EntryKey, Events, IdKind, Instance, KeptControl, ListedSpan, Lookup,
    NewSpan, NewStop, Operating, Page, Published, ReadConcern, Reading, Replication, SeenInstance,
    SpanPage, SpanQuery, StartOutcome, StopOutcome, StoreError, SumPage, SumQuery, SuspendedCause,
};
use sampler_store_testing::memory::MemoryStore;
use tokio::sync::{Semaphore, watch};
use tokio::time::interval;
use uuid::Uuid;

/// What the store's errors say, and no answer may.
pub(crate) const SECRET: &str = "mongodb://sampler:secret@db.internal";

/// What becomes of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// They are answered.
    Served,
    /// They wait until they are let go, then are answered.
    Held,
    /// Events are answered in their order, so many a second, and forgotten.
    Paced,
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
    /// An index of the original has the id, for another target.
    TakenElsewhere,
    /// Only reads are served.
    ReadOnly,
    /// The call panics.
    Panics,
}

pub(crate) struct Store {
    pub(crate) memory: MemoryStore,
    fate: Mutex<Fate>,
    /// What becomes of records of acts, and of the acts themselves.
    fate_of_records: Mutex<Fate>,
    fate_of_changes: Mutex<Fate>,
    /// What becomes of the next stop.
    fate_of_next_stop: Mutex<Option<Fate>>,
    /// What becomes of calls once a stop has been answered.
    fate_after_stop: Mutex<Option<Fate>>,
    /// What becomes of calls once a page of spans has been answered.
    fate_after_page: Mutex<Option<Fate>>,
    calls: AtomicUsize,
    held: watch::Sender<usize>,
    gate: Semaphore,
    /// One for each range.
    paces: Vec<Semaphore>,
    /// A range that answers nothing.
    frozen: Mutex<Option<usize>>,
}

impl Store {
    /// A store of so many ranges.
    pub(crate) fn divided(memory: MemoryStore, ranges: usize) -> Self {
        Self {
            memory,
            fate: Mutex::new(Fate::Served),
            fate_of_records: Mutex::new(Fate::Served),
            fate_of_changes: Mutex::new(Fate::Served),
            fate_of_next_stop: Mutex::new(None),
            fate_after_stop: Mutex::new(None),
            fate_after_page: Mutex::new(None),
            calls: AtomicUsize::new(0),
            held: watch::Sender::new(0),
            gate: Semaphore::new(0),
            paces: (0..ranges).map(|_| Semaphore::new(0)).collect(),
            frozen: Mutex::new(None),
        }
    }

    /// Decides what becomes of calls from now on.
    pub(crate) fn meets(&self, fate: Fate) {
        *self.fate.lock().unwrap() = fate;
    }

    /// Decides what becomes of records of acts from now on.
    pub(crate) fn meets_acts(&self, fate: Fate) {
        *self.fate_of_records.lock().unwrap() = fate;
    }

    /// Loses the answers to acts from now on.
    pub(crate) fn loses_changes(&self) {
        *self.fate_of_changes.lock().unwrap() = Fate::Lost;
    }

    /// Decides what becomes of the next stop alone.
    pub(crate) fn next_stop_meets(&self, fate: Fate) {
        *self.fate_of_next_stop.lock().unwrap() = Some(fate);
    }

    /// Decides what becomes of calls after the next stop.
    pub(crate) fn meets_after_next_stop(&self, fate: Fate) {
        *self.fate_after_stop.lock().unwrap() = Some(fate);
    }

    /// Decides what becomes of calls after the next page of spans.
    pub(crate) fn meets_after_next_page(&self, fate: Fate) {
        *self.fate_after_page.lock().unwrap() = Some(fate);
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

    /// Lets go the call that was held first.
    pub(crate) fn release_one(&self) {
        self.gate.add_permits(1);
    }

    /// Lets go what is held, and holds nothing more.
    pub(crate) fn release(&self) {
        self.meets(Fate::Served);
        self.gate.close();
    }

    /// Has a range answer nothing from now on.
    pub(crate) fn freeze(&self, range: usize) {
        *self.frozen.lock().unwrap() = Some(range);
    }

    /// Answers so many calls of each range each time that so long has passed, for ever.
    pub(crate) async fn keep_pace(&self, calls: usize, period: Duration) {
        self.meets(Fate::Paced);
        let mut ticks = interval(period);
        loop {
            ticks.tick().await;
            // What nobody has asked for in time cannot be had later.
            for pace in &self.paces {
                pace.forget_permits(usize::MAX);
                pace.add_permits(calls);
            }
        }
    }

    /// Whether calls are paced; then waits for the turn of this one.
    async fn is_paced(&self, target: &Target) -> bool {
        let range = self.range_of(target);
        let is_frozen = *self.frozen.lock().unwrap() == Some(range);
        if is_frozen {
            pending::<()>().await;
        }
        let is_paced = *self.fate.lock().unwrap() == Fate::Paced;
        if is_paced {
            self.paces[range].acquire().await.unwrap().forget();
        }
        is_paced
    }

    fn is_taken_elsewhere(&self) -> bool {
        *self.fate.lock().unwrap() == Fate::TakenElsewhere
    }

    fn refuse_write(&self) -> Result<(), StoreError> {
        if *self.fate.lock().unwrap() == Fate::ReadOnly {
            return Err(StoreError::Refused(SECRET.into()));
        }
        Ok(())
    }

    async fn met<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let fate = *self.fate.lock().unwrap();
        self.met_as(fate, call).await
    }

    async fn met_as<T>(
        &self,
        fate: Fate,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        match fate {
            Fate::Served | Fate::TakenElsewhere | Fate::Paced | Fate::ReadOnly => call.await,
            Fate::Held => {
                self.held.send_modify(|held| *held += 1);
                // Closed, it lets all go.
                if let Ok(permit) = self.gate.acquire().await {
                    permit.forget();
                }
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

#[async_trait]
impl Reading for Store {
    async fn spans(&self, query: &SpanQuery) -> Result<SpanPage, StoreError> {
        let page = self.met(self.memory.spans(query)).await;
        if let Some(fate) = self.fate_after_page.lock().unwrap().take() {
            self.meets(fate);
        }
        page
    }

    async fn span(
        &self,
        id: &str,
        resources: Option<&[Id]>,
    ) -> Result<Option<ListedSpan>, StoreError> {
        self.met(self.memory.span(id, resources)).await
    }

    async fn newest_spans(&self, limit: usize) -> Result<Vec<ListedSpan>, StoreError> {
        self.met(self.memory.newest_spans(limit)).await
    }

    async fn ids(&self, field: &str, prefix: &str, limit: usize) -> Result<Vec<Id>, StoreError> {
        self.met(self.memory.ids(field, prefix, limit)).await
    }

    async fn causes(&self, query: &CauseQuery) -> Result<Vec<SuspendedCause>, StoreError> {
        self.met(self.memory.causes(query)).await
    }

    async fn cause(&self, id: CauseId) -> Result<Option<SuspendedCause>, StoreError> {
        self.met(self.memory.cause(id)).await
    }

    async fn usages(
        &self,
        span: &SpanId,
        target: &Target,
        after: Option<i64>,
        limit: usize,
    ) -> Result<Entries, StoreError> {
        self.met(self.memory.usages(span, target, after, limit))
            .await
    }

    async fn usages_from_end(
        &self,
        span: &SpanId,
        target: &Target,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Entries, StoreError> {
        self.met(self.memory.usages_from_end(span, target, before, limit))
            .await
    }

    async fn usage(&self, id: &str) -> Result<Option<Entry>, StoreError> {
        self.met(self.memory.usage(id)).await
    }

    async fn is_refused(&self, usage: &str) -> Result<bool, StoreError> {
        self.met(self.memory.is_refused(usage)).await
    }

    async fn sums(&self, query: &SumQuery) -> Result<SumPage, StoreError> {
        self.met(self.memory.sums(query)).await
    }

    async fn audit(&self, query: &AuditQuery) -> Result<AuditPage, StoreError> {
        self.met(self.memory.audit(query)).await
    }

    async fn instances(&self) -> Result<Vec<SeenInstance>, StoreError> {
        self.met(self.memory.instances()).await
    }

    async fn page_of_spans(
        &self,
        after: Option<&SpanId>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.met(self.memory.page_of_spans(after, limit)).await
    }
}

#[async_trait]
impl Operating for Store {
    async fn change_by_operator(
        &self,
        act: Uuid,
        span: &Span,
        change: &Change,
        now: Timestamp,
    ) -> Result<Changed, StoreError> {
        let fate = *self.fate_of_changes.lock().unwrap();
        let call = self.memory.change_by_operator(act, span, change, now);
        self.met_as(fate, call).await
    }

    async fn resume_by_operator(&self, cause: CauseId, now: Timestamp) -> Result<bool, StoreError> {
        self.met(self.memory.resume_by_operator(cause, now)).await
    }

    async fn resend_by_operator(
        &self,
        entry: &EntryKey,
        resend: &Resend,
    ) -> Result<bool, StoreError> {
        let fate = *self.fate_of_changes.lock().unwrap();
        let call = self.memory.resend_by_operator(entry, resend);
        self.met_as(fate, call).await
    }

    async fn record_act(&self, record: &AuditRecord) -> Result<(), StoreError> {
        let fate = *self.fate_of_records.lock().unwrap();
        self.met_as(fate, self.memory.record_act(record)).await
    }

    async fn settle_act(&self, id: Uuid, outcome: ActOutcome) -> Result<(), StoreError> {
        self.met(self.memory.settle_act(id, outcome)).await
    }

    async fn count_backlog(&self, query: &BacklogQuery) -> Result<Backlog, StoreError> {
        self.met(self.memory.count_backlog(query)).await
    }

    async fn publish_backlog(&self, backlog: &Backlog) -> Result<(), StoreError> {
        self.met(self.memory.publish_backlog(backlog)).await
    }

    async fn published_backlog(&self) -> Result<Option<Published<Backlog>>, StoreError> {
        self.met(self.memory.published_backlog()).await
    }

    async fn report_rate(&self, worker: &str, rate: f64) -> Result<(), StoreError> {
        self.met(self.memory.report_rate(worker, rate)).await
    }

    async fn report_instance(&self, instance: &Instance) -> Result<(), StoreError> {
        self.met(self.memory.report_instance(instance)).await
    }

    async fn withdraw_instance(&self, name: &str) -> Result<(), StoreError> {
        self.met(self.memory.withdraw_instance(name)).await
    }

    async fn control(&self) -> Result<KeptControl, StoreError> {
        self.met(self.memory.control()).await
    }

    async fn set_control(&self, control: &Control, version: i64) -> Result<bool, StoreError> {
        self.met(self.memory.set_control(control, version)).await
    }

    async fn controller(&self) -> Result<Option<Published<ControllerState>>, StoreError> {
        self.met(self.memory.controller()).await
    }

    async fn set_controller(&self, state: &ControllerState) -> Result<bool, StoreError> {
        self.met(self.memory.set_controller(state)).await
    }
}

#[async_trait]
impl Replication for Store {
    async fn commit_lag(&self) -> Result<Option<i64>, StoreError> {
        self.met(self.memory.commit_lag()).await
    }
}

#[async_trait]
impl Events for Store {
    async fn start(&self, new: NewSpan) -> Result<StartOutcome, StoreError> {
        if self.is_taken_elsewhere() {
            return Ok(StartOutcome::IdTakenElsewhere);
        }
        self.refuse_write()?;
        if self.is_paced(&new.span.target).await {
            return Ok(StartOutcome::Opened);
        }
        self.met(self.memory.start(new)).await
    }

    async fn stop(&self, new: NewStop) -> Result<StopOutcome, StoreError> {
        if self.is_taken_elsewhere() {
            return Ok(StopOutcome::IdTakenElsewhere);
        }
        self.refuse_write()?;
        if self.is_paced(&new.event.target).await {
            return Ok(StopOutcome::Ended);
        }
        let fate = self.fate_of_next_stop.lock().unwrap().take();
        let fate = fate.unwrap_or(*self.fate.lock().unwrap());
        let stopped = self.met_as(fate, self.memory.stop(new)).await;
        if let Some(fate) = self.fate_after_stop.lock().unwrap().take() {
            self.meets(fate);
        }
        stopped
    }

    async fn look_up(
        &self,
        target: &Target,
        by: &Lookup,
        concern: ReadConcern,
    ) -> Result<Vec<Span>, StoreError> {
        self.met(self.memory.look_up(target, by, concern)).await
    }

    async fn is_id_taken_elsewhere(
        &self,
        _: IdKind,
        _: &Target,
        _: &EventId,
    ) -> Result<bool, StoreError> {
        Ok(Store::is_taken_elsewhere(self))
    }

    fn ranges(&self) -> usize {
        self.paces.len()
    }

    fn range_of(&self, target: &Target) -> usize {
        range_of(partition_of(target), self.paces.len())
    }

    async fn announce_slack(&self, past: i64) -> Result<(), StoreError> {
        self.met(self.memory.announce_slack(past)).await
    }
}

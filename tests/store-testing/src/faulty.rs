//! Fault injection: a store that fails the calls that a test picks.

use std::sync::Arc;

use async_trait::async_trait;
use sampler_domain::{
    CauseId, Change, Changed, Control, Entry, Id, Span, SpanId, Target, Timestamp,
};
use sampler_store::{
    ActOutcome, Alive, AuditPage, AuditQuery, AuditRecord, Backlog, BacklogQuery, CauseQuery,
    ControllerState, CutUsage, DuePages, DueQuery, DueWatches, Entries, EntryOrder, EntryPosition,
    Events, Finished, KeptControl, Ledger, LedgerSum, NewSpan, NewStop, Operating, Published,
    Reading, Resumption, SpanPage, SpanQuery, SpansBy, StartOutcome, StopOutcome, StoreError,
    SumPage, SumQuery, SuspendedCause, Watch, WatchOutcome, WatchPage, WatchQuery, Work,
};
use uuid::Uuid;

use crate::memory::MemoryStore;

/// A fault of a call.
pub enum Fault {
    /// The call is not carried out.
    NotDone(StoreError),
    /// The call is carried out, and its answer is lost.
    AnswerLost(StoreError),
}

/// Picks the calls that fail.
#[async_trait]
pub trait Faults: Send + Sync + 'static {
    /// The fault of a call of this method with these arguments, as `Debug` writes them. The call is
    /// carried out after this returns, so it can also be delayed here.
    async fn fault(&self, method: &'static str, arguments: String) -> Option<Fault>;
}

#[async_trait]
impl<F: Fn(&'static str, String) -> Option<Fault> + Send + Sync + 'static> Faults for F {
    async fn fault(&self, method: &'static str, arguments: String) -> Option<Fault> {
        self(method, arguments)
    }
}

/// A store in memory, some of whose calls fail.
pub struct FaultyStore {
    store: Arc<MemoryStore>,
    faults: Arc<dyn Faults>,
}

impl FaultyStore {
    pub fn new(store: Arc<MemoryStore>, faults: impl Faults) -> Arc<Self> {
        let faults = Arc::new(faults);
        Arc::new(Self { store, faults })
    }

    async fn call<T>(
        &self,
        method: &'static str,
        arguments: String,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        match self.faults.fault(method, arguments).await {
            None => call.await,
            Some(Fault::NotDone(error)) => Err(error),
            Some(Fault::AnswerLost(error)) => call.await.and(Err(error)),
        }
    }
}

/// A port, whose calls are passed on where they do not fail.
macro_rules! pass_on {
    ($port:ident { $($name:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)* } $($rest:tt)*) => {
        #[async_trait]
        impl $port for FaultyStore {
            $(async fn $name(&self, $($argument: $kind),*) -> Result<$answer, StoreError> {
                let arguments = format!("{:?}", ($(&$argument,)*));
                let call = self.store.$name($($argument),*);
                self.call(stringify!($name), arguments, call).await
            })*
            $($rest)*
        }
    };
}

pass_on! {
    Work {
        read(id: &SpanId, target: &Target) -> Option<Span>;
        change(read: &Span, change: &Change, now: Timestamp) -> Changed;
        suspended_causes(limit: usize) -> Vec<CauseId>;
        probe(cause: CauseId, resumption: Resumption) -> bool;
        completed_before(cutoff: Timestamp, limit: usize) -> Vec<Finished>;
        remove(finished: &[Finished]) -> u64;
        limit_event_age(age: i64) -> Timestamp;
        heartbeat(worker: &str) -> Alive;
        leave(worker: &str) -> ();
    }

    fn due(&self, query: DueQuery) -> DuePages {
        self.store.due(query)
    }
}

pass_on! {
    Events {
        start(new: NewSpan) -> StartOutcome;
        stop(new: NewStop) -> StopOutcome;
        find_spans(target: &Target, by: &SpansBy) -> Vec<Span>;
    }
}

pass_on! {
    Reading {
        spans(query: &SpanQuery) -> SpanPage;
        newest_spans(limit: usize) -> Vec<Span>;
        span(id: &str, resources: Option<&[Id]>) -> Option<Span>;
        causes(query: &CauseQuery) -> Vec<SuspendedCause>;
        cause(id: CauseId) -> Option<SuspendedCause>;
        usages(
            span: &SpanId,
            target: &Target,
            order: EntryOrder,
            after: Option<&EntryPosition>,
            limit: usize
        ) -> Entries;
        ledger_of(span: &SpanId, target: &Target) -> LedgerSum;
        unconfirmed(query: &WatchQuery) -> WatchPage;
        watch(usage_guid: &str) -> Option<Watch>;
        sums(query: &SumQuery) -> Result<SumPage, CutUsage>;
        audit(query: &AuditQuery) -> AuditPage;
    }
}

pass_on! {
    Ledger {
        write_entry(entry: &Entry, expires_at: Timestamp, watch_at: Option<Timestamp>) -> ();
        entry(usage_guid: &str) -> Option<Entry>;
        sum_of(span: &SpanId, target: &Target) -> LedgerSum;
        due_watches(query: &DueWatches) -> Vec<Watch>;
        claim_watch(watch: &Watch, due_at: Timestamp) -> bool;
        settle_watches(outcomes: &[(Watch, WatchOutcome)]) -> ();
    }
}

pass_on! {
    Operating {
        record_action(record: &AuditRecord) -> ();
        record_outcome(id: Uuid, outcome: ActOutcome) -> ();
        change_by_operator(read: &Span, change: &Change, now: Timestamp) -> Changed;
        resume_batch(cause: CauseId, until: Timestamp, resumption: Resumption, limit: usize) -> u64;
        resend_missing(usage_guid: &str, now: Timestamp) -> bool;
        time() -> Timestamp;
        control() -> KeptControl;
        set_control(control: &Control, version: i64) -> bool;
        controller() -> Option<Published<ControllerState>>;
        set_controller(state: &ControllerState) -> bool;
        count_backlog(query: &BacklogQuery) -> Backlog;
        publish_backlog(backlog: &Backlog) -> ();
        published_backlog() -> Option<Published<Backlog>>;
        events_taken_since() -> Timestamp;
        report_rate(worker: &str, rate: f64) -> ();
    }
}

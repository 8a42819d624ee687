//! Fault injection: a store that fails the calls that a test picks.

use std::sync::Arc;

use async_trait::async_trait;
use sampler_domain::{
    Acceptance, CauseId, Change, Changed, Control, Entry, EntryState, Id, LastError, Resend, Span,
    SpanId, Target, Timestamp,
};
use sampler_store::{
    ActOutcome, AuditPage, AuditQuery, AuditRecord, Backlog, BacklogQuery, CauseQuery,
    Confirmation, ControllerState, DuePages, DueQuery, Entries, EntryKey, Events, Finished,
    KeptControl, Ledger, ListedSpan, NewSpan, NewStop, Operating, Published, Reading, SpanPage,
    SpanQuery, SpansBy, StartOutcome, StopOutcome, StoreError, SumPage, SumQuery, SuspendedCause,
    Unconfirmed, UnconfirmedQuery, Work,
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
        change(span: &Span, change: &Change, now: Timestamp) -> Changed;
        completed_before(cutoff: Timestamp, limit: usize) -> Vec<Finished>;
        remove(finished: &[Finished]) -> u64;
        limit_event_age(age: i64) -> Timestamp;
        heartbeat(worker: &str) -> Vec<String>;
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
        newest_spans(limit: usize) -> Vec<ListedSpan>;
        span(id: &str, resources: Option<&[Id]>) -> Option<ListedSpan>;
        causes(query: &CauseQuery) -> Vec<SuspendedCause>;
        cause(id: CauseId) -> Option<SuspendedCause>;
        usages(span: &SpanId, target: &Target, after: Option<i64>, limit: usize) -> Entries;
        usages_from_end(span: &SpanId, target: &Target, before: Option<i64>, limit: usize) -> Entries;
        usage(id: &str) -> Option<Entry>;
        is_refused(usage: &str) -> bool;
        sums(query: &SumQuery) -> SumPage;
        audit(query: &AuditQuery) -> AuditPage;
    }
}

pass_on! {
    Ledger {
        write_entry(entry: Entry, lifetime: i64) -> EntryState;
        expire(finished: &[Finished]) -> ();
        mark_resend(entry: &EntryKey, resend: &Resend) -> bool;
        withheld_of(entry: &Entry) -> Vec<Entry>;
        takes_back_uncounted(entry: &Entry) -> bool;
        due_resends(now: Timestamp, limit: usize) -> Vec<Entry>;
        postpone_resend(entry: &EntryKey, act: Uuid, due_at: Timestamp) -> ();
        claim_resend(entry: &EntryKey, read: &Resend, due_at: Timestamp) -> bool;
        accept_resent(entry: &Entry, acceptance: &Acceptance) -> bool;
        has_resend(entry: &EntryKey, act: Uuid) -> bool;
        end_resend(entry: &EntryKey, act: Uuid, refusal: Option<&LastError>) -> ();
        unconfirmed(query: &UnconfirmedQuery) -> Vec<Unconfirmed>;
        confirm(confirmed: &[(Unconfirmed, Confirmation)]) -> u64;
    }
}

pass_on! {
    Operating {
        record_action(record: &AuditRecord) -> ();
        record_outcome(id: Uuid, outcome: ActOutcome) -> ();
        change_by_operator(act: Uuid, span: &Span, change: &Change, now: Timestamp) -> Changed;
        resume_by_operator(cause: CauseId) -> bool;
        resend_by_operator(entry: &EntryKey, resend: &Resend) -> bool;
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

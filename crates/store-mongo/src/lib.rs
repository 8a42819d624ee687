//! The MongoDB store: one document per span, as in the paper (figure 6.1, tables 6.2 and 6.3), so
//! that the collection of an original Sampler can be taken over in place, while it runs.
//!
//! Fields that we add to a document are marked "ours" in docs/data-model.md. Nothing changes the
//! meaning of a field of the original. The ledger is a collection of its own, with one document for
//! each usage.
//!
//! Starts, stops, changes of spans and the entries of the ledger share commands with others of
//! their kind that are in flight at the same moment; see [`sampler_store::group`].

mod address;
mod adopt;
mod audit;
mod backlog;
mod beside;
mod call;
mod cause_list;
mod causes;
mod changes;
mod cleanup;
mod codes;
mod confirmations;
mod connect;
mod control;
mod document;
mod due;
mod entry_document;
mod events;
mod index;
mod instances;
mod ledger;
mod lookup;
mod migrate;
mod missing_causes;
mod queries;
mod reading;
mod replication;
mod resends;
mod resolve;
mod retire;
mod rounds;
mod sharding;
mod slack;
mod span_list;
mod span_scan;
mod stale_suspensions;
mod starts;
mod stops;
mod sums;
mod suspension_document;
mod totals;
mod unreadable;
mod workers;

use async_trait::async_trait;
use bson::Document;
use mongodb::Collection;
use sampler_domain::{
    Acceptance, Cause, CauseId, Change, Changed, Entry, EntryState, EventId, LastError, Policy,
    Resend, Span, SpanId, Target, Timestamp,
};
use sampler_metrics::Registry;
use sampler_store::group::{GroupMetrics, GroupPerRange};
use sampler_store::{
    ActOutcome, Acts, Adopted, AllSpans, Audit, AuditRecord, Causes, DuePages, DueQuery, Entries,
    EntryKey, Finished, KeptCause, Ledger, Membership, Page, Probe, Resends, Resumption,
    StoreError, Upkeep, Work,
};
use uuid::Uuid;

use call::Link;
use changes::ChangeWriter;
use connect::Links;
use ledger::{EntryWriter, ExpiryWriter};
use resolve::{by_event_id, readable};
use starts::StartWriter;
use stops::StopWriter;

pub use address::check_address;
pub use connect::{ConnectError, MongoOptions};
pub use migrate::MigrationError;
pub use queries::MongoReader;
pub use retire::Retired;

/// Spans in MongoDB. Cheap to clone; all clones share one pool of connections.
#[derive(Clone, Debug)]
pub struct MongoStore {
    link: Link,
    /// The same, for the collection of the ledger.
    usages: Link,
    /// The causes of suspensions.
    causes: Collection<Document>,
    /// The same as the link, for the collection of the audit trail.
    audit: Link,
    workers: Collection<Document>,
    /// The reports of the instances of both programs.
    instances: Collection<Document>,
    /// The control, and the documents that all instances read.
    control: Collection<Document>,
    receivers: Collection<Document>,
    starts: GroupPerRange<StartWriter>,
    stops: GroupPerRange<StopWriter>,
    batch_starts: GroupPerRange<StartWriter>,
    batch_stops: GroupPerRange<StopWriter>,
    changes: GroupPerRange<ChangeWriter>,
    entries: GroupPerRange<EntryWriter>,
    expiries: GroupPerRange<ExpiryWriter>,
    metrics: GroupMetrics,
    shards: Option<u32>,
}

impl MongoStore {
    /// Prepares a client; connections are made when they are needed.
    ///
    /// # Errors
    /// If the connection string cannot be used.
    pub async fn connect(options: MongoOptions) -> Result<Self, ConnectError> {
        let database = connect::client(&options).await?.database(&options.database);
        let receivers = format!("{}_receivers", options.collection);
        let Links {
            link,
            usages,
            audit,
        } = Links::new(&options, &database, &receivers);
        let call_limit = link.call_limit();
        let ranges = usize::try_from(options.shards.unwrap_or(1)).unwrap_or(1);
        let each = |link: &Link| std::iter::repeat_n(link.clone(), ranges.max(1));
        let links = || each(&link);
        let metrics = GroupMetrics::default();
        Ok(Self {
            causes: database.collection(&format!("{}_causes", options.collection)),
            control: database.collection(&format!("{}_control", options.collection)),
            workers: database.collection(&format!("{}_workers", options.collection)),
            instances: database.collection(&format!("{}_instances", options.collection)),
            receivers: database.collection(&receivers),
            starts: GroupPerRange::measured(links().map(StartWriter::new), call_limit, &metrics),
            stops: GroupPerRange::measured(links().map(StopWriter::new), call_limit, &metrics),
            batch_starts: GroupPerRange::measured(
                links().map(StartWriter::new),
                call_limit,
                &metrics,
            ),
            batch_stops: GroupPerRange::measured(
                links().map(StopWriter::new),
                call_limit,
                &metrics,
            ),
            changes: GroupPerRange::measured(links().map(ChangeWriter::new), call_limit, &metrics),
            entries: GroupPerRange::measured(
                each(&usages).map(EntryWriter::new),
                call_limit,
                &metrics,
            ),
            expiries: GroupPerRange::measured(
                each(&usages).map(ExpiryWriter::new),
                call_limit,
                &metrics,
            ),
            usages,
            audit,
            shards: options.shards,
            link,
            metrics,
        })
    }

    /// Adds what is measured of its commands to the metrics of the program.
    pub fn register_metrics(&self, registry: &mut Registry) {
        self.metrics.register(registry);
    }
}

#[async_trait]
impl Work for MongoStore {
    fn due(&self, query: DueQuery) -> DuePages {
        self.due_spans(&query)
    }

    async fn find(&self, id: &SpanId, target: &Target) -> Result<Option<Span>, StoreError> {
        self.find_span(id, target).await
    }

    async fn change(
        &self,
        span: &Span,
        change: &Change,
        now: Timestamp,
    ) -> Result<Changed, StoreError> {
        self.change_span(span, change, now).await
    }
}

#[async_trait]
impl Ledger for MongoStore {
    async fn write_entry(&self, entry: Entry, lifetime: i64) -> Result<EntryState, StoreError> {
        self.insert_entry(&entry, lifetime).await
    }

    async fn expire(&self, finished: &[Finished]) -> Result<(), StoreError> {
        self.expire_entries(finished).await
    }

    async fn entries(
        &self,
        span: &SpanId,
        target: &Target,
        after: Option<i64>,
        limit: usize,
    ) -> Result<Entries, StoreError> {
        self.entries_of(span, target, after, limit).await
    }
}

#[async_trait]
impl Causes for MongoStore {
    async fn register(
        &self,
        cause: &Cause,
        now: Timestamp,
        probe_at: Timestamp,
    ) -> Result<(), StoreError> {
        self.register_cause(cause.id(), cause, now, probe_at).await
    }

    async fn register_missing(
        &self,
        now: Timestamp,
        probe_at: Timestamp,
    ) -> Result<u64, StoreError> {
        self.register_missing_causes(now, probe_at).await
    }

    async fn due_causes(&self, now: Timestamp, limit: usize) -> Result<Vec<KeptCause>, StoreError> {
        self.causes_due_by(now, limit).await
    }

    async fn claim_probe(&self, cause: &KeptCause, next: Timestamp) -> Result<bool, StoreError> {
        self.claim_probe_of(cause, next).await
    }

    async fn probe(
        &self,
        cause: CauseId,
        resumption: Resumption,
        lasts: i64,
    ) -> Result<Probe, StoreError> {
        self.probe_one(cause, resumption, lasts).await
    }

    async fn end_stale_suspensions(&self, now: Timestamp, limit: usize) -> Result<u64, StoreError> {
        self.end_stale(now, limit).await
    }

    async fn begin_resuming(&self, cause: CauseId, now: Timestamp) -> Result<bool, StoreError> {
        self.begin_resuming_of(cause, now).await
    }

    async fn resume_batch(
        &self,
        cause: CauseId,
        until: Timestamp,
        resumption: Resumption,
        limit: usize,
    ) -> Result<u64, StoreError> {
        self.resume_some(cause, until, resumption, limit).await
    }

    async fn set_resuming(&self, cause: &KeptCause, until: Timestamp) -> Result<(), StoreError> {
        self.set_resuming_of(cause, until).await
    }

    async fn end_resuming(&self, cause: &KeptCause) -> Result<(), StoreError> {
        self.end_resuming_of(cause).await
    }

    async fn remove_cause(&self, cause: &KeptCause) -> Result<bool, StoreError> {
        self.remove_cause_if_idle(cause).await
    }
}

#[async_trait]
impl Acts for MongoStore {
    async fn change_by_operator(
        &self,
        span: &Span,
        change: &Change,
        now: Timestamp,
    ) -> Result<Changed, StoreError> {
        self.change_span(span, change, now).await
    }

    async fn resume_by_operator(&self, cause: CauseId, by: Timestamp) -> Result<bool, StoreError> {
        self.begin_resuming_by_operator(cause, by).await
    }

    async fn resend_by_operator(
        &self,
        entry: &EntryKey,
        resend: &Resend,
    ) -> Result<bool, StoreError> {
        self.mark(entry, resend).await
    }
}

#[async_trait]
impl Resends for MongoStore {
    async fn mark_resend(&self, entry: &EntryKey, resend: &Resend) -> Result<bool, StoreError> {
        self.mark(entry, resend).await
    }

    async fn due_resends(&self, now: Timestamp, limit: usize) -> Result<Vec<Entry>, StoreError> {
        self.resends_due_by(now, limit).await
    }

    async fn postpone_resend(
        &self,
        entry: &EntryKey,
        act: Uuid,
        due_at: Timestamp,
    ) -> Result<(), StoreError> {
        self.postpone_marked(entry, act, due_at).await
    }

    async fn accept_resent(
        &self,
        entry: &Entry,
        acceptance: &Acceptance,
    ) -> Result<bool, StoreError> {
        self.accept_marked(entry, acceptance).await
    }

    async fn has_resend(&self, entry: &EntryKey, act: Uuid) -> Result<bool, StoreError> {
        self.is_marked(entry, act).await
    }

    async fn end_resend(
        &self,
        entry: &EntryKey,
        act: Uuid,
        refusal: Option<&LastError>,
    ) -> Result<(), StoreError> {
        self.unmark(entry, act, refusal).await
    }
}

#[async_trait]
impl Audit for MongoStore {
    async fn record_act(&self, record: &AuditRecord) -> Result<(), StoreError> {
        self.keep_act(record).await
    }

    async fn settle_act(&self, id: Uuid, outcome: ActOutcome) -> Result<(), StoreError> {
        self.note_outcome(id, outcome).await
    }
}

#[async_trait]
impl Upkeep for MongoStore {
    async fn adopt(
        &self,
        policy: &Policy,
        now: Timestamp,
        limit: usize,
    ) -> Result<Adopted, StoreError> {
        Ok(Adopted {
            starts: self.adopt_starts(policy, now, limit).await?,
            stops: self.notice_stops(now, limit).await?,
        })
    }

    async fn completed_before(
        &self,
        cutoff: Timestamp,
        limit: usize,
    ) -> Result<Vec<Finished>, StoreError> {
        self.spans_completed_before(cutoff, limit).await
    }

    async fn remove(&self, finished: &[Finished]) -> Result<u64, StoreError> {
        self.remove_spans(finished).await
    }

    async fn largest_slack(&self) -> Result<Option<i64>, StoreError> {
        self.slack_of_all().await
    }
}

#[async_trait]
impl Membership for MongoStore {
    async fn heartbeat(&self, worker: &str) -> Result<Vec<String>, StoreError> {
        self.worker_alive(worker).await
    }

    async fn leave(&self, worker: &str) -> Result<(), StoreError> {
        self.worker_gone(worker).await
    }
}

impl MongoStore {
    /// Whether a primary answers.
    ///
    /// # Errors
    /// If none does.
    pub async fn ping(&self) -> Result<(), StoreError> {
        let link = self.link.clone();
        Ok(self.link.run(async move { link.ping().await }).await?)
    }

    /// The span of the target that has this event id in `field`.
    async fn span_with(
        &self,
        field: &'static str,
        target: &Target,
        id: &EventId,
    ) -> Result<Option<Span>, StoreError> {
        let (link, event) = (self.link.clone(), (target.clone(), id.clone()));
        let key = (target.clone(), id.as_str().to_owned());
        let read = async move {
            let event = std::iter::once((&event.0, &event.1));
            by_event_id(&link, field, event).await
        };
        let found = self.link.run(read).await?;
        found.get(&key).map(readable).transpose()
    }
}

#[async_trait]
impl AllSpans for MongoStore {
    async fn page(&self, after: Option<&SpanId>, limit: usize) -> Result<Page, StoreError> {
        self.page_of_spans(after, limit).await
    }
}

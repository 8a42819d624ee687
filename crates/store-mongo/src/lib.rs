//! The MongoDB store: one document per span, as in the paper (figure 6.1, tables 6.2 and 6.3), so
//! that the collection of an original Sampler can be taken over in place, while it runs.
//!
//! What we add to a document: `processing.due_at`, when it next needs a worker;
//! `processing.partition`, which workers look after it; `processing.attempts`,
//! `processing.failed_version` and `processing.last_error`, why its planned interval could not be
//! delivered;
//! `processing.last_change_id`, by which a worker knows its own change. Nothing changes the meaning
//! of a field of the original.
//!
//! Starts, stops and the changes of workers share commands with others of their kind that are in
//! flight at the same moment; see [`sampler_store::group`].

mod address;
mod adopt;
mod call;
mod changes;
mod codes;
mod document;
mod due;
mod migrate;
mod resolve;
mod sampling;
mod slack;
mod starts;
mod stops;
mod unreadable;
mod workers;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use bson::{Document, doc};
use mongodb::options::{
    Acknowledgment, ClientOptions, CollectionOptions, ReadConcern, ReadPreference,
    SelectionCriteria, WriteConcern,
};
use mongodb::{Client, Collection};
use sampler_domain::{Change, Changed, EventId, Policy, Span, SpanId, Timestamp};
use sampler_store::group::Group;
use sampler_store::{
    Adopted, DuePages, DueQuery, Events, Membership, NewSpan, NewStop, Page, Reading, Started,
    Stopped, StoreError, Upkeep, Work,
};
use tracing::info;

use call::Link;
use changes::Changes;
use resolve::{by_event_id, readable};
use starts::{Opening, Starts};
use stops::{Ending, Stops};

pub use address::check_address;
pub use migrate::MigrationError;

/// How to reach MongoDB, and how long to wait for it.
#[derive(Clone)]
pub struct MongoOptions {
    /// The connection string; it may hold a password.
    pub uri: String,
    /// The database.
    pub database: String,
    /// The collection of spans.
    pub collection: String,
    /// Connections at the most.
    pub pool_size: u32,
    /// How long to look for a primary.
    pub server_selection_timeout: Duration,
    /// How long one operation may take.
    pub operation_timeout: Duration,
    /// Who we are, for the server's logs.
    pub app_name: String,
}

impl MongoOptions {
    /// How long after a [`StoreError::Unknown`] the server may still carry out what was asked. The
    /// driver looks for a server that long before it sends a command, and the server then works on
    /// it that long, even where its client has gone.
    pub fn unknown_for(&self) -> Duration {
        self.server_selection_timeout + self.operation_timeout + call::MARGIN
    }
}

/// The connection string cannot be used. The text never holds the string itself.
#[derive(Debug, thiserror::Error)]
#[error("the MongoDB connection string cannot be used: {0}")]
pub struct ConnectError(String);

/// Spans in MongoDB. Cheap to clone; all clones share one pool of connections.
#[derive(Clone, Debug)]
pub struct MongoStore {
    link: Link,
    workers: Collection<Document>,
    receivers: Collection<Document>,
    starts: Group<Starts>,
    stops: Group<Stops>,
    changes: Group<Changes>,
}

impl MongoStore {
    /// Prepares a client; connections are made when they are needed.
    ///
    /// # Errors
    /// Where the connection string cannot be used.
    pub async fn connect(options: MongoOptions) -> Result<Self, ConnectError> {
        let mut client = ClientOptions::parse(&options.uri)
            .await
            .map_err(|error| ConnectError(address::describe_without(&options.uri, &error)))?;
        client.app_name = Some(options.app_name);
        client.max_pool_size = Some(options.pool_size);
        client.server_selection_timeout = Some(options.server_selection_timeout);
        client.connect_timeout = Some(options.server_selection_timeout);
        client.retry_writes = Some(true);
        // Whatever the connection string says: a secondary does not know yet what the primary has
        // promised. All collections inherit it.
        client.selection_criteria =
            Some(SelectionCriteria::ReadPreference(ReadPreference::Primary));
        client.read_concern = Some(ReadConcern::majority());
        client.write_concern = Some(
            WriteConcern::builder()
                .w(Acknowledgment::Majority)
                .journal(true)
                .w_timeout(options.operation_timeout)
                .build(),
        );
        let client = Client::with_options(client)
            .map_err(|error| ConnectError(address::describe_without(&options.uri, &error)))?;
        let database = client.database(&options.database);
        let linearizable = CollectionOptions::builder()
            .read_concern(ReadConcern::linearizable())
            .build();
        let link = Link {
            spans: database.collection(&options.collection),
            linearizable: database.collection_with_options(&options.collection, linearizable),
            time_limit: options.operation_timeout,
            database: database.clone(),
            told: Arc::default(),
            has_uuids: Arc::default(),
        };
        let call_limit = link.call_limit();
        Ok(Self {
            workers: database.collection(&format!("{}_workers", options.collection)),
            receivers: database.collection(&format!("{}_receivers", options.collection)),
            starts: Group::new(Starts::new(link.clone()), call_limit),
            stops: Group::new(Stops::new(link.clone()), call_limit),
            changes: Group::new(Changes::new(link.clone()), call_limit),
            link,
        })
    }
}

#[async_trait]
impl Events for MongoStore {
    async fn start(&self, new: NewSpan) -> Result<Started, StoreError> {
        self.starts.submit(Opening::new(new)?).await
    }

    async fn stop(&self, new: NewStop) -> Result<Stopped, StoreError> {
        self.stops.submit(Ending::new(new)).await
    }

    async fn started_by(&self, id: &EventId) -> Result<Option<Span>, StoreError> {
        self.span_with("start_dedup_id", id).await
    }

    async fn stopped_by(&self, id: &EventId) -> Result<Option<Span>, StoreError> {
        self.span_with("end_dedup_id", id).await
    }

    async fn announce_slack(&self, past: i64) -> Result<(), StoreError> {
        self.slack_announced(past).await
    }
}

#[async_trait]
impl Work for MongoStore {
    fn due(&self, query: DueQuery) -> DuePages {
        self.due_spans(&query)
    }

    async fn find(&self, id: &SpanId) -> Result<Option<Span>, StoreError> {
        self.find_span(id).await
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
    ) -> Result<Vec<SpanId>, StoreError> {
        self.spans_completed_before(cutoff, limit).await
    }

    async fn remove(&self, ids: &[SpanId]) -> Result<u64, StoreError> {
        self.remove_spans(ids).await
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
    /// Where none does.
    pub async fn ping(&self) -> Result<(), StoreError> {
        let link = self.link.clone();
        Ok(self.link.run(async move { link.ping().await }).await?)
    }

    /// Finds out whether ids of events are kept as UUID binaries, which no unique index tells from their
    /// texts. As long as there are any, each event whose id is a UUID is looked up before it is kept.
    ///
    /// # Errors
    /// Where the database gave no answer, or has no indexes yet.
    pub async fn scan_for_uuid_ids(&self) -> Result<(), StoreError> {
        let link = self.link.clone();
        let look = async move {
            let mut has_uuids = false;
            for field in ["start_dedup_id", "end_dedup_id"] {
                let mut options = link.find_options(1, doc! {}, &format!("unique_{field}"));
                options.projection = Some(doc! { "_id": 1 });
                let found = link
                    .find(doc! { field: { "$type": "binData" } }, options)
                    .await?;
                has_uuids |= !found.is_empty();
            }
            Ok::<_, call::CallError>(has_uuids)
        };
        let has_uuids = self.link.run(look).await?;
        if self.link.has_uuids.swap(has_uuids, Ordering::AcqRel) != has_uuids {
            info!(has_uuids, "ids of events that are kept as UUID binaries");
        }
        Ok(())
    }

    /// The span that has this event id in `field`.
    async fn span_with(
        &self,
        field: &'static str,
        id: &EventId,
    ) -> Result<Option<Span>, StoreError> {
        let (link, wanted) = (self.link.clone(), id.clone());
        let look = async move { by_event_id(&link, field, std::iter::once(&wanted)).await };
        let found = self.link.run(look).await?;
        found.get(id.as_str()).map(readable).transpose()
    }
}

#[async_trait]
impl Reading for MongoStore {
    async fn page(&self, after: Option<&SpanId>, limit: usize) -> Result<Page, StoreError> {
        self.page_of_spans(after, limit).await
    }
}

//! The MongoDB store: one document for each span, as in the paper (figure 6.1, tables 6.2 and 6.3). A
//! collection of the original Sampler is converted in place. docs/data-model.md has all documents.
//!
//! Starts, stops, changes of spans and the entries of the ledger share commands with others of
//! their kind that are in flight at the same time; see [`sampler_store::group`].

mod audit;
mod backlog;
mod call;
mod causes;
mod changes;
mod codes;
mod connect;
mod control;
mod document;
mod due;
mod entry_document;
mod events;
mod index;
mod ledger;
mod migrate;
mod operating;
mod original;
mod processing;
mod raw;
mod reading;
mod resolve;
mod span_list;
mod starts;
mod stops;
mod sums;
mod takeover;
mod watches;
mod work;

use std::sync::Arc;
use std::time::Duration;

use sampler_store::StoreError;
use sampler_store::group::{Group, GroupWriter};
use tokio::sync::{Mutex, Semaphore};

use call::Link;
use changes::ChangeWriter;
use ledger::InsertWriter;
use starts::StartWriter;
use stops::StopWriter;
use watches::WatchWriter;

pub use connect::{ConnectError, MongoOptions, is_readable};
pub use migrate::MigrationError;

/// Spans in MongoDB. Cheap to clone; all clones share one pool of connections.
#[derive(Clone, Debug)]
pub struct MongoStore {
    /// The spans.
    link: Link,
    /// The ledger.
    usages: Link,
    /// The usages that are accepted, and are watched until they count.
    unconfirmed: Link,
    /// The audit trail.
    audit: Link,
    workers: Link,
    /// The control, and the documents that all instances read.
    control: Link,
    starts: Group<StartWriter>,
    stops: Group<StopWriter>,
    batch_starts: Group<StartWriter>,
    batch_stops: Group<StopWriter>,
    changes: Group<ChangeWriter>,
    entries: Group<InsertWriter>,
    watches: Group<WatchWriter>,
    /// The turns of lookups by the ids of starts, and of the others that decide about an event.
    start_lookups: Arc<Semaphore>,
    lookups: Arc<Semaphore>,
    /// Held while an index for sums is made.
    sum_index_turn: Arc<Mutex<()>>,
}

impl MongoStore {
    /// Prepares a client; connections are made when they are needed.
    pub async fn connect(options: MongoOptions) -> Result<Self, ConnectError> {
        let database = connect::client(&options).await?.database(&options.database);
        let link = connect::link(&options, &database);
        let beside = |name: &str| Link {
            collection: database.collection(&format!("{}_{name}", options.collection)),
            ..link.clone()
        };
        let (usages, unconfirmed) = (beside("usages"), beside("unconfirmed"));
        let limit = link.call_limit();
        Ok(Self {
            starts: grouped(&link, limit, |link| StartWriter { link }),
            stops: grouped(&link, limit, |link| StopWriter { link }),
            batch_starts: grouped(&link, limit, |link| StartWriter { link }),
            batch_stops: grouped(&link, limit, |link| StopWriter { link }),
            changes: grouped(&link, limit, |link| ChangeWriter { link }),
            entries: grouped(&usages, limit, |link| InsertWriter { link }),
            watches: grouped(&unconfirmed, limit, |link| WatchWriter { link }),
            start_lookups: events::turns(options.pool_size),
            lookups: events::turns(options.pool_size),
            audit: beside("audit"),
            workers: beside("workers"),
            control: beside("control"),
            usages,
            unconfirmed,
            link,
            sum_index_turn: Arc::default(),
        })
    }

    /// Whether a primary answers.
    pub async fn ping(&self) -> Result<(), StoreError> {
        let link = self.link.clone();
        Ok(self.link.run(async move { link.ping().await }).await?)
    }
}

fn grouped<W: GroupWriter>(link: &Link, call_limit: Duration, writer: fn(Link) -> W) -> Group<W> {
    Group::new(writer(link.clone()), call_limit)
}

//! The MongoDB store: one document per span, as in the paper (figure 6.1, tables 6.2 and 6.3), so
//! that the collection of the original Sampler can be taken over in place.
//!
//! docs/data-model.md says which fields of a document are ours. Nothing changes the meaning of a field of
//! the original. The ledger is a collection of its own, with one document for
//! each usage.
//!
//! Starts, stops, changes of spans and the entries of the ledger share commands with others of
//! their kind that are in flight at the same time; see [`sampler_store::group`].

mod audit;
mod backlog;
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
mod event_age;
mod events;
mod id_list;
mod index;
mod ledger;
mod migrate;
mod missing_causes;
mod operating;
mod projection;
mod reading;
mod resends;
mod resolve;
mod rounds;
mod span_list;
mod spans;
mod starts;
mod stops;
mod sums;
mod suspension_document;
mod takeover;
mod totals;
mod uncounted;
mod unreadable;
mod work;
mod workers;

use std::sync::Arc;
use std::time::Duration;

use bson::Document;
use mongodb::Collection;
use sampler_store::StoreError;
use sampler_store::group::{Group, GroupWriter};
use tokio::sync::{Mutex, Semaphore};

use call::Link;
use changes::ChangeWriter;
use connect::Links;
use ledger::{EntryWriter, ExpiryWriter};
use starts::StartWriter;
use stops::StopWriter;

pub use connect::{ConnectError, MongoOptions, is_readable};
pub use migrate::MigrationError;

/// Spans in MongoDB. Cheap to clone; all clones share one pool of connections.
#[derive(Clone, Debug)]
pub struct MongoStore {
    link: Link,
    /// The same, for the collection of the ledger.
    usages: Link,
    causes: Collection<Document>,
    /// The same as the link, for the collection of the audit trail.
    audit: Link,
    workers: Collection<Document>,
    /// The control, and the documents that all instances read.
    control: Collection<Document>,
    starts: Group<StartWriter>,
    stops: Group<StopWriter>,
    batch_starts: Group<StartWriter>,
    batch_stops: Group<StopWriter>,
    changes: Group<ChangeWriter>,
    entries: Group<EntryWriter>,
    expiries: Group<ExpiryWriter>,
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
        let control = format!("{}_control", options.collection);
        let Links {
            link,
            usages,
            audit,
        } = Links::new(&options, &database, &control);
        let limit = link.call_limit();
        Ok(Self {
            causes: database.collection(&format!("{}_causes", options.collection)),
            control: database.collection(&control),
            workers: database.collection(&format!("{}_workers", options.collection)),
            starts: grouped(&link, limit, |link| StartWriter { link }),
            stops: grouped(&link, limit, |link| StopWriter { link }),
            batch_starts: grouped(&link, limit, |link| StartWriter { link }),
            batch_stops: grouped(&link, limit, |link| StopWriter { link }),
            changes: grouped(&link, limit, |link| ChangeWriter { link }),
            entries: grouped(&usages, limit, |link| EntryWriter { link }),
            expiries: grouped(&usages, limit, |link| ExpiryWriter { link }),
            start_lookups: events::turns(options.pool_size),
            lookups: events::turns(options.pool_size),
            usages,
            audit,
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

//! The indexes: those of the paper's table 6.3 by name, one of the original, and ours.
//!
//! Migrations only add, so that old and new programs can run side by side. They may be run again
//! at any time, and by many programs at once.

use std::error::Error as _;
use std::time::Duration;

use bson::{Document, doc};
use mongodb::IndexModel;
use mongodb::error::{Error, ErrorKind};
use mongodb::options::IndexOptions;
use sampler_store::StoreError;
use sampler_store::group::CommandFailure;
use tracing::{info, warn};

use crate::MongoStore;
use crate::call::CallError;

/// The server's codes for an index that is there already, but not as asked for.
const CONFLICTS: [i32; 3] = [67, 85, 86];

/// The pause before the indexes are tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Why the indexes could not be made.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// An index is there with another definition.
    #[error(
        "the collection {collection} has an index that conflicts with the index {index} \
         {definition}: {message}. Look at db.{collection}.getIndexes(); if nothing else needs the \
         one that conflicts, remove it with db.{collection}.dropIndex(\"{index}\") (or under the \
         name it has) and start again"
    )]
    Conflict {
        /// The collection.
        collection: String,
        /// The index that was to be made.
        index: &'static str,
        /// What it was to be.
        definition: String,
        /// What the server says.
        message: String,
    },
    /// The documents do not fit a unique index.
    #[error(
        "the unique index {index} cannot be made on the collection {collection}, because \
         documents in it share a key: {message}"
    )]
    Duplicates {
        /// The collection.
        collection: String,
        /// The index that was to be made.
        index: &'static str,
        /// What the server says.
        message: String,
    },
    /// The server is alone, so that no write can wait for a majority.
    #[error(
        "the MongoDB server is not a member of a replica set. Sampler needs one, if only of one \
         member: what is kept must be with a majority and its journals. To make it one, start \
         mongod with --replSet rs0 (replication.replSetName in its configuration file), run \
         rs.initiate() in mongosh once, add replicaSet=rs0 to DB_URI and start again. The data \
         stays as it is"
    )]
    Standalone,
    /// The store gave no answer.
    #[error("the indexes could not be made")]
    Store(#[source] StoreError),
}

/// One index: its name, its keys and its options.
struct Index {
    name: &'static str,
    keys: Document,
    options: IndexOptions,
}

fn indexes() -> Vec<Index> {
    let plain = IndexOptions::default;
    let unique_sparse = || IndexOptions::builder().unique(true).sparse(true).build();
    let partial = |filter| {
        IndexOptions::builder()
            .partial_filter_expression(filter)
            .build()
    };
    vec![
        Index {
            name: "unique_target",
            keys: doc! {
                "target.organization_id": 1, "target.space_id": 1, "target.consumer_id": 1,
                "target.resource_id": 1, "target.plan_id": 1, "target.resource_instance_id": 1,
                "target.correlation_id": 1,
            },
            options: IndexOptions::builder().unique(true).build(),
        },
        Index {
            name: "unique_start_dedup_id",
            keys: doc! { "start_dedup_id": 1 },
            options: unique_sparse(),
        },
        Index {
            name: "unique_end_dedup_id",
            keys: doc! { "end_dedup_id": 1 },
            options: unique_sparse(),
        },
        Index {
            name: "search_processing",
            keys: doc! { "processing.complete": 1, "processing.last_interval.end": 1 },
            options: plain(),
        },
        // The original's own, beside those of the paper: stopped spans with something left to do.
        Index {
            name: "search_end_is_set",
            keys: doc! { "processing.complete": 1 },
            options: partial(doc! { "end_is_set": true }),
        },
        // Ours: what is due, without what is finished.
        Index {
            name: "search_due",
            keys: doc! { "processing.partition": 1, "processing.due_at": 1 },
            options: partial(doc! { "processing.complete": false }),
        },
        // Ours: what is to be tried again. As a rule, nothing. How far it is sampled tells its month.
        Index {
            name: "search_failed",
            keys: doc! {
                "processing.partition": 1,
                "processing.due_at": 1,
                "processing.last_interval.end": 1,
            },
            options: partial(doc! { "processing.attempts": { "$gt": 0 } }),
        },
        // Ours: the ends of an instance's spans. Open spans, whose end is null, are not in it.
        Index {
            name: "previous_end",
            keys: doc! { "target.resource_instance_id": 1, "end": 1 },
            options: partial(doc! { "end": { "$gt": 0 } }),
        },
    ]
}

impl MongoStore {
    /// Makes the indexes that are not there yet.
    ///
    /// # Errors
    /// Where an index is there with other options, the server is no member of a replica set, or the
    /// database is not there.
    pub async fn migrate(&self) -> Result<(), MigrationError> {
        self.require_replica_set().await?;
        for index in indexes() {
            self.make_index(index).await?;
        }
        info!(
            collection = self.link.spans.name(),
            "the indexes are in index"
        );
        Ok(())
    }

    /// Makes the indexes as soon as the database can be reached; asks again and again until it
    /// can, or `given_up` ends. Says whether they are made.
    ///
    /// # Errors
    /// Where an index is there with other options, the documents do not fit, or the server is no
    /// member of a replica set.
    pub async fn migrate_when_possible(
        &self,
        given_up: impl Future<Output = ()>,
    ) -> Result<bool, MigrationError> {
        let mut given_up = std::pin::pin!(given_up);
        loop {
            match self.migrate().await {
                Err(MigrationError::Store(error)) => {
                    let cause = error.source().map(ToString::to_string);
                    warn!(code = "database.not_prepared", error = %error, cause, "the database cannot be prepared yet");
                }
                done => return done.map(|()| true),
            }
            tokio::select! {
                () = &mut given_up => return Ok(false),
                () = tokio::time::sleep(RETRY_PAUSE) => {}
            }
        }
    }

    /// Refuses a server that is alone. A router is fine, and a member of a set that has yet to be
    /// initiated is a server to wait for.
    async fn require_replica_set(&self) -> Result<(), MigrationError> {
        let database = self.link.database.clone();
        let hello = async move { database.run_command(doc! { "hello": 1 }).await };
        let hello = self.link.run(hello).await;
        let hello = hello.map_err(|error| MigrationError::Store(error.into()))?;
        let is_router = hello.get_str("msg").is_ok_and(|text| text == "isdbgrid");
        let is_member = hello.contains_key("setName") || hello.contains_key("isreplicaset");
        if is_router || is_member {
            Ok(())
        } else {
            Err(MigrationError::Standalone)
        }
    }

    /// Makes one index. On a large collection that takes a while, so there is no time limit.
    async fn make_index(&self, index: Index) -> Result<(), MigrationError> {
        let Index {
            name,
            keys,
            mut options,
        } = index;
        let definition = format!("{keys}");
        options.name = Some(name.to_owned());
        let model = IndexModel::builder().keys(keys).options(options).build();
        let spans = self.link.spans.clone();
        let made = tokio::spawn(async move { spans.create_index(model).await }).await;
        let error = match made {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => CallError::Driver(error),
            Err(ended) => CallError::Ended(ended),
        };
        let collection = self.link.spans.name().to_owned();
        Err(match &error {
            CallError::Driver(error)
                if code(error).is_some_and(|code| CONFLICTS.contains(&code)) =>
            {
                let message = error.kind.to_string();
                MigrationError::Conflict {
                    collection,
                    index: name,
                    definition,
                    message,
                }
            }
            CallError::Driver(driver) if error.is_duplicate_key() => {
                let message = driver.kind.to_string();
                MigrationError::Duplicates {
                    collection,
                    index: name,
                    message,
                }
            }
            _ => MigrationError::Store(error.into()),
        })
    }
}

fn code(error: &Error) -> Option<i32> {
    match error.kind.as_ref() {
        ErrorKind::Command(error) => Some(error.code),
        _ => None,
    }
}

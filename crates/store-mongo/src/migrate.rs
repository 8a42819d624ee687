//! Making the indexes: again at any time, and by many programs at once. Those of the original stay until its
//! collection is taken over (`takeover.rs`).

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use bson::doc;
use mongodb::IndexModel;
use mongodb::options::CommitQuorum;
use sampler_store::group::CommandFailure;
use sampler_store::{StoreError, SumQuery};
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};

use crate::MongoStore;
use crate::call::{CallError, Link};
use crate::index::{
    Index, audit_indexes, indexes, ledger_indexes, sum_index, watch_indexes, worker_index,
};

/// The server's codes for an index that is there already, but not as asked for.
const CONFLICTS: [i32; 3] = [67, 85, 86];

/// The driver's name for a member of a replica set that was not initiated.
const GHOST: &str = "RsGhost";

/// How long a request waits for an index that it needs: no longer than for its other searches.
const INDEX_WAIT: Duration = SumQuery::PAGE_TIME;

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
        collection: String,
        index: &'static str,
        /// The index that was wanted.
        definition: String,
        message: String,
    },
    /// The documents do not fit a unique index.
    #[error(
        "the unique index {index} cannot be made on the collection {collection}, because \
         documents in it share a key: {message}"
    )]
    Duplicates {
        collection: String,
        index: &'static str,
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
    /// The server was started as a member of a replica set that was never initiated. It may be at any
    /// time.
    #[error(
        "the MongoDB server was started with --replSet, but its replica set has not been initiated: \
         run rs.initiate() in mongosh once"
    )]
    NotInitiated,
    #[error("the indexes could not be made")]
    Store(#[source] StoreError),
}

impl MigrationError {
    pub(crate) fn into_store_error(self) -> StoreError {
        match self {
            Self::Store(error) => error,
            error => StoreError::refused(error),
        }
    }
}

impl MongoStore {
    /// Makes the indexes that are not there yet.
    pub async fn migrate(&self) -> Result<(), MigrationError> {
        self.require_deployment().await?;
        for index in indexes() {
            make_index(&self.link, index).await?;
        }
        for index in ledger_indexes() {
            make_index(&self.usages, index).await?;
        }
        for index in watch_indexes() {
            make_index(&self.unconfirmed, index).await?;
        }
        for index in audit_indexes() {
            make_index(&self.audit, index).await?;
        }
        make_index(&self.workers, worker_index()).await?;
        info!(
            collection = self.link.collection.name(),
            "the indexes are in place"
        );
        Ok(())
    }

    /// Makes the indexes as soon as the database can be reached; asks again and again until it
    /// can, or `given_up` ends. Says whether they are made.
    pub async fn migrate_when_possible(
        &self,
        given_up: impl Future<Output = ()>,
    ) -> Result<bool, MigrationError> {
        let mut given_up = std::pin::pin!(given_up);
        loop {
            match self.migrate().await {
                Err(error @ (MigrationError::Store(_) | MigrationError::NotInitiated)) => {
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

    /// Makes the index for sums by a field. If that
    /// takes longer than a request waits, it continues. One index is made at a time, and only for a
    /// request that waits: where it fails, or somebody stops it, no other begins by itself.
    pub(crate) async fn make_sum_index(&self, field: &str) -> Result<(), StoreError> {
        let wait_until = Instant::now() + INDEX_WAIT;
        let turn = timeout_at(wait_until, Arc::clone(&self.sum_index_turn).lock_owned());
        let turn = turn.await.map_err(|_| StoreError::Preparing)?;
        let (usages, index) = (self.usages.clone(), sum_index(field));
        let making = tokio::spawn(async move {
            let _turn = turn;
            let (collection, index_name) = (usages.collection.name().to_owned(), index.name);
            info!(
                collection,
                index = index_name,
                "an index is being made, for sums"
            );
            let made = make_index(&usages, index).await;
            info!(
                collection,
                index = index_name,
                made = made.is_ok(),
                "the index is done"
            );
            made
        });
        match timeout_at(wait_until, making).await {
            Ok(Ok(made)) => made.map_err(MigrationError::into_store_error),
            Ok(Err(ended)) => Err(CallError::Ended(ended).into()),
            Err(_) => Err(StoreError::Preparing),
        }
    }

    /// Refuses a server that is alone. A router is fine, and a member of a set that has yet to be
    /// initiated is a server to wait for.
    async fn require_deployment(&self) -> Result<(), MigrationError> {
        let database = self.link.database.clone();
        let hello = async move { database.run_command(doc! { "hello": 1 }).await };
        let hello = self.link.run(hello).await.map_err(unreachable)?;
        let is_router = hello.get_str("msg").is_ok_and(|text| text == "isdbgrid");
        let is_member = hello.contains_key("setName");
        if hello.contains_key("isreplicaset") {
            return Err(MigrationError::NotInitiated);
        }
        if is_router || is_member {
            Ok(())
        } else {
            Err(MigrationError::Standalone)
        }
    }
}

/// Why the server gave no answer to the first question. The driver knows a member of a set that was
/// not initiated as a ghost, and says so in its text alone.
fn unreachable(error: CallError) -> MigrationError {
    let is_ghost = matches!(&error, CallError::Driver(error) if error.to_string().contains(GHOST));
    if is_ghost {
        MigrationError::NotInitiated
    } else {
        MigrationError::Store(error.into())
    }
}

/// Makes one index. On a large collection that takes a while, so there is no time limit.
async fn make_index(link: &Link, index: Index) -> Result<(), MigrationError> {
    let Index {
        name,
        keys,
        mut options,
    } = index;
    let definition = format!("{keys}");
    options.name = Some(name.to_owned());
    let model = IndexModel::builder().keys(keys).options(options).build();
    let spans = link.collection.clone();
    let making = async move {
        // A member that is down, for maintenance perhaps, does not hold it up.
        let quorum = CommitQuorum::Majority;
        spans.create_index(model).commit_quorum(quorum).await
    };
    let made = tokio::spawn(making).await;
    let error = match made {
        Ok(Ok(_)) => return Ok(()),
        Ok(Err(error)) => CallError::Driver(error),
        Err(ended) => CallError::Ended(ended),
    };
    let collection = link.collection.name().to_owned();
    Err(match &error {
        CallError::Driver(driver) if error.code().is_some_and(|it| CONFLICTS.contains(&it)) => {
            let message = driver.kind.to_string();
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

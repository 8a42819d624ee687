//! Setting up a sharded collection, through a router.
//!
//! The collection is divided by partition and instance, and split where a partition begins. The
//! partitions are spread evenly over the shards, in order, so that the ranges into which writes are
//! gathered ([`range_of`]) are what lies on one shard.

use bson::{Bson, Document, doc};
use futures_util::TryStreamExt;
use sampler_domain::partition::{PARTITIONS, range_of};
use tracing::{info, warn};

use crate::call::CallError;
use crate::index::{self, shard_key};
use crate::{MigrationError, MongoStore};

impl MongoStore {
    /// Shards the collection of spans, unless it is sharded already. The indexes must be there.
    ///
    /// # Errors
    /// Where the connection leads to no router, the collection still has the indexes of an original,
    /// or it is sharded by something else.
    pub(crate) async fn shard(&self, ranges: u32) -> Result<(), MigrationError> {
        let names = self.link.index_names().await.map_err(failed)?;
        if index::OF_ORIGINAL_EVENTS
            .iter()
            .any(|name| names.contains(*name))
        {
            return Err(MigrationError::OriginalIndexes);
        }
        let shards = self.shards().await.map_err(failed)?;
        if shards.len() != usize::try_from(ranges).unwrap_or(usize::MAX) {
            let shards = shards.len();
            warn!(
                code = "sharding.count",
                shards, ranges, "SAMPLER_SHARDS is not the number of shards"
            );
        }
        if let Some(key) = self.key_of_shards().await.map_err(failed)? {
            return if key == shard_key() {
                Ok(())
            } else {
                Err(MigrationError::OtherShardKey(key.to_string()))
            };
        }
        self.divide(&shards).await.map_err(failed)?;
        info!(shards = shards.len(), "the collection is sharded");
        Ok(())
    }

    /// The names of the shards.
    async fn shards(&self) -> Result<Vec<String>, CallError> {
        let config = self.link.database.client().database("config");
        let shards = config.collection::<Document>("shards");
        let find = async move {
            let found = shards.find(doc! {}).sort(doc! { "_id": 1 }).await?;
            found.try_collect::<Vec<_>>().await
        };
        let found = self.link.run(find).await?;
        let name = |shard: &Document| shard.get_str("_id").ok().map(str::to_owned);
        Ok(found.iter().filter_map(name).collect())
    }

    /// What the collection is sharded by, if it is.
    async fn key_of_shards(&self) -> Result<Option<Document>, CallError> {
        let config = self.link.database.client().database("config");
        let collections = config.collection::<Document>("collections");
        let filter = doc! { "_id": self.namespace(), "dropped": { "$ne": true } };
        let find = async move { collections.find_one(filter).await };
        let found = self.link.run(find).await?;
        Ok(found.and_then(|found| found.get_document("key").ok().cloned()))
    }

    async fn divide(&self, shards: &[String]) -> Result<(), CallError> {
        let database = self.link.database.name();
        self.admin(doc! { "enableSharding": database }).await?;
        let key = shard_key();
        self.admin(doc! { "shardCollection": self.namespace(), "key": key })
            .await?;
        for command in division(&self.namespace(), shards) {
            // Another program may have been faster; and where a part stays in the wrong place, the
            // balancer moves it. Nothing but speed depends on it.
            if let Err(error) = self.admin(command).await {
                let error = error.to_string();
                warn!(
                    code = "sharding.uneven",
                    error, "a part of the collection was not divided"
                );
            }
        }
        Ok(())
    }

    async fn admin(&self, command: Document) -> Result<Document, CallError> {
        let admin = self.link.database.client().database("admin");
        // Moving data has no time limit.
        match tokio::spawn(async move { admin.run_command(command).await }).await {
            Ok(answer) => answer.map_err(|error| self.link.doubtful.hide_in(error.into())),
            Err(ended) => Err(CallError::Ended(ended)),
        }
    }

    fn namespace(&self) -> String {
        self.link.spans.namespace().to_string()
    }
}

fn failed(error: CallError) -> MigrationError {
    MigrationError::Store(error.into())
}

/// The commands that split a collection where partitions begin, and spread these over the shards.
fn division(namespace: &str, shards: &[String]) -> Vec<Document> {
    let begin = |partition: u32| {
        doc! {
            "processing.partition": i64::from(partition),
            "target.resource_instance_id": Bson::MinKey,
        }
    };
    let split = |partition| doc! { "split": namespace, "middle": begin(partition) };
    let move_to = |partition: u32| {
        let shard = shards.get(range_of(partition, shards.len()))?;
        Some(doc! { "moveChunk": namespace, "find": begin(partition), "to": shard })
    };
    let splits = (1..PARTITIONS).map(split);
    splits.chain((0..PARTITIONS).filter_map(move_to)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_spread_evenly_in_order() {
        let shards: Vec<String> = ["a", "b", "c"].map(str::to_owned).into();
        let commands = division("db.spans", &shards);
        let splits = commands
            .iter()
            .filter(|command| command.contains_key("split"));
        assert_eq!(splits.count(), 63);
        let to = |command: &Document| command.get_str("to").ok().map(str::to_owned);
        let moves: Vec<String> = commands.iter().filter_map(to).collect();
        assert_eq!(moves.len(), 64);
        assert!(moves.is_sorted());
        for shard in &shards {
            let count = moves.iter().filter(|to| *to == shard).count();
            assert!((21..=22).contains(&count), "{shard}: {count}");
        }
    }
}

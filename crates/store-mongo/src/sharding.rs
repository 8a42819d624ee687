//! Setting up a sharded collection, through a router.
//!
//! The collection of spans is divided by the key of the target, that of usages by partition and span,
//! and both are split where a partition begins: the first bits of a key are its partition. The
//! partitions are spread evenly over the shards, in order, so that the ranges into which writes are
//! gathered ([`range_of`]) are what is on one shard.

use bson::{Bson, Document, doc};
use futures_util::TryStreamExt;
use sampler_domain::Key;
use sampler_domain::partition::{PARTITIONS, range_of};
use tracing::{info, warn};

use crate::call::{CallError, Link};
use crate::document::key_to_bson;
use crate::index::{self, ledger_shard_key, shard_key};
use crate::migrate::make_index;
use crate::{MigrationError, MongoStore};

impl MongoStore {
    /// Shards the collections of spans and of usages, unless they are sharded already. The indexes
    /// must be there.
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
            warn!(
                code = "sharding.count",
                shards = shards.len(),
                ranges,
                "SAMPLER_SHARDS is not the number of shards"
            );
        }
        make_index(&self.link, index::shard_key_index()).await?;
        self.shard_one(&self.link, shard_key(), &shards).await?;
        self.shard_one(&self.usages, ledger_shard_key(), &shards)
            .await
    }

    /// Shards a collection by this key, in which partitions are ranges, unless it is sharded already.
    async fn shard_one(
        &self,
        link: &Link,
        key: Document,
        shards: &[String],
    ) -> Result<(), MigrationError> {
        let namespace = link.collection.namespace().to_string();
        let known = self.key_of_shards(&namespace).await.map_err(failed)?;
        if let Some(known) = known {
            return if known == key {
                Ok(())
            } else {
                Err(MigrationError::OtherShardKey(known.to_string()))
            };
        }
        let divided = self.divide(&namespace, key, shards).await;
        divided.map_err(failed)?;
        info!(
            collection = namespace,
            shards = shards.len(),
            "the collection is sharded"
        );
        Ok(())
    }

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

    /// The shard key of the collection, if it is sharded.
    async fn key_of_shards(&self, namespace: &str) -> Result<Option<Document>, CallError> {
        let config = self.link.database.client().database("config");
        let collections = config.collection::<Document>("collections");
        let filter = doc! { "_id": namespace, "dropped": { "$ne": true } };
        let find = async move { collections.find_one(filter).await };
        let found = self.link.run(find).await?;
        Ok(found.and_then(|found| found.get_document("key").ok().cloned()))
    }

    async fn divide(
        &self,
        namespace: &str,
        key: Document,
        shards: &[String],
    ) -> Result<(), CallError> {
        let database = self.link.database.name();
        self.admin(doc! { "enableSharding": database }).await?;
        self.admin(doc! { "shardCollection": namespace, "key": &key })
            .await?;
        for command in division(namespace, &key, shards) {
            // Another program may have been faster; and where a part stays in the wrong place, the
            // balancer moves it. Nothing but speed depends on it.
            if let Err(error) = self.admin(command).await {
                warn!(
                    code = "sharding.uneven",
                    error = error.to_string(),
                    "a part of the collection was not divided"
                );
            }
        }
        Ok(())
    }

    async fn admin(&self, command: Document) -> Result<Document, CallError> {
        let admin = self.link.database.client().database("admin");
        // Moving data has no time limit.
        match tokio::spawn(async move { admin.run_command(command).await }).await {
            Ok(answer) => answer.map_err(Into::into),
            Err(ended) => Err(CallError::Ended(ended)),
        }
    }
}

fn failed(error: CallError) -> MigrationError {
    MigrationError::Store(error.into())
}

/// The commands that split a collection where partitions begin, and spread these over the shards.
fn division(namespace: &str, key: &Document, shards: &[String]) -> Vec<Document> {
    let first = |partition| {
        if *key == shard_key() {
            key_to_bson(Key::first_of(partition))
        } else {
            Bson::from(i64::from(partition))
        }
    };
    let begin = |partition: u32| -> Document {
        let values = std::iter::once(first(partition)).chain(std::iter::repeat(Bson::MinKey));
        key.keys().cloned().zip(values).collect()
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
        let commands = division("db.spans", &shard_key(), &shards);
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

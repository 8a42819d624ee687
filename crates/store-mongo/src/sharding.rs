//! What is required of sharded collections. An operator shards them (`docs/scaling.md`).

use bson::{Bson, Document, doc};
use tracing::warn;

use crate::call::{CallError, Link};
use crate::index::{self, ledger_shard_key, shard_key};
use crate::{MigrationError, MongoStore};

impl MongoStore {
    /// Requires that the collections of spans and of usages are sharded by what each statement names.
    pub(crate) async fn require_sharding(&self, ranges: u32) -> Result<(), MigrationError> {
        let names = self.link.index_names().await.map_err(failed)?;
        if index::OF_ORIGINAL_EVENTS
            .iter()
            .any(|name| names.contains(*name))
        {
            return Err(MigrationError::OriginalIndexes);
        }
        self.require_shard_key(&self.link, shard_key()).await?;
        self.require_shard_key(&self.usages, ledger_shard_key())
            .await?;
        let shards = self.count_shards().await.map_err(failed)?;
        if shards != u64::from(ranges) {
            warn!(
                code = "sharding.count",
                shards, ranges, "SAMPLER_SHARDS is not the number of shards"
            );
        }
        Ok(())
    }

    async fn require_shard_key(&self, link: &Link, key: Document) -> Result<(), MigrationError> {
        let namespace = link.collection.namespace().to_string();
        let found = self.shard_key_of(&namespace).await.map_err(failed)?;
        if found.is_some_and(|found| is_ascending(&found) && found.keys().eq(key.keys())) {
            Ok(())
        } else {
            Err(MigrationError::NotSharded { namespace, key })
        }
    }

    /// The shard key of the collection, if it is sharded.
    async fn shard_key_of(&self, namespace: &str) -> Result<Option<Document>, CallError> {
        let config = self.link.database.client().database("config");
        let collections = config.collection::<Document>("collections");
        let filter = doc! { "_id": namespace, "dropped": { "$ne": true } };
        let find = async move { collections.find_one(filter).await };
        let found = self.link.run(find).await?;
        Ok(found.and_then(|found| found.get_document("key").ok().cloned()))
    }

    async fn count_shards(&self) -> Result<u64, CallError> {
        let config = self.link.database.client().database("config");
        let shards = config.collection::<Document>("shards");
        let count = async move { shards.estimated_document_count().await };
        self.link.run(count).await
    }
}

/// Shells differ in the type of the number.
fn is_ascending(key: &Document) -> bool {
    key.values().all(|value| {
        matches!(value, Bson::Int32(1) | Bson::Int64(1)) || *value == Bson::Double(1.0)
    })
}

fn failed(error: CallError) -> MigrationError {
    MigrationError::Store(error.into())
}

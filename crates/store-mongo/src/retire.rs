//! The step that ends a migration: the indexes of the original go, and with them the rule that an
//! event id counts across targets.
//!
//! An operator must declare that the original no longer writes. Two conditions
//! are checked: each span has its partition, and with it its key, and no event id is a UUID binary, which the indexes of
//! this release do not distinguish from its text.

use bson::{Bson, doc};
use sampler_store::StoreError;
use tracing::info;

use crate::MongoStore;
use crate::index;

/// The outcome of the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retired {
    /// The indexes of the original are gone, now or already before.
    Done,
    /// Spans must be adopted first.
    SpansWithoutPartition,
    /// Event ids are kept as UUID binaries, and are to be made texts first.
    BinaryIds,
}

impl MongoStore {
    /// Removes the indexes of the original Sampler, unless something still
    /// needs them. It may be asked again at any time, and by many programs at once.
    pub async fn retire_original_indexes(&self) -> Result<Retired, StoreError> {
        let names = self.link.index_names().await?;
        let retired = index::RETIRED.iter().filter(|name| names.contains(**name));
        let retired: Vec<&str> = retired.copied().collect();
        if retired.is_empty() {
            return Ok(Retired::Done);
        }
        if self.has_spans_without_partition().await? {
            return Ok(Retired::SpansWithoutPartition);
        }
        self.observe_original().await?;
        if self.link.has_uuids() {
            return Ok(Retired::BinaryIds);
        }
        for name in retired {
            self.drop_index(name).await?;
        }
        self.observe_original().await?;
        info!("the indexes of the original Sampler are removed: ids count within their target");
        Ok(Retired::Done)
    }

    async fn has_spans_without_partition(&self) -> Result<bool, StoreError> {
        for (complete, index) in [(false, index::DUE), (true, index::COMPLETE)] {
            let mut options = self.link.find_options(1, doc! {}, index);
            options.projection = Some(doc! { "_id": 1 });
            let filter = doc! {
                "processing.complete": complete, "processing.partition": Bson::Null,
            };
            if !self.link.fetch(filter, options).await?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn drop_index(&self, name: &str) -> Result<(), StoreError> {
        let (spans, name) = (self.link.collection.clone(), name.to_owned());
        let drop = async move { spans.drop_index(name).await };
        match self.link.run(drop).await {
            // Another program was faster.
            Err(error) if error.is_no_index() => Ok(()),
            dropped => Ok(dropped?),
        }
    }
}

//! Whether an original Sampler, or an earlier release of this one, may write beside us.
//!
//! Both rely on unique indexes that know no partitions: one open span of a target, and each event
//! id once in all. As long as these indexes are there, spans may have no partition yet, and ids
//! count across targets. They go in a step of their own: see `retire.rs`.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use bson::{Bson, Document, doc};
use futures_util::TryStreamExt;
use sampler_domain::Target;
use sampler_domain::partition::partition_of;
use sampler_store::StoreError;
use tracing::info;

use crate::MongoStore;
use crate::call::{CallError, Link};
use crate::index;

/// The state of other programs that may write beside us.
#[derive(Debug, Default)]
pub(crate) struct Beside {
    /// Whether the indexes are there that an original, or an earlier release, relies on.
    pub(crate) has_original_indexes: AtomicBool,
    /// Whether ids of events are kept as UUID binaries, which some of its drivers make of texts.
    pub(crate) has_uuids: AtomicBool,
}

impl Link {
    /// Whether an original may write to the same collection.
    pub(crate) fn is_beside_original(&self) -> bool {
        self.beside.has_original_indexes.load(Ordering::Acquire)
    }

    /// Whether ids of events may be kept as UUID binaries.
    pub(crate) fn has_uuids(&self) -> bool {
        self.beside.has_uuids.load(Ordering::Acquire)
    }

    /// The partition of a target, as a condition. A span that an original has started has none
    /// before it is adopted.
    pub(crate) fn in_partition(&self, target: &Target) -> Bson {
        let partition = Bson::Int64(i64::from(partition_of(target)));
        if self.is_beside_original() {
            doc! { "$in": [partition, Bson::Null] }.into()
        } else {
            partition
        }
    }

    /// The names of the indexes that are there.
    pub(crate) async fn index_names(&self) -> Result<BTreeSet<String>, CallError> {
        let collection = self.collection.clone();
        let list = async move {
            let indexes = collection.list_indexes().await?;
            indexes.try_collect::<Vec<_>>().await
        };
        let indexes = match self.run(list).await {
            Err(error) if error.is_no_collection() => Vec::new(),
            listed => listed?,
        };
        let name = |index: mongodb::IndexModel| index.options?.name;
        Ok(indexes.into_iter().filter_map(name).collect())
    }

    /// Whether any event id is kept as a UUID binary. It takes the indexes of an original.
    pub(crate) async fn scan_for_uuids(&self) -> Result<bool, CallError> {
        for (field, index) in [
            ("start_dedup_id", index::ORIGINAL_START),
            ("end_dedup_id", index::ORIGINAL_STOP),
        ] {
            let mut options = self.find_options(1, doc! {}, index);
            options.projection = Some(doc! { "_id": 1 });
            let binary: Document = doc! { field: { "$type": "binData" } };
            if !self.find(binary, options).await?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl MongoStore {
    /// Finds out whether an original Sampler, or an earlier release, may write beside us, and
    /// whether ids of events are kept as UUID binaries, which no unique index tells from their
    /// texts. As long as there are any, each event whose id is a UUID is looked up before it is
    /// kept.
    ///
    /// # Errors
    /// If the database gave no answer.
    pub async fn observe_original(&self) -> Result<(), StoreError> {
        let link = self.link.clone();
        let names = self.link.index_names().await?;
        let is_beside = index::OF_ORIGINAL_EVENTS
            .iter()
            .any(|name| names.contains(*name));
        let can_tell = [index::ORIGINAL_START, index::ORIGINAL_STOP];
        let has_uuids = if can_tell.iter().all(|name| names.contains(*name)) {
            let scan = link.clone();
            link.run(async move { scan.scan_for_uuids().await }).await?
        } else {
            false
        };
        let beside = &self.link.beside;
        if beside
            .has_original_indexes
            .swap(is_beside, Ordering::AcqRel)
            != is_beside
        {
            info!(
                is_beside,
                "the original Sampler may write to the collection"
            );
        }
        if beside.has_uuids.swap(has_uuids, Ordering::AcqRel) != has_uuids {
            info!(has_uuids, "ids of events that are kept as UUID binaries");
        }
        Ok(())
    }
}

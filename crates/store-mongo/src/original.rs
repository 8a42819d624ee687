//! Whether the original Sampler may write to the same collection.
//!
//! It relies on unique indexes that know no keys: one open span of a target, and each event id once
//! in all. As long as these indexes are there, spans may have no key yet, and ids count across targets.
//! They go in a step of their own: see `retire.rs`.
//!
//! Events find spans by their keys alone. So before an event is looked at, the spans of its target that
//! the original has written get their key.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{Bson, Document, doc};
use futures_util::TryStreamExt;
use sampler_domain::{Key, Target};
use sampler_store::{ReadConcern, StoreError};
use tracing::info;

use crate::MongoStore;
use crate::call::{CallError, Link};
use crate::document::{key_to_bson, target_fields};
use crate::index;
use crate::resolve::any_of;
use crate::unreadable::{Statement, change_each, target_in};

/// Targets whose spans are searched at once. Each is a branch, which the server has to plan.
const TARGETS_AT_ONCE: usize = 64;

/// The state of other programs that may write beside us.
#[derive(Debug, Default)]
pub(crate) struct Beside {
    /// Whether the indexes exist that the original relies on.
    pub(crate) has_original_indexes: AtomicBool,
    /// Whether ids of events are kept as UUID binaries, which some of its drivers make of texts.
    pub(crate) has_uuids: AtomicBool,
}

impl Link {
    /// Whether the original may write to the same collection.
    pub(crate) fn is_beside_original(&self) -> bool {
        self.beside.has_original_indexes.load(Ordering::Acquire)
    }

    /// Whether ids of events may be kept as UUID binaries.
    pub(crate) fn has_uuids(&self) -> bool {
        self.beside.has_uuids.load(Ordering::Acquire)
    }

    /// The key of a target, as a condition on a span that is found by something else. A span that an
    /// original has started may have none yet.
    pub(crate) fn has_key(&self, target: &Target) -> Bson {
        let key = key_to_bson(Key::of(target));
        if self.is_beside_original() {
            doc! { "$in": [key, Bson::Null] }.into()
        } else {
            key
        }
    }

    /// Adds the keys to those spans of these targets that the original has written. Spans that the
    /// original writes afterwards are checked by its own unique indexes.
    pub(crate) async fn add_missing_keys(
        &self,
        targets: impl Iterator<Item = &Target>,
        concern: ReadConcern,
    ) -> Result<(), CallError> {
        if !self.is_beside_original() {
            return Ok(());
        }
        let targets: BTreeSet<&Target> = targets.collect();
        let mut unkeyed = Vec::new();
        for some in targets
            .into_iter()
            .collect::<Vec<_>>()
            .chunks(TARGETS_AT_ONCE)
        {
            unkeyed.extend(self.unkeyed(some, concern).await?);
        }
        let statements: Vec<Statement> = unkeyed.iter().filter_map(|raw| keying(raw)).collect();
        if statements.is_empty() {
            return Ok(());
        }
        let keyed = change_each(self, &statements).await?;
        match keyed.failed.into_iter().next() {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }

    /// The spans of these targets that have no key.
    async fn unkeyed(
        &self,
        targets: &[&Target],
        concern: ReadConcern,
    ) -> Result<Vec<RawDocumentBuf>, CallError> {
        let branches = targets.iter().map(|target| {
            let mut branch = target_fields(target, "target.");
            branch.insert("processing.key", Bson::Null);
            branch
        });
        let filter = any_of(branches.collect());
        let projection = doc! { "_id": 1, "target": 1 };
        let found = match concern {
            ReadConcern::Linearizable => {
                let found = self.find_linearizable(filter, index::ORIGINAL_TARGET, projection);
                found.await
            }
            ReadConcern::Majority => {
                let mut options = self.find_options(0, doc! {}, index::ORIGINAL_TARGET);
                options.batch_size = None;
                options.projection = Some(projection);
                self.find(filter, options).await
            }
        };
        match found {
            // The index was removed, and this program has not noticed yet. Each span had its key before.
            Err(error) if error.is_no_hint() => Ok(Vec::new()),
            found => found,
        }
    }

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
        let names = indexes.into_iter().filter_map(|index| index.options?.name);
        Ok(names.collect())
    }

    /// Whether any event id is kept as a UUID binary. It takes the indexes of the original.
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

/// The statement that gives a span its key, unless somebody else did.
fn keying(raw: &RawDocument) -> Option<Statement> {
    let key = key_to_bson(Key::of(&target_in(raw)?));
    Statement::new(raw, &doc! {}, &doc! { "$set": { "processing.key": key } })
}

impl MongoStore {
    /// Finds out whether the original Sampler may write to the same collection, and whether ids of
    /// events are kept as UUID binaries, which no unique index recognises as equal to their texts.
    /// As long as there are any, each event whose id is a UUID is looked up before it is kept.
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

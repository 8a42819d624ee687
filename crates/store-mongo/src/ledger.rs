//! The ledger: a document for each usage that was accepted, many inserted with one command, and never changed.

use std::sync::Arc;

use async_trait::async_trait;
use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{Bson, Document, doc};
use sampler_domain::{Entry, SpanId, Target, Timestamp};
use sampler_store::group::{CommandFailure, CommandResult, GroupWriter, WriteResult};
use sampler_store::{
    DueWatches, Entries, EntryOrder, EntryPosition, Ledger, LedgerSum, StoreError, Watch,
    WatchOutcome,
};
use serde::Deserialize;
use tokio::time::Instant;

use crate::call::{BY_ID, CallError, Link};
use crate::document::{id_to_bson, moment};
use crate::entry_document::{entry_document, entry_in};
use crate::raw;
use crate::{MongoStore, index, watches};

/// Inserts documents that are not there yet. What was inserted first under an id stays, so each may be
/// inserted again.
#[derive(Debug)]
pub(crate) struct InsertWriter {
    pub(crate) link: Link,
}

#[async_trait]
impl GroupWriter for InsertWriter {
    type Write = RawDocumentBuf;
    type Answer = ();
    type Failure = CallError;

    fn size(write: &RawDocumentBuf) -> usize {
        write.as_bytes().len()
    }

    /// No client waits for an entry, so there may be fewer and larger commands. The server takes them for
    /// less.
    fn commands_in_flight() -> usize {
        2
    }

    async fn send(&self, batch: &[Arc<RawDocumentBuf>], send_by: Instant) -> CommandResult<Self> {
        let documents = batch.iter().map(|document| &**document);
        let inserted = self.link.insert(documents, send_by).await?;
        let mut results: Vec<_> = batch.iter().map(|_| WriteResult::Settled(())).collect();
        for (index, failure) in inserted.failed {
            if !failure.is_duplicate_key() {
                results[index] = WriteResult::failed(failure);
            }
        }
        Ok(results)
    }
}

/// A page of the entries of a span.
pub(crate) async fn usages(
    store: &MongoStore,
    span: &SpanId,
    target: &Target,
    order: EntryOrder,
    after: Option<&EntryPosition>,
    limit: usize,
) -> Result<Entries, StoreError> {
    let (direction, bound) = match order {
        EntryOrder::Oldest => (1, "$gt"),
        EntryOrder::Newest => (-1, "$lt"),
    };
    let mut filter = of_span(span, target);
    if let Some(after) = after {
        // A bound of the index; entries of exactly this time are compared one by one.
        let at_bound = format!("{bound}e");
        filter.insert("accepted_at", doc! { at_bound: moment(after.accepted_at) });
        filter.insert(
            "$or",
            [
                doc! { "accepted_at": { bound: moment(after.accepted_at) } },
                doc! { "_id": { bound: &after.usage_guid } },
            ],
        );
    }
    let sort = doc! { "span": direction, "accepted_at": direction, "_id": direction };
    let options = store.usages.find_options(limit, sort, index::OF_SPAN);
    let found = store.usages.found(filter, options, limit).await?;
    let mut page = Entries::default();
    for raw in &found.documents {
        match entry_in(raw) {
            Ok(entry) => page.entries.push(entry),
            Err(problem) => store.link.logged.tell("usage.unreadable", raw, &problem),
        }
    }
    let last = found.documents.last().filter(|_| found.has_more);
    page.next = last.and_then(|raw| position(raw));
    Ok(page)
}

/// The position of an entry in a list, even if the entry cannot be read.
fn position(raw: &RawDocument) -> Option<EntryPosition> {
    Some(EntryPosition {
        accepted_at: Timestamp::clamped(raw.get_i64("accepted_at").ok()?),
        usage_guid: raw.get_str("_id").ok()?.to_owned(),
    })
}

fn of_span(span: &SpanId, target: &Target) -> Document {
    let mut filter = doc! { "span": id_to_bson(span) };
    for (name, id) in target.fields() {
        filter.insert(format!("target.{name}"), id.as_str());
    }
    filter
}

/// What a span's entries add up to.
#[derive(Deserialize)]
struct Sum {
    usages: i64,
    duration: i64,
}

/// What the kept entries of a span add up to, from where the oldest of them starts.
pub(crate) async fn sum_of(
    store: &MongoStore,
    span: &SpanId,
    target: &Target,
) -> Result<LedgerSum, StoreError> {
    let mut first = of_span(span, target);
    first.insert("again", Bson::Null);
    let sort = doc! { "span": 1, "accepted_at": 1, "_id": 1 };
    let options = store.usages.find_options(1, sort, index::OF_SPAN);
    let found = store.usages.fetch(first, options).await?;
    let Some(oldest) = found.first() else {
        return Ok(LedgerSum::default());
    };
    let oldest = entry_in(oldest).map_err(StoreError::refused)?;
    let since = oldest.interval.start;
    let mut filter = of_span(span, target);
    for end in ["interval.start", "interval.end"] {
        filter.insert(end, doc! { "$gte": moment(since) });
    }
    let group = doc! {
        "_id": Bson::Null, "usages": { "$sum": 1_i64 }, "duration": { "$sum": "$duration" },
    };
    let pipeline = vec![doc! { "$match": filter }, doc! { "$group": group }];
    let usages = &store.usages;
    let sums = usages.aggregate(pipeline, index::OF_SPAN, usages.time_limit);
    let sum = sums.await?.first().map(|raw| raw::read::<Sum>(raw));
    let sum = sum.transpose().map_err(StoreError::refused)?;
    Ok(LedgerSum {
        since: Some(since),
        usages: sum.as_ref().map_or(0, |it| it.usages.unsigned_abs()),
        duration: sum.map_or(0, |it| it.duration),
    })
}

#[async_trait]
impl Ledger for MongoStore {
    async fn write_entry(
        &self,
        entry: &Entry,
        expires_at: Timestamp,
        watch_at: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        // Before the entry: a death in between leaves no entry that nobody watches.
        if let Some(due_at) = watch_at {
            let watch = watches::watch_statement(entry, due_at, expires_at);
            self.watches.submit(Arc::new(watch)).await?;
        }
        let document = entry_document(entry, expires_at).map_err(StoreError::refused)?;
        self.entries.submit(Arc::new(document)).await
    }

    async fn entry(&self, usage_guid: &str) -> Result<Option<Entry>, StoreError> {
        let options = self.usages.find_options(1, doc! {}, BY_ID);
        let found = self.usages.fetch(doc! { "_id": usage_guid }, options);
        let entry = found.await?.first().map(|raw| entry_in(raw));
        entry.transpose().map_err(StoreError::refused)
    }

    async fn sum_of(&self, span: &SpanId, target: &Target) -> Result<LedgerSum, StoreError> {
        sum_of(self, span, target).await
    }

    async fn due_watches(&self, query: &DueWatches) -> Result<Vec<Watch>, StoreError> {
        watches::due_watches(self, query).await
    }

    async fn claim_watch(&self, watch: &Watch, due_at: Timestamp) -> Result<bool, StoreError> {
        watches::claim_watch(self, watch, due_at).await
    }

    async fn settle_watches(&self, outcomes: &[(Watch, WatchOutcome)]) -> Result<(), StoreError> {
        watches::settle_watches(self, outcomes).await
    }
}

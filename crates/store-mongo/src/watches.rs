//! Usages that are accepted and may not count: a document for each, until the upstream has it.

use std::sync::Arc;

use async_trait::async_trait;
use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{Bson, DateTime, Document, doc, rawdoc};
use sampler_domain::{Entry, Interval, Key, Timestamp};
use sampler_store::group::{CommandResult, GroupWriter};
use sampler_store::{
    DueWatches, EntryPosition, Missing, StoreError, Watch, WatchOutcome, WatchPage, WatchQuery,
};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::call::{BY_ID, CallError, Link};
use crate::document::{TargetDocument, id_from_bson, id_to_bson, moment, partition_number};
use crate::raw::{self, Unreadable, written};
use crate::{MongoStore, index};

/// Watches that are compared with a query for one page.
const WINDOW: usize = 2_000;

#[derive(Serialize, Deserialize)]
struct WatchDocument {
    #[serde(rename = "_id")]
    id: String,
    partition: i32,
    span: Bson,
    target: TargetDocument,
    interval: Interval,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    location: Option<String>,
    accepted_at: Timestamp,
    due_at: Timestamp,
    /// True, or not there: whether a worker is to ask for it, or to send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    asked: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    missing: Option<MissingDocument>,
    /// True, or not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resent: Option<bool>,
    /// When the server removes it, with the entry.
    expires_at: DateTime,
}

#[derive(Serialize, Deserialize)]
struct MissingDocument {
    since: Timestamp,
    error: String,
}

/// Writes watches. One that is there already begins anew.
#[derive(Debug)]
pub(crate) struct WatchWriter {
    pub(crate) link: Link,
}

#[async_trait]
impl GroupWriter for WatchWriter {
    type Write = RawDocumentBuf;
    type Answer = ();
    type Failure = CallError;

    fn size(write: &RawDocumentBuf) -> usize {
        write.as_bytes().len()
    }

    fn commands_in_flight() -> usize {
        2
    }

    async fn send(&self, batch: &[Arc<RawDocumentBuf>], send_by: Instant) -> CommandResult<Self> {
        let statements = batch.iter().map(|statement| &**statement);
        let updated = self.link.update(statements, send_by).await?;
        Ok(updated.write_results(batch.len(), |_| ()))
    }
}

/// The statement that writes the watch of a usage that was just accepted.
pub(crate) fn watch_statement(
    entry: &Entry,
    due_at: Timestamp,
    expires_at: Timestamp,
) -> RawDocumentBuf {
    let watch = written(&WatchDocument {
        id: entry.usage_guid.clone(),
        partition: partition_number(Key::of(&entry.target)),
        span: id_to_bson(&entry.span),
        target: TargetDocument::new(&entry.target),
        interval: entry.interval,
        location: entry.acceptance.location.clone(),
        accepted_at: entry.acceptance.at,
        due_at,
        asked: Some(true),
        missing: None,
        resent: None,
        expires_at: DateTime::from_millis(expires_at.as_millis()),
    });
    let by_id = rawdoc! { "_id": entry.usage_guid.as_str() };
    rawdoc! { "q": by_id, "u": watch, "upsert": true, "hint": BY_ID }
}

fn watch_in(raw: &RawDocument) -> Result<Watch, Unreadable> {
    let document: WatchDocument = raw::read(raw)?;
    Ok(Watch {
        usage_guid: document.id,
        span: id_from_bson(&document.span)?,
        target: document.target.into_target(),
        interval: document.interval,
        location: document.location,
        accepted_at: document.accepted_at,
        due_at: document.due_at,
        missing: document.missing.map(|missing| Missing {
            since: missing.since,
            error: missing.error,
        }),
        is_resent: document.resent.is_some(),
    })
}

impl MongoStore {
    /// The watches in documents. Those that cannot be read are logged.
    fn watches_in(&self, found: &[RawDocumentBuf]) -> Vec<Watch> {
        let watches = found.iter().filter_map(|raw| {
            let watch = watch_in(raw);
            if let Err(problem) = &watch {
                self.link.logged.tell("watch.unreadable", raw, problem);
            }
            watch.ok()
        });
        watches.collect()
    }
}

pub(crate) async fn due_watches(
    store: &MongoStore,
    query: &DueWatches,
) -> Result<Vec<Watch>, StoreError> {
    let partitions: Vec<i64> = query.partitions.iter().copied().map(i64::from).collect();
    let filter = doc! {
        "asked": true,
        "partition": { "$in": partitions },
        "due_at": { "$lte": moment(query.now) },
    };
    let unconfirmed = &store.unconfirmed;
    let sort = doc! { "due_at": 1 };
    let options = unconfirmed.find_options(query.limit, sort, index::WATCH_DUE);
    let found = unconfirmed.fetch(filter, options).await?;
    Ok(store.watches_in(&found))
}

/// The condition that a watch is as it was read.
fn as_read(watch: &Watch) -> Document {
    let missing = watch.missing.as_ref();
    doc! {
        "_id": &watch.usage_guid,
        "accepted_at": moment(watch.accepted_at),
        "due_at": moment(watch.due_at),
        "missing.since": missing.map_or(Bson::Null, |it| moment(it.since)),
        "resent": watch.is_resent.then_some(true),
    }
}

pub(crate) async fn claim_watch(
    store: &MongoStore,
    watch: &Watch,
    due_at: Timestamp,
) -> Result<bool, StoreError> {
    let unconfirmed = &store.unconfirmed;
    let update = doc! { "$set": { "due_at": moment(due_at) } };
    let claim = unconfirmed.update_one(as_read(watch), update, false);
    Ok(claim.await?.matched_count > 0)
}

pub(crate) async fn settle_watches(
    store: &MongoStore,
    outcomes: &[(Watch, WatchOutcome)],
) -> Result<(), StoreError> {
    let (mut removals, mut updates) = (Vec::new(), Vec::new());
    for (watch, outcome) in outcomes {
        let filter = as_read(watch);
        match update(outcome) {
            None => removals.push(written(&doc! { "q": filter, "limit": 1, "hint": BY_ID })),
            Some(update) => {
                updates.push(written(&doc! { "q": filter, "u": update, "hint": BY_ID }));
            }
        }
    }
    let link = store.unconfirmed.clone();
    let send_by = Instant::now() + link.call_limit();
    let settle = async move {
        for (is_update, statements) in [(false, removals), (true, updates)] {
            if statements.is_empty() {
                continue;
            }
            let settled = if is_update {
                link.update(&statements, send_by).await?
            } else {
                link.delete(&statements, send_by).await?
            };
            if let Some((_, failure)) = settled.failed.into_iter().next() {
                return Err(failure);
            }
        }
        Ok(())
    };
    Ok(store.link.run(settle).await?)
}

/// What an outcome makes of a watch; none where that ends it.
fn update(outcome: &WatchOutcome) -> Option<Document> {
    match outcome {
        WatchOutcome::Counts => None,
        WatchOutcome::AskAgain { at } => Some(doc! { "$set": { "due_at": moment(*at) } }),
        WatchOutcome::Missing(Missing { since, error }) => Some(doc! {
            "$set": { "missing": { "since": moment(*since), "error": error } },
            "$unset": { "asked": "", "resent": "" },
        }),
        WatchOutcome::Accepted {
            at,
            location,
            due_at,
        } => {
            let mut set = doc! {
                "accepted_at": moment(*at), "due_at": moment(*due_at), "asked": true,
            };
            let mut unset = doc! { "missing": "", "resent": "" };
            match location {
                Some(location) => set.insert("location", location),
                None => unset.insert("location", ""),
            };
            Some(doc! { "$set": set, "$unset": unset })
        }
    }
}

pub(crate) async fn resend_missing(
    store: &MongoStore,
    usage_guid: &str,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let unconfirmed = &store.unconfirmed;
    let filter = doc! {
        "_id": usage_guid, "missing": { "$exists": true }, "resent": Bson::Null,
    };
    let update = doc! { "$set": { "resent": true, "asked": true, "due_at": moment(now) } };
    let resend = unconfirmed.update_one(filter, update, false);
    Ok(resend.await?.matched_count > 0)
}

pub(crate) async fn watch(store: &MongoStore, usage: &str) -> Result<Option<Watch>, StoreError> {
    let options = store.unconfirmed.find_options(1, doc! {}, BY_ID);
    let found = store.unconfirmed.fetch(doc! { "_id": usage }, options);
    let watch = found.await?.first().map(|raw| watch_in(raw));
    watch.transpose().map_err(StoreError::refused)
}

/// A page of the watches of a query. The query is compared with a limited number of them.
pub(crate) async fn unconfirmed(
    store: &MongoStore,
    query: &WatchQuery,
) -> Result<WatchPage, StoreError> {
    let (mut filter, index) = if query.missing {
        let filter = doc! { "missing.since": { "$exists": true } };
        (filter, index::WATCH_MISSING)
    } else {
        (doc! {}, index::WATCH_LIST)
    };
    if let Some(after) = &query.after {
        filter.insert("accepted_at", doc! { "$gte": moment(after.accepted_at) });
        filter.insert(
            "$or",
            [
                doc! { "accepted_at": { "$gt": moment(after.accepted_at) } },
                doc! { "_id": { "$gt": &after.usage_guid } },
            ],
        );
    }
    let sort = doc! { "accepted_at": 1, "_id": 1 };
    let options = store.unconfirmed.find_options(WINDOW, sort, index);
    let found = store.unconfirmed.found(filter, options, WINDOW).await?;
    let watches = store.watches_in(&found.documents);
    let end = watches
        .last()
        .filter(|_| found.has_more)
        .map(Watch::position);
    let mut matching = watches.into_iter().filter(|watch| query.matches(watch));
    let watches: Vec<Watch> = matching.by_ref().take(query.limit).collect();
    let next: Option<EntryPosition> = match matching.next() {
        Some(_) => watches.last().map(Watch::position),
        None => end,
    };
    Ok(WatchPage { watches, next })
}

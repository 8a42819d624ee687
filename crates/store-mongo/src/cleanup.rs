//! The clean-up: finds and removes complete spans (section 6.3 of the paper).

use bson::doc;
use bson::raw::{RawDocument, RawDocumentBuf};
use sampler_domain::Timestamp;
use sampler_domain::partition::PARTITIONS;
use sampler_store::{Finished, StoreError};
use tokio::time::Instant;
use tracing::error;

use crate::MongoStore;
use crate::call::take;
use crate::document::{Unreadable, id_to_bson, key_to_bson, moment, read_moment, unreadable};
use crate::index;
use crate::spans::span_id;
use crate::unreadable::{decoded, key_of, name_of};

/// Up to `limit` complete spans that end before the cutoff, in no order.
pub(crate) async fn completed_before(
    store: &MongoStore,
    cutoff: Timestamp,
    limit: usize,
) -> Result<Vec<Finished>, StoreError> {
    let partitions: Vec<i64> = (0..PARTITIONS).map(i64::from).collect();
    let filter = doc! {
        "processing.complete": true,
        "processing.partition": { "$in": partitions },
        "processing.last_interval.end": { "$lt": moment(cutoff) },
    };
    let mut options = store.link.find_options(limit, doc! {}, index::COMPLETE);
    options.limit = None;
    options.projection = Some(doc! { "_id": 1, "processing": 1, "target": 1 });
    let mut ids = Vec::new();
    let mut cursor = Some(store.link.cursor(filter, options).await?);
    while let Some(open) = cursor.take() {
        let (documents, rest) = store.link.run(take(open, limit - ids.len())).await?;
        for raw in &documents {
            match completed(raw, cutoff) {
                Ok(id) => ids.push(id),
                Err(problem) => {
                    if store.is_news("clean-up", raw) {
                        let name = name_of(raw);
                        error!(code = "cleanup.not_removed", span.id = %name, error = %problem, "a document is not removed");
                    }
                }
            }
        }
        cursor = rest.filter(|_| ids.len() < limit);
    }
    Ok(ids)
}

/// Removes each span by a statement of its own, with its shard key.
pub(crate) async fn remove(store: &MongoStore, finished: &[Finished]) -> Result<u64, StoreError> {
    let statements = finished.iter().map(removal);
    let statements: Vec<RawDocumentBuf> = statements
        .collect::<Result<_, _>>()
        .map_err(StoreError::refused)?;
    let link = store.link.clone();
    let send_by = Instant::now() + link.call_limit();
    let removal = async move { link.delete(&statements, send_by).await };
    let removed = store.link.run(removal).await?;
    match removed.failed.into_iter().next() {
        Some((_, error)) => Err(error.into()),
        None => Ok(removed.matched as u64),
    }
}

/// The statement that removes a span if it is complete.
fn removal(finished: &Finished) -> Result<RawDocumentBuf, bson::error::Error> {
    let condition = doc! {
        "_id": id_to_bson(&finished.id),
        "processing.key": key_to_bson(finished.key),
        "processing.complete": true,
        // A list of objects would match the condition on its members, too.
        "$expr": { "$eq": [{ "$type": "$processing" }, "object"] },
    };
    RawDocumentBuf::try_from(&doc! { "q": condition, "limit": 1, "hint": "_id_" })
}

/// The span in a document, if it is certainly complete and ends before the cutoff. A document with an
/// `_id` of another type was written by another program and is not removed.
fn completed(raw: &RawDocument, cutoff: Timestamp) -> Result<Finished, Unreadable> {
    let id = span_id(raw)?;
    let document = decoded(raw)?;
    let processing = document
        .get_document("processing")
        .map_err(|_| unreadable("processing", "is not an object"))?;
    let last = processing
        .get_document("last_interval")
        .map_err(|_| unreadable("last_interval", "is not an object"))?;
    let is_over = read_moment(last, "end")? < cutoff;
    if is_over
        && processing
            .get_bool("complete")
            .is_ok_and(|complete| complete)
    {
        let key = key_of(raw).ok_or_else(|| unreadable("processing.key", "is not a key"))?;
        Ok(Finished { id, key })
    } else {
        Err(unreadable(
            "processing",
            "does not say that the span is complete",
        ))
    }
}

//! The clean-up: finds and removes complete spans (section 6.3 of the paper).

use bson::doc;
use bson::raw::RawDocumentBuf;
use sampler_domain::Timestamp;
use sampler_domain::partition::PARTITIONS;
use sampler_store::{Finished, StoreError};
use tokio::time::Instant;
use tracing::error;

use crate::MongoStore;
use crate::call::BY_ID;
use crate::document::{id_to_bson, key_to_bson, moment};
use crate::index;
use crate::raw::{Place, name_of, written};

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
    options.projection = Some(doc! { "_id": 1, "processing.key": 1 });
    let found = store.link.fetch(filter, options).await?;
    let finished = found.iter().filter_map(|raw| match Place::of(raw) {
        Ok((id, key)) => Some(Finished { id, key }),
        Err(problem) => {
            let name = name_of(raw);
            if store.link.logged.is_news("clean-up", &name) {
                error!(code = "cleanup.not_removed", span.id = %name, error = %problem,
                    "a document is not removed");
            }
            None
        }
    });
    Ok(finished.collect())
}

/// Removes each span by a statement of its own, with its shard key.
pub(crate) async fn remove(store: &MongoStore, finished: &[Finished]) -> Result<u64, StoreError> {
    if finished.is_empty() {
        return Ok(0);
    }
    let statements: Vec<RawDocumentBuf> = finished.iter().map(removal).collect();
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
fn removal(finished: &Finished) -> RawDocumentBuf {
    let condition = doc! {
        "_id": id_to_bson(&finished.id),
        "processing.key": key_to_bson(finished.key),
        "processing.complete": true,
    };
    written(&doc! { "q": condition, "limit": 1, "hint": BY_ID })
}

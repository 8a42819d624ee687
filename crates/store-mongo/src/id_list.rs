//! The spans that were kept last.

use bson::doc;
use sampler_store::{ListedSpan, StoreError};

use crate::MongoStore;

/// The spans that were kept last: their ids begin with the time of the insert.
pub(crate) async fn newest_spans(
    store: &MongoStore,
    limit: usize,
) -> Result<Vec<ListedSpan>, StoreError> {
    let options = store.link.find_options(limit, doc! { "_id": -1 }, "_id_");
    let of_spans = doc! { "_id": { "$type": "objectId" } };
    let found = store.link.found(of_spans, options, limit).await?;
    let listed = found.documents.iter().filter_map(|raw| store.listed(raw));
    Ok(listed.collect())
}

//! Going through all spans of a partition, by the index that holds each of them.

use bson::{RawDocumentBuf, doc};
use futures_util::stream::{self, StreamExt};

use sampler_domain::Key;
use sampler_store::{SpanKey, SpanKeys};

use crate::MongoStore;
use crate::call::take;
use crate::document::{id_from_bson, key_to_bson, member, read_target};
use crate::index;
use crate::unreadable::decoded;

pub(crate) fn spans_of(
    store: &MongoStore,
    partition: u32,
    from: Option<Key>,
    page: usize,
) -> SpanKeys {
    let from = from.unwrap_or(Key::first_of(partition));
    let range = doc! {
        "$gte": key_to_bson(from), "$lte": key_to_bson(Key::last_of(partition)),
    };
    let filter = doc! { "processing.key": range };
    let begun = (store.link.clone(), Some(filter), None);
    stream::try_unfold(begun, move |(link, filter, cursor)| async move {
        let cursor = match (filter, cursor) {
            (Some(filter), _) => {
                let read = doc! { "_id": 1, "target": 1 };
                let order = (index::SPAN, "processing.key");
                link.scan(filter, order, Some(read), page).await?
            }
            (None, Some(cursor)) => cursor,
            (None, None) => return Ok(None),
        };
        let (documents, rest) = link.run(take(cursor, page)).await?;
        let keys = documents.iter().filter_map(key_in).collect();
        Ok(Some((keys, (link, None, rest))))
    })
    .boxed()
}

/// A span that cannot be read is left out. The search reports it once it is due.
fn key_in(raw: &RawDocumentBuf) -> Option<SpanKey> {
    let document = decoded(raw).ok()?;
    Some(SpanKey {
        id: id_from_bson(document.get("_id")).ok()?,
        target: read_target(member(&document, "target").ok()?).ok()?,
    })
}

//! Going through all spans of a partition, by the index that holds each of them.

use std::time::Duration;

use bson::{Document, RawDocumentBuf, doc};
use futures_util::stream::{self, StreamExt};
use mongodb::Cursor;
use mongodb::options::FindOptions;
use sampler_domain::Key;
use sampler_store::{SpanKey, SpanKeys};

use crate::MongoStore;
use crate::call::{CallError, Link, hint, take};
use crate::document::{id_from_bson, key_to_bson, member, read_target};
use crate::index;
use crate::unreadable::decoded;

/// The server's time limit for all pages of a partition. Each page also has the limit of any
/// operation.
const SCAN_TIME: Duration = Duration::from_mins(1);

#[allow(clippy::large_enum_variant, reason = "there is one for each scan")]
enum Scan {
    Before(Document),
    Open(Cursor<Document>),
    Over,
}

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
    let link = store.link.clone();
    let next = move |scan| {
        let link = link.clone();
        async move {
            match next_page(&link, scan, page).await {
                Ok(Some((documents, rest))) => {
                    let keys = documents.iter().filter_map(key_in).collect();
                    Some((Ok(keys), rest))
                }
                Ok(None) => None,
                Err(error) => Some((Err(error.into()), Scan::Over)),
            }
        }
    };
    stream::unfold(Scan::Before(filter), next).boxed()
}

async fn next_page(
    link: &Link,
    scan: Scan,
    page: usize,
) -> Result<Option<(Vec<RawDocumentBuf>, Scan)>, CallError> {
    let cursor = match scan {
        Scan::Before(filter) => open(link, filter, page).await?,
        Scan::Open(cursor) => cursor,
        Scan::Over => return Ok(None),
    };
    let (documents, cursor) = link.run(take(cursor, page)).await?;
    Ok(Some((documents, cursor.map_or(Scan::Over, Scan::Open))))
}

async fn open(link: &Link, filter: Document, page: usize) -> Result<Cursor<Document>, CallError> {
    let options = FindOptions::builder()
        .batch_size(u32::try_from(page).unwrap_or(u32::MAX))
        .sort(doc! { "processing.key": 1 })
        .projection(doc! { "_id": 1, "target": 1 })
        .hint(hint(index::SPAN))
        .max_time(SCAN_TIME)
        .build();
    let spans = link.collection.clone();
    let find = async move { spans.find(filter).with_options(options).await };
    link.run(find).await
}

/// A span that cannot be read is left out. The search reports it once it is due.
fn key_in(raw: &RawDocumentBuf) -> Option<SpanKey> {
    let document = decoded(raw).ok()?;
    Some(SpanKey {
        id: id_from_bson(document.get("_id")).ok()?,
        target: read_target(member(&document, "target").ok()?).ok()?,
    })
}

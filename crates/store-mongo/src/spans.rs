//! Reads spans: one by its id, and all of them page by page.

use bson::doc;
use bson::raw::RawDocument;

use sampler_domain::{Span, SpanId, Target};
use sampler_store::{ScanPage, StoreError};
use tracing::error;

use crate::MongoStore;
use crate::call::take_spans;
use crate::document::{Unreadable, id_from_bson, id_to_bson};
use crate::resolve::readable;
use crate::unreadable::{Identity, decoded, name_of, span_in};

/// A page of all spans, in the order of `_id`. Bounds of an index compare values of all types, so
/// ids that are texts have their place in this order, too.
pub(crate) async fn page_of_spans(
    store: &MongoStore,
    after: Option<&SpanId>,
    limit: usize,
) -> Result<ScanPage, StoreError> {
    let mut filter = doc! { "_id": { "$type": ["objectId", "string"] } };
    let mut options = store.link.find_options(limit, doc! { "_id": 1 }, "_id_");
    if let Some(after) = after.map(id_to_bson) {
        filter.insert("$nor", [doc! { "_id": &after }]);
        options.min = Some(doc! { "_id": after });
    }
    // The next page begins after a readable id, so this one may be longer.
    options.limit = None;
    let mut cursor = Some(store.link.cursor(filter, options).await?);
    let (mut page, mut count) = (ScanPage::default(), limit);
    while let Some(open) = cursor.take() {
        let (documents, rest) = store.link.run(take_spans(open, count)).await?;
        for raw in &documents {
            store.add(&mut page, raw);
        }
        let last = documents.last().filter(|_| rest.is_some());
        page.next = last.and_then(|last| span_id(last).ok());
        cursor = rest.filter(|_| page.next.is_none());
        count = 1;
    }
    Ok(page)
}

pub(crate) async fn read(
    store: &MongoStore,
    id: &SpanId,
    target: &Target,
) -> Result<Option<Span>, StoreError> {
    let mut filter = store.link.shard_key_filter(target);
    filter.insert("_id", id_to_bson(id));
    let options = store.link.find_options(1, doc! {}, "_id_");
    let found = store.link.fetch(filter, options).await?;
    found.first().map(readable).transpose()
}

impl MongoStore {
    fn add(&self, page: &mut ScanPage, raw: &RawDocument) {
        match span_in(raw) {
            Ok(span) => page.spans.push(span),
            Err(problem) => {
                page.unreadable += 1;
                if self.is_news("page", raw) {
                    let name = name_of(raw);
                    error!(code = "page.unreadable", span.id = %name, error = %problem, "a document cannot be read as a span");
                }
            }
        }
    }

    /// Whether an unreadable document must be logged now.
    pub(crate) fn is_news(&self, of: &'static str, raw: &RawDocument) -> bool {
        self.link.logged.is_news(of, &name_of(raw))
    }
}

/// The id of a span, even if the rest of the document is unreadable.
pub(crate) fn span_id(raw: &RawDocument) -> Result<SpanId, Unreadable> {
    let id = Identity::of(raw).map(|id| decoded(&id.filter()));
    let id = id.transpose()?.unwrap_or_default();
    id_from_bson(id.get("_id"))
}

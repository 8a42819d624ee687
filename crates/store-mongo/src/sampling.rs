//! Noting what became of spans, and removing them (sections 6.3, 6.5 and 6.6 of the paper).

use bson::{Bson, Document, doc};
use mongodb::options::FindOptions;
use sampler_domain::{Change, Changed, Span, SpanId, Timestamp};
use sampler_store::{Page, StoreError};

use crate::MongoStore;
use crate::changes::ChangeOfSpan;
use crate::document::{id_from_bson, id_to_bson, moment, read};

impl MongoStore {
    /// The documents that match, as a majority has them.
    pub(crate) async fn found(
        &self,
        filter: Document,
        options: FindOptions,
    ) -> Result<Vec<Document>, StoreError> {
        let link = self.link.clone();
        let find = async move { link.find(filter, options).await };
        Ok(self.link.run(find).await?)
    }

    /// A page of all spans, in the order of `_id`. Bounds of that index, unlike comparisons, know
    /// no types: ids that are texts lie in one order with the others.
    pub(crate) async fn page_of_spans(
        &self,
        after: Option<&SpanId>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        let mut filter = doc! { "_id": { "$type": ["objectId", "string"] } };
        let mut options = self.link.find_options(limit, doc! { "_id": 1 }, "_id_");
        if let Some(after) = after.map(id_to_bson) {
            filter.insert("$nor", [doc! { "_id": &after }]);
            options.min = Some(doc! { "_id": after });
        }
        let documents = self.found(filter, options).await?;
        let last = documents.last().filter(|_| documents.len() == limit);
        let next = last.and_then(|last| id_from_bson(last.get("_id")).ok());
        let spans: Vec<Span> = documents
            .iter()
            .filter_map(|found| read(found).ok())
            .collect();
        Ok(Page {
            unreadable: (documents.len() - spans.len()) as u64,
            spans,
            next,
        })
    }

    pub(crate) async fn find_span(&self, id: &SpanId) -> Result<Option<Span>, StoreError> {
        let (spans, filter) = (self.link.spans.clone(), doc! { "_id": id_to_bson(id) });
        let found = self
            .link
            .run(async move { spans.find_one(filter).await })
            .await?;
        found
            .map(|document| crate::look::readable(&document))
            .transpose()
    }

    pub(crate) async fn change_span(
        &self,
        span: &Span,
        change: &Change,
        now: Timestamp,
    ) -> Result<Changed, StoreError> {
        let change = ChangeOfSpan::new(span, change, now)?;
        self.changes.submit(change).await
    }

    pub(crate) async fn spans_completed_before(
        &self,
        cutoff: Timestamp,
        limit: usize,
    ) -> Result<Vec<SpanId>, StoreError> {
        let filter = doc! {
            "processing.complete": true,
            "processing.last_interval.end": { "$lt": moment(cutoff) },
        };
        let sort = doc! { "processing.last_interval.end": 1 };
        let mut options = self.link.find_options(limit, sort, "search_processing");
        options.projection = Some(doc! { "_id": 1 });
        let documents = self.found(filter, options).await?;
        // An `_id` of another type is somebody else's document; it is not ours to remove.
        Ok(documents
            .iter()
            .filter_map(|found| id_from_bson(found.get("_id")).ok())
            .collect())
    }

    pub(crate) async fn remove_spans(&self, ids: &[SpanId]) -> Result<u64, StoreError> {
        let ids: Vec<Bson> = ids.iter().map(id_to_bson).collect();
        let filter = doc! { "_id": { "$in": ids }, "processing.complete": true };
        let spans = self.link.spans.clone();
        let result = self
            .link
            .run(async move { spans.delete_many(filter).await })
            .await?;
        Ok(result.deleted_count)
    }
}

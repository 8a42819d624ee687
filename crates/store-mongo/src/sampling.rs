//! Reading spans, and removing complete ones (sections 6.3, 6.5 and 6.6 of the paper).

use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{Bson, Document, doc};
use mongodb::Cursor;
use mongodb::options::FindOptions;
use sampler_domain::partition::PARTITIONS;
use sampler_domain::{Change, Changed, Span, SpanId, Target, Timestamp};
use sampler_store::{Events, Finished, Page, StoreError};
use tokio::time::Instant;
use tracing::error;

use crate::MongoStore;
use crate::call::{CallError, take, take_spans};
use crate::changes::ChangeOfSpan;
use crate::document::{Unreadable, id_from_bson, id_to_bson, moment, read_moment, unreadable};
use crate::index;
use crate::resolve::readable;
use crate::unreadable::{Identity, decoded, name_of, span_in, where_kept};

impl MongoStore {
    /// The documents that match, as a majority has them, to be taken off page by page.
    pub(crate) async fn cursor(
        &self,
        filter: Document,
        options: FindOptions,
    ) -> Result<Cursor<Document>, CallError> {
        let spans = self.link.spans.clone();
        let find = async move { spans.find(filter).with_options(options).await };
        self.link.run(find).await
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
        // The next page begins behind an id that can be named, so this one may be longer.
        options.limit = None;
        let mut cursor = Some(self.cursor(filter, options).await?);
        let (mut page, mut count) = (Page::default(), limit);
        while let Some(open) = cursor.take() {
            let (documents, rest) = self.link.run(take_spans(open, count)).await?;
            for raw in &documents {
                self.add(&mut page, raw);
            }
            let last = documents.last().filter(|_| rest.is_some());
            page.next = last.and_then(|last| span_id(last).ok());
            cursor = rest.filter(|_| page.next.is_none());
            count = 1;
        }
        Ok(page)
    }

    fn add(&self, page: &mut Page, raw: &RawDocument) {
        match span_in(raw) {
            Ok(span) => page.spans.push(span),
            Err(problem) => {
                page.unreadable += 1;
                if self.is_news("page", raw) {
                    let name = name_of(raw);
                    error!(code = "page.unreadable", span.id = %name, error = %problem, "a document is no span that can be read");
                }
            }
        }
    }

    /// Whether something is to be told of a document now.
    pub(crate) fn is_news(&self, of: &'static str, raw: &RawDocument) -> bool {
        self.link.told.is_news(of, &name_of(raw))
    }

    pub(crate) async fn find_span(
        &self,
        id: &SpanId,
        target: &Target,
    ) -> Result<Option<Span>, StoreError> {
        let (link, mut filter) = (self.link.clone(), self.link.where_kept(target));
        filter.insert("_id", id_to_bson(id));
        let options = self.link.find_options(1, doc! {}, "_id_");
        let find = async move { link.find(filter, options).await };
        let found = self.link.run(find).await?;
        found.first().map(readable).transpose()
    }

    pub(crate) async fn change_span(
        &self,
        span: &Span,
        change: &Change,
        now: Timestamp,
    ) -> Result<Changed, StoreError> {
        let change = ChangeOfSpan::new(span, change, now)?;
        self.changes
            .submit(self.range_of(&span.target), change)
            .await
    }

    /// In no order: all that it finds is to go.
    pub(crate) async fn spans_completed_before(
        &self,
        cutoff: Timestamp,
        limit: usize,
    ) -> Result<Vec<Finished>, StoreError> {
        let mut partitions: Vec<Bson> =
            (0..PARTITIONS).map(|each| i64::from(each).into()).collect();
        if self.link.is_beside_original() {
            partitions.push(Bson::Null);
        }
        let filter = doc! {
            "processing.complete": true,
            "processing.partition": { "$in": partitions },
            "processing.last_interval.end": { "$lt": moment(cutoff) },
        };
        let mut options = self.link.find_options(limit, doc! {}, index::COMPLETE);
        options.limit = None;
        options.projection = Some(doc! { "_id": 1, "processing": 1, "target": 1 });
        let mut ids = Vec::new();
        let mut cursor = Some(self.cursor(filter, options).await?);
        while let Some(open) = cursor.take() {
            let (documents, rest) = self.link.run(take(open, limit - ids.len())).await?;
            for raw in &documents {
                match completed(raw, cutoff) {
                    Ok(id) => ids.push(id),
                    Err(problem) => {
                        if self.is_news("clean-up", raw) {
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

    /// Each by a statement of its own, which says where it is kept.
    pub(crate) async fn remove_spans(&self, finished: &[Finished]) -> Result<u64, StoreError> {
        let statements: Result<Vec<RawDocumentBuf>, _> = finished.iter().map(removal).collect();
        let statements = statements.map_err(|error| StoreError::Refused(Box::new(error)))?;
        let link = self.link.clone();
        let send_by = Instant::now() + link.call_limit();
        let removal = async move { link.delete(&statements, send_by).await };
        let removed = self.link.run(removal).await?;
        match removed.failed.into_iter().next() {
            Some((_, error)) => Err(error.into()),
            None => Ok(removed.matched as u64),
        }
    }
}

/// The statement that removes a span if it is complete.
fn removal(finished: &Finished) -> Result<RawDocumentBuf, bson::error::Error> {
    let partition = finished.partition.map(i64::from);
    let mut condition = doc! {
        "_id": id_to_bson(&finished.id),
        "processing.partition": partition.map_or(Bson::Null, Bson::from),
        "processing.complete": true,
        // A list that holds what is complete is not what is complete.
        "$expr": { "$eq": [{ "$type": "$processing" }, "object"] },
    };
    if let Some(instance) = &finished.instance {
        condition.insert("target.resource_instance_id", instance.as_str());
    }
    RawDocumentBuf::try_from(&doc! { "q": condition, "limit": 1, "hint": "_id_" })
}

/// The id of a span, whatever else the document holds.
fn span_id(raw: &RawDocument) -> Result<SpanId, Unreadable> {
    let id = Identity::of(raw).map(|id| decoded(&id.filter()));
    let id = id.transpose()?.unwrap_or_default();
    id_from_bson(id.get("_id"))
}

/// The id of a span that is complete beyond doubt, and ends before the cutoff. An `_id` of another
/// type is somebody else's document; it is not ours to remove.
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
        let (partition, instance) = where_kept(raw);
        Ok(Finished {
            id,
            partition,
            instance,
        })
    } else {
        Err(unreadable(
            "processing",
            "does not say that the span is complete",
        ))
    }
}

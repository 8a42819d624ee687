//! Polling for due spans (section 6.4 of the paper).
//!
//! A span that is done leaves the index, but the server keeps its key for some minutes, for older
//! snapshots. A search that began at the front for each page would step over all of these keys each
//! time. So a search is one cursor, which continues where it stopped.

use bson::raw::RawDocumentBuf;
use bson::{Document, doc};
use futures_util::stream::{self, StreamExt};
use mongodb::Cursor;

use sampler_domain::Span;
use sampler_store::{DuePages, DueQuery, StoreError};

use crate::MongoStore;
use crate::call::{CallError, Link, take_spans};
use crate::document::moment;
use crate::index;
use crate::raw::span_in;

struct Search {
    link: Link,
    page: usize,
    /// The condition, until the search has begun.
    filter: Option<Document>,
    /// The position, until the search has come to its end.
    cursor: Option<Cursor<Document>>,
}

/// Polls for due spans, in the order of `due_at`.
pub(crate) fn due(store: &MongoStore, query: &DueQuery) -> DuePages {
    let search = Search {
        link: store.link.clone(),
        page: query.page,
        filter: Some(due_in(query)),
        cursor: None,
    };
    stream::try_unfold(search, async |mut search| {
        let page = search.next().await?;
        Ok(page.map(|page| (page, search)))
    })
    .boxed()
}

impl Search {
    /// The spans of the next page; `None` after the last one.
    async fn next(&mut self) -> Result<Option<Vec<Span>>, StoreError> {
        let Some(documents) = self.documents().await? else {
            return Ok(None);
        };
        let mut spans = Vec::with_capacity(documents.len());
        for document in documents {
            match span_in(&document) {
                Ok(span) => spans.push(span),
                Err(problem) => self
                    .link
                    .logged
                    .tell("span.unreadable", &document, &problem),
            }
        }
        Ok(Some(spans))
    }

    /// The next documents; `None` after the last ones.
    async fn documents(&mut self) -> Result<Option<Vec<RawDocumentBuf>>, CallError> {
        let cursor = match (self.filter.take(), self.cursor.take()) {
            (Some(filter), _) => {
                let order = (index::DUE, "processing.due_at");
                self.link.scan(filter, order, self.page).await?
            }
            (None, Some(cursor)) => cursor,
            (None, None) => return Ok(None),
        };
        let (documents, rest) = self.link.run(take_spans(cursor, self.page)).await?;
        self.cursor = rest;
        Ok((!documents.is_empty()).then_some(documents))
    }
}

/// The condition on due spans of the query's partitions.
fn due_in(query: &DueQuery) -> Document {
    let partitions: Vec<i64> = query.partitions.iter().copied().map(i64::from).collect();
    doc! {
        "processing.complete": false,
        "processing.partition": { "$in": partitions },
        "processing.due_at": { "$lte": moment(query.now) },
    }
}

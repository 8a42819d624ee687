//! Polling for due spans (section 6.4 of the paper).
//!
//! A span that is done leaves the index, but the server keeps its key for some minutes, for older
//! snapshots. A search that began at the front for each page would step over all of these keys each
//! time. So a search is one cursor, which continues where it stopped.

use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{Document, doc};
use futures_util::stream::{self, StreamExt};
use mongodb::Cursor;

use sampler_domain::{Span, SpanId, Target};
use sampler_store::{DuePages, DueQuery, StoreError};
use tracing::error;

use crate::MongoStore;
use crate::call::{BY_ID, CallError, Link, take_spans};
use crate::document::{id_to_bson, moment};
use crate::index;
use crate::raw::{Unreadable, name_of, span_in};
use crate::resolve::of_target;

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
                Err(problem) => tell_unreadable(&self.link, &document, &problem),
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

/// Each search meets the document again, and steps over it.
fn tell_unreadable(link: &Link, document: &RawDocument, problem: &Unreadable) {
    let name = name_of(document);
    if link.logged.is_news("search", &name) {
        error!(code = "span.unreadable", span.id = %name, error = %problem,
            "a span cannot be read and is not sampled");
    }
}

/// Reads one span by its id.
pub(crate) async fn read(
    store: &MongoStore,
    id: &SpanId,
    target: &Target,
) -> Result<Option<Span>, StoreError> {
    let mut filter = of_target(target);
    filter.insert("_id", id_to_bson(id));
    let options = store.link.find_options(1, doc! {}, BY_ID);
    let found = store.link.fetch(filter, options).await?;
    let span = found.first().map(|raw| span_in(raw));
    span.transpose().map_err(StoreError::refused)
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

//! Polling for due spans (section 6.4 of the paper).
//!
//! A span that is done leaves the index, but the server keeps its key for some minutes, for older
//! snapshots. A search that began at the front for each page would step over all of these keys each
//! time. So a search is one cursor, which continues where it stopped.

use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{Document, doc};
use futures_util::stream::{self, StreamExt};
use mongodb::Cursor;

use sampler_domain::{Key, Span};
use sampler_store::{DuePages, DueQuery, StoreError};
use tracing::{error, info};

use crate::MongoStore;
use crate::call::{CallError, Link, take_spans};
use crate::document::{Unreadable, moment, placed_by};
use crate::index;
use crate::unreadable::{Statement, change_each, key_of, name_of, span_in};

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
        let (mut spans, mut misplaced) = (Vec::with_capacity(documents.len()), Vec::new());
        for document in documents {
            match span_in(&document) {
                Ok(span) if is_misplaced(&document, &span) => misplaced.push((document, span)),
                Ok(span) => spans.push(span),
                Err(problem) => tell_unreadable(&self.link, &document, &problem),
            }
        }
        move_to_key(&self.link, &misplaced).await;
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

/// Whether a span has a wrong key, or none: it was adopted before its target could be read, and its
/// target was corrected since. No other statement would find it.
fn is_misplaced(document: &RawDocument, span: &Span) -> bool {
    key_of(document) != Some(Key::of(&span.target))
}

/// Corrects the keys and partitions of spans. The next search finds them there.
async fn move_to_key(link: &Link, misplaced: &[(RawDocumentBuf, Span)]) {
    let statements = misplaced.iter().filter_map(|(document, span)| {
        let update = doc! { "$set": placed_by(Key::of(&span.target)) };
        Statement::new(document, &doc! {}, &update)
    });
    let statements: Vec<Statement> = statements.collect();
    if statements.is_empty() {
        return;
    }
    // If this fails, the next search finds the span again and retries.
    let moved = change_each(link, &statements).await;
    let moved = moved.map_or(0, |written| written.modified);
    info!(
        spans = moved,
        "spans were put into the partitions of their targets"
    );
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

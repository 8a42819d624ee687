//! Polling for due spans (section 6.4 of the paper).
//!
//! A span that is done leaves the index, but the server keeps its key for some minutes, for older
//! snapshots. A search that began at the front for each page would step over all of these keys each
//! time. So a search is one cursor, which continues where it stopped.

use std::collections::VecDeque;

use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{Document, doc};
use futures_util::stream::{self, StreamExt};
use mongodb::Cursor;

use sampler_domain::{Key, Span, Timestamp};
use sampler_store::{DuePages, DueQuery, StoreError};
use tracing::info;

use crate::MongoStore;
use crate::call::{CallError, Link, take_spans};
use crate::document::{has_failed, moment, placed_by};
use crate::index;
use crate::unreadable::{Statement, change_each, key_of, postpone_unreadable, span_in};

struct Search {
    link: Link,
    now: Timestamp,
    page: usize,
    /// The scans that remain, the most urgent first.
    scans: VecDeque<IndexScan>,
    /// The position in the current scan.
    cursor: Option<Cursor<Document>>,
}

/// A scan of one range of an index, in the order of `due_at`.
struct IndexScan {
    filter: Document,
    index: &'static str,
}

/// Polls for due spans, one [`SearchClass`](sampler_store::SearchClass) after the other; within
/// each class the index has them in the order of `due_at`.
pub(crate) fn due(store: &MongoStore, query: &DueQuery) -> DuePages {
    let search = Search {
        link: store.link.clone(),
        now: query.now,
        page: query.page,
        scans: scans(query),
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
        let (mut spans, mut unreadable) = (Vec::with_capacity(documents.len()), Vec::new());
        let mut misplaced = Vec::new();
        for document in documents {
            match span_in(&document) {
                Ok(span) if is_misplaced(&document, &span) => misplaced.push((document, span)),
                Ok(span) => spans.push(span),
                Err(problem) => unreadable.push((document, problem)),
            }
        }
        move_to_key(&self.link, &misplaced).await;
        postpone_unreadable(&self.link, unreadable, self.now).await;
        Ok(Some(spans))
    }

    /// The next documents, of the current scan or a later one.
    async fn documents(&mut self) -> Result<Option<Vec<RawDocumentBuf>>, CallError> {
        loop {
            let cursor = match self.cursor.take() {
                Some(cursor) => cursor,
                None => match self.scans.pop_front() {
                    Some(IndexScan { filter, index }) => {
                        let order = (index, "processing.due_at");
                        self.link.scan(filter, order, None, self.page).await?
                    }
                    None => return Ok(None),
                },
            };
            let (documents, cursor) = self.link.run(take_spans(cursor, self.page)).await?;
            self.cursor = cursor;
            if !documents.is_empty() {
                return Ok(Some(documents));
            }
        }
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

/// The lower end of a span's planned interval, as an expression. Without one, the end of its last.
fn continues_at() -> Document {
    let planned = [
        "$processing.planned_interval.start",
        "$processing.planned_interval.end",
    ];
    doc! { "$ifNull": [{ "$min": planned.to_vec() }, "$processing.last_interval.end"] }
}

/// The scans, one after the other, by search class (see [`DueQuery::search_class`], which is the same
/// rule for a single span). The last class is two scans.
fn scans(query: &DueQuery) -> VecDeque<IndexScan> {
    let now = moment(query.now);
    let Some(closing) = query.closing else {
        return VecDeque::from([by_due_at(due_in(query, doc! { "$lte": now }))]);
    };
    let start = moment(closing.start);
    let in_time = doc! { "$gte": &start, "$lte": moment(closing.last_due_at().min(query.now)) };
    let after = doc! { "$gt": moment(closing.last_due_at()), "$lte": now };
    // A span that is sampled to the end of the month belongs to it if it was stopped before.
    let (end, next) = (moment(closing.end), continues_at());
    let put_off = doc! {
        "processing.attempts": { "$gt": 0 },
        "processing.last_interval.end": { "$gte": &start, "$lte": &end },
        "$expr": { "$and": [has_failed(), { "$gte": [&next, &start] }, { "$lt": [&next, &end] }] },
    };
    let mut failed = due_in(query, after.clone());
    failed.extend(put_off.clone());
    let mut others = due_in(query, after);
    others.insert("$nor", [put_off]);
    VecDeque::from([
        by_due_at(due_in(query, in_time)),
        IndexScan {
            filter: failed,
            index: index::FAILED,
        },
        by_due_at(due_in(query, doc! { "$lt": start })),
        by_due_at(others),
    ])
}

/// The condition on spans of the query's partitions that are due in a range of time.
fn due_in(query: &DueQuery, range: Document) -> Document {
    let partitions: Vec<i64> = query.partitions.iter().copied().map(i64::from).collect();
    doc! {
        "processing.complete": false,
        "processing.partition": { "$in": partitions },
        "processing.due_at": range,
    }
}

fn by_due_at(filter: Document) -> IndexScan {
    IndexScan {
        filter,
        index: index::DUE,
    }
}

//! Polling for due spans (section 6.4 of the paper).
//!
//! A span that is done leaves the index, but the server keeps its key for minutes after that, for
//! readers of the past. A search that began at the front each time would step over all of these
//! keys each time. So a search is one cursor, which goes on where it stopped.

use std::collections::VecDeque;
use std::time::Duration;

use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{Bson, Document, doc, rawdoc};
use futures_util::stream::{self, StreamExt};
use mongodb::Cursor;
use mongodb::options::FindOptions;
use sampler_domain::partition::partition_of;
use sampler_domain::{Span, Timestamp};
use sampler_store::{DuePages, DueQuery, StoreError};
use tracing::info;

use crate::MongoStore;
use crate::call::{CallError, Link, hint, take_spans};
use crate::document::{has_failed, moment, partition};
use crate::index;
use crate::unreadable::{
    Statement, change_each, condition_of, name_of, set_aside, span_in, where_kept,
};

/// What the server may spend on all pages of a range. We wait for none of them longer than for any
/// other operation.
const RANGE_TIME: Duration = Duration::from_mins(1);

/// A search that goes on.
struct Search {
    link: Link,
    now: Timestamp,
    page: usize,
    /// What is still to be scanned, the most urgent first.
    ranges: VecDeque<Range>,
    /// Where the search is in the range before those.
    cursor: Option<Cursor<Document>>,
}

/// One range of spans to scan, in the order of `due_at`.
struct Range {
    filter: Document,
    index: &'static str,
}

impl MongoStore {
    /// Polls for due spans, one class of urgency after the other; within each the index has them in
    /// their order.
    pub(crate) fn due_spans(&self, query: &DueQuery) -> DuePages {
        let search = Search {
            link: self.link.clone(),
            now: query.now,
            page: query.page,
            ranges: ranges(query),
            cursor: None,
        };
        stream::try_unfold(search, async |mut search| {
            let page = search.next().await?;
            Ok(page.map(|page| (page, search)))
        })
        .boxed()
    }
}

impl Search {
    /// The spans of the next page, unless that was the last one.
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
        move_to_partition(&self.link, &misplaced).await;
        set_aside(&self.link, unreadable, self.now).await;
        Ok(Some(spans))
    }

    /// The next documents, of the range that the search is in or of one behind it.
    async fn documents(&mut self) -> Result<Option<Vec<RawDocumentBuf>>, CallError> {
        loop {
            let cursor = match self.cursor.take() {
                Some(cursor) => cursor,
                None => match self.ranges.pop_front() {
                    Some(range) => open(&self.link, range, self.page).await?,
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

/// Whether a span is in another partition than its target says: it was taken in before its target
/// could be read, and mended since. No statement of ours would find it there.
fn is_misplaced(document: &RawDocument, span: &Span) -> bool {
    let (partition, _) = where_kept(document);
    partition != Some(partition_of(&span.target))
}

/// Puts spans into the partitions that their targets say. The next search finds them there.
async fn move_to_partition(link: &Link, misplaced: &[(RawDocumentBuf, Span)]) {
    let statement = |(document, span): &(RawDocumentBuf, Span)| {
        let update = doc! { "$set": { "processing.partition": partition(&span.target) } };
        let update = RawDocumentBuf::try_from(&update).ok()?;
        let condition = condition_of(document)?;
        Some(Statement {
            name: name_of(document),
            statement: rawdoc! { "q": condition, "u": update, "hint": "_id_" },
        })
    };
    let statements: Vec<Statement> = misplaced.iter().filter_map(statement).collect();
    if statements.is_empty() {
        return;
    }
    // What fails is found and tried again by the next search.
    let moved = change_each(link, &statements).await;
    let moved = moved.map_or(0, |written| written.modified);
    info!(
        spans = moved,
        "spans were put into the partitions of their targets"
    );
}

/// Opens a range; the server sends a page at a time.
async fn open(link: &Link, range: Range, page: usize) -> Result<Cursor<Document>, CallError> {
    let options = FindOptions::builder()
        .batch_size(u32::try_from(page).unwrap_or(u32::MAX))
        .sort(doc! { "processing.due_at": 1 })
        .hint(hint(range.index))
        .max_time(RANGE_TIME)
        .build();
    let spans = link.spans.clone();
    let find = async move { spans.find(range.filter).with_options(options).await };
    link.run(find).await
}

/// The ranges to scan one after the other, by urgency (see [`DueQuery::urgency`]); the
/// last class is two ranges.
fn ranges(query: &DueQuery) -> VecDeque<Range> {
    let number = |partition: &u32| Bson::Int64(i64::from(*partition));
    let partitions: Vec<Bson> = query.partitions.iter().map(number).collect();
    let due = |due_at| {
        doc! {
            "processing.complete": false,
            "processing.partition": { "$in": &partitions },
            "processing.due_at": due_at,
        }
    };
    let by_due_at = |filter| Range {
        filter,
        index: index::DUE,
    };
    let now = moment(query.now);
    let Some(closing) = query.closing else {
        return VecDeque::from([by_due_at(due(doc! { "$lte": now }))]);
    };
    let start = moment(closing.start);
    let in_time = doc! { "$gte": &start, "$lte": moment(closing.last_due_at().min(query.now)) };
    let after = doc! { "$gt": moment(closing.last_due_at()), "$lte": now };
    let put_off = doc! {
        "processing.attempts": { "$gt": 0 },
        "processing.last_interval.end": { "$gte": &start, "$lt": moment(closing.end) },
        "$expr": has_failed(),
    };
    let mut failed = due(after.clone());
    failed.extend(put_off.clone());
    let mut others = due(after);
    others.insert("$nor", [put_off]);
    VecDeque::from([
        by_due_at(due(in_time)),
        Range {
            filter: failed,
            index: index::FAILED,
        },
        by_due_at(due(doc! { "$lt": start })),
        by_due_at(others),
    ])
}

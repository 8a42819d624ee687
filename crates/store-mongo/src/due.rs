//! Looking for due spans (section 6.4 of the paper).
//!
//! What a worker has done leaves its place in the index, but the server keeps the place for minutes
//! after that, for readers of the past. Whoever began at the front each time would step over all of
//! them each time. So a search is one cursor, which goes on where it stopped.

use std::collections::VecDeque;
use std::time::Duration;

use bson::{Bson, Document, doc};
use futures_util::stream::{self, StreamExt};
use mongodb::Cursor;
use mongodb::error::Error;
use mongodb::options::FindOptions;
use sampler_domain::{Span, Timestamp};
use sampler_store::{DuePages, DueQuery, StoreError};
use tracing::error;

use crate::MongoStore;
use crate::call::{Fault, Link, hint};
use crate::document::{Unreadable, moment, read};

/// How long a document that cannot be read is left alone, ms.
const UNREADABLE_WAIT: i64 = 3_600_000;

/// What the server may spend on all pages of a range. We wait for none of them longer than for any
/// other operation.
const RANGE_TIME: Duration = Duration::from_mins(1);

/// A search that goes on.
struct Search {
    link: Link,
    now: Timestamp,
    page: usize,
    /// What is still to be looked through, the most urgent first.
    ranges: VecDeque<Range>,
    /// Where the search is in the range before those.
    cursor: Option<Cursor<Document>>,
}

/// One range of spans to look through, in the order of `due_at`.
struct Range {
    filter: Document,
    index: &'static str,
}

impl MongoStore {
    /// Looks for due spans, one class of urgency after the other; within each the index has them in
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
        let mut spans = Vec::with_capacity(documents.len());
        for document in documents {
            match read(&document) {
                Ok(span) => spans.push(span),
                Err(error) => set_aside(&self.link, &document, &error, self.now).await?,
            }
        }
        Ok(Some(spans))
    }

    /// The next documents, of the range that the search is in or of one behind it.
    async fn documents(&mut self) -> Result<Option<Vec<Document>>, Fault> {
        loop {
            let cursor = match self.cursor.take() {
                Some(cursor) => cursor,
                None => match self.ranges.pop_front() {
                    Some(range) => open(&self.link, range, self.page).await?,
                    None => return Ok(None),
                },
            };
            let (documents, cursor) = self.link.run(take(cursor, self.page)).await?;
            self.cursor = cursor;
            if !documents.is_empty() {
                return Ok(Some(documents));
            }
        }
    }
}

/// Opens a range; the server sends a page at a time.
async fn open(link: &Link, range: Range, page: usize) -> Result<Cursor<Document>, Fault> {
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

/// A document that nobody can read stays as it is, says why, and blocks nobody.
async fn set_aside(
    link: &Link,
    document: &Document,
    problem: &Unreadable,
    now: Timestamp,
) -> Result<(), Fault> {
    let id = document.get("_id").cloned().unwrap_or(Bson::Null);
    error!(span.id = %id, error = %problem, "a span cannot be read and is not sampled");
    let set = doc! {
        "processing.due_at": moment(now.plus(UNREADABLE_WAIT)),
        "processing.last_error": { "at": moment(now), "message": problem.to_string() },
    };
    let spans = link.spans.clone();
    let update = async move {
        spans
            .update_one(doc! { "_id": id }, doc! { "$set": set })
            .await
    };
    link.run(update).await.map(drop)
}

/// Takes so many documents off a cursor, and says where to go on, unless that is the end.
async fn take(
    mut cursor: Cursor<Document>,
    count: usize,
) -> Result<(Vec<Document>, Option<Cursor<Document>>), Error> {
    let mut documents = Vec::with_capacity(count);
    while documents.len() < count {
        if !cursor.advance().await? {
            return Ok((documents, None));
        }
        documents.push(cursor.deserialize_current()?);
    }
    Ok((documents, Some(cursor)))
}

/// The ranges to look through one after the other, by urgency (see [`DueQuery::urgency`]); the
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
        index: "search_due",
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
    };
    let mut failed = due(after.clone());
    failed.extend(put_off.clone());
    let mut others = due(after);
    others.insert("$nor", [put_off]);
    VecDeque::from([
        by_due_at(due(in_time)),
        Range {
            filter: failed,
            index: "search_failed",
        },
        by_due_at(due(doc! { "$lt": start })),
        by_due_at(others),
    ])
}

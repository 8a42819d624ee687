//! The backlog: spans that wait for the workers.

use std::time::Duration;

use bson::{Bson, Document, doc};
use futures_util::TryStreamExt;
use mongodb::Collection;
use mongodb::options::AggregateOptions;
use sampler_domain::partition::PARTITIONS;
use sampler_domain::{ClosingMonth, SUSPENDED_DUE_AT, Timestamp};
use sampler_store::{Backlog, BacklogQuery, ClosingBacklog, Published, StoreError};
use tracing::error;

use crate::call::{BY_ID, CallError, hint};
use crate::document::{has_failed, moment, read_integer, read_moment};
use crate::workers::is_alive;
use crate::{MongoStore, index};

/// How long the server counts at the most.
const COUNT_TIME: Duration = Duration::from_secs(2);

/// Spans that are counted where that does not suffice for all.
const COUNTED: u32 = 10_000;

/// Documents of spans that are read to see what is left of a month, and of spans that have failed.
const DOCUMENTS: u32 = 100_000;

/// The document with the last count.
const BACKLOG: &str = "backlog";

pub(crate) async fn count_backlog(
    store: &MongoStore,
    query: &BacklogQuery,
) -> Result<Backlog, StoreError> {
    let (due, at_least) = store.count_due(query).await?;
    let failed = store.count_failed(query).await?;
    let oldest = store.oldest_due(query).await?;
    let closing = match query.closing {
        Some(month) => Some(ClosingBacklog {
            start: month.start,
            end: month.end,
            spans: store.count_left(query, month).await? + failed.left,
        }),
        None => None,
    };
    Ok(Backlog {
        due: due + failed.spans,
        at_least,
        oldest: oldest.into_iter().chain(failed.oldest).min(),
        suspended: store.count_suspended().await?,
        rate: store.rate_of_all().await?,
        closing,
        cost: 0,
    })
}

pub(crate) async fn publish_backlog(
    store: &MongoStore,
    backlog: &Backlog,
) -> Result<(), StoreError> {
    let published = bson::serialize_to_document(backlog).map_err(StoreError::refused)?;
    let (filter, update) = (doc! { "_id": BACKLOG }, dated(BACKLOG, published));
    let update = store.link.update_one(&store.control, filter, update, true);
    update.await?;
    Ok(())
}

/// The update that replaces a document, and dates it by the clock of the server.
pub(crate) fn dated(id: &str, document: Document) -> Vec<Document> {
    vec![doc! { "$replaceWith": { "$mergeObjects": [
        { "$literal": document }, { "_id": id, "at": "$$NOW" },
    ] } }]
}

pub(crate) async fn published_backlog(
    store: &MongoStore,
) -> Result<Option<Published<Backlog>>, StoreError> {
    let Some((document, age)) = store.published_as(BACKLOG).await? else {
        return Ok(None);
    };
    match bson::deserialize_from_document(document) {
        Ok(value) => Ok(Some(Published { value, age })),
        Err(problem) => {
            // The next count replaces it.
            if store.link.logged.is_news("control", BACKLOG) {
                error!(code = "backlog.unreadable", error = %problem,
                    "what was counted of the backlog cannot be read");
            }
            Ok(None)
        }
    }
}

pub(crate) async fn report_rate(
    store: &MongoStore,
    worker: &str,
    rate: f64,
) -> Result<(), StoreError> {
    let (filter, update) = (doc! { "_id": worker }, doc! { "$set": { "rate": rate } });
    let update = store.link.update_one(&store.workers, filter, update, false);
    update.await?;
    Ok(())
}

/// The spans that wait after a failure.
#[derive(Default)]
struct Failed {
    spans: u64,
    left: u64,
    oldest: Option<Timestamp>,
}

impl MongoStore {
    /// How many spans are due, and whether there are more. The index alone is read.
    async fn count_due(&self, query: &BacklogQuery) -> Result<(u64, bool), CallError> {
        let all = [due_by(query.now), count()];
        match self.counted(all.to_vec(), index::DUE).await {
            Err(error) if error.is_beyond_limits() => {
                let some = vec![due_by(query.now), doc! { "$limit": COUNTED }, count()];
                Ok((self.counted(some, index::DUE).await?, true))
            }
            counted => Ok((counted?, false)),
        }
    }

    /// How many of the spans that are due have time of the closing month left. What is left says the
    /// document alone, so there is a limit.
    async fn count_left(
        &self,
        query: &BacklogQuery,
        month: ClosingMonth,
    ) -> Result<u64, CallError> {
        let of = |limit: u32| {
            vec![
                due_by(month.last_due_at.max(query.now)),
                doc! { "$limit": limit },
                doc! { "$match": { "$expr": is_left(query.now, month) } },
                count(),
            ]
        };
        match self.counted(of(DOCUMENTS), index::DUE).await {
            Err(error) if error.is_beyond_limits() => self.counted(of(COUNTED), index::DUE).await,
            counted => counted,
        }
    }

    /// When the span fell due that is first in the index.
    async fn oldest_due(&self, query: &BacklogQuery) -> Result<Option<Timestamp>, CallError> {
        let pipeline = vec![
            due_by(query.now),
            doc! { "$sort": { "processing.due_at": 1 } },
            doc! { "$limit": 1 },
            doc! { "$project": { "_id": 0, "due_at": "$processing.due_at" } },
        ];
        let found = self.aggregate_spans(pipeline, index::DUE).await?;
        Ok(found
            .first()
            .and_then(|found| read_moment(found, "due_at").ok()))
    }

    /// The spans that wait after a failure: as a rule, none. The oldest may be one that is due again.
    async fn count_failed(&self, query: &BacklogQuery) -> Result<Failed, CallError> {
        let failed = doc! { "$match": {
            "processing.complete": false,
            "processing.partition": { "$in": all_partitions() },
            "processing.attempts": { "$gt": 0 },
            "processing.due_at": { "$lt": moment(SUSPENDED_DUE_AT) },
            "$expr": has_failed(),
        } };
        let waits_at = |time| doc! { "$gt": ["$processing.due_at", moment(time)] };
        let mut group = doc! {
            "_id": Bson::Null,
            "spans": sum_if(waits_at(query.now)),
            "oldest": { "$min": fell_due() },
        };
        if let Some(month) = query.closing {
            // The others are counted with those that are due.
            let waits = waits_at(month.last_due_at.max(query.now));
            group.insert(
                "left",
                sum_if(doc! { "$and": [waits, is_left(query.now, month)] }),
            );
        }
        let pipeline = vec![
            failed,
            doc! { "$limit": DOCUMENTS },
            doc! { "$group": group },
        ];
        let found = self.aggregate_spans(pipeline, index::FAILED).await?;
        let read = |found: &Document| Failed {
            spans: whole(number(found, "spans")),
            left: whole(number(found, "left")),
            oldest: read_moment(found, "oldest").ok(),
        };
        Ok(found.first().map(read).unwrap_or_default())
    }

    /// The number that a pipeline ends with.
    async fn counted(&self, pipeline: Vec<Document>, index: &str) -> Result<u64, CallError> {
        let found = self.aggregate_spans(pipeline, index).await?;
        Ok(found
            .first()
            .map_or(0, |found| whole(number(found, "spans"))))
    }

    async fn count_suspended(&self) -> Result<u64, CallError> {
        let suspended = doc! { "$match": { "processing.suspended.cause": { "$gt": "" } } };
        self.counted(vec![suspended, count()], index::SUSPENDED)
            .await
    }

    /// Intervals that all workers that are alive do in a second.
    async fn rate_of_all(&self) -> Result<f64, CallError> {
        let pipeline = vec![
            doc! { "$match": is_alive() },
            doc! { "$group": { "_id": Bson::Null, "rate": { "$sum": "$rate" } } },
        ];
        let found = self
            .aggregate(self.workers.clone(), pipeline, BY_ID)
            .await?;
        let rate = found.first().map_or(0.0, |found| number(found, "rate"));
        Ok(if rate.is_finite() { rate.max(0.0) } else { 0.0 })
    }

    async fn aggregate_spans(
        &self,
        pipeline: Vec<Document>,
        index: &str,
    ) -> Result<Vec<Document>, CallError> {
        let spans = self.link.collection.clone();
        self.aggregate(spans, pipeline, index).await
    }

    /// The few documents that a pipeline gives.
    pub(crate) async fn aggregate(
        &self,
        of: Collection<Document>,
        pipeline: Vec<Document>,
        index: &str,
    ) -> Result<Vec<Document>, CallError> {
        let options = AggregateOptions::builder()
            .hint(hint(index))
            .max_time(self.link.time_limit.min(COUNT_TIME))
            .build();
        let call = async move {
            let found = of.aggregate(pipeline).with_options(options).await?;
            found.try_collect::<Vec<_>>().await
        };
        self.link.run(call).await
    }

    /// A document that was written for all instances, and how old it is, ms.
    pub(crate) async fn published_as(
        &self,
        id: &'static str,
    ) -> Result<Option<(Document, i64)>, CallError> {
        let age = doc! { "$subtract": ["$$NOW", "$at"] };
        let pipeline = vec![
            doc! { "$match": { "_id": id } },
            doc! { "$project": { "document": "$$ROOT", "age": age } },
        ];
        let mut found = self
            .aggregate(self.control.clone(), pipeline, BY_ID)
            .await?;
        let Some(mut found) = found.pop() else {
            return Ok(None);
        };
        let age = read_integer(&found, "age").unwrap_or(i64::MAX);
        Ok(match found.remove("document") {
            Some(Bson::Document(document)) => Some((document, age)),
            _ => None,
        })
    }
}

fn all_partitions() -> Vec<i64> {
    (0..i64::from(PARTITIONS)).collect()
}

/// The condition on spans that are due by a time.
fn due_by(time: Timestamp) -> Document {
    doc! { "$match": {
        "processing.complete": false,
        "processing.partition": { "$in": all_partitions() },
        "processing.due_at": { "$lte": moment(time) },
    } }
}

fn count() -> Document {
    doc! { "$count": "spans" }
}

/// Whether a span has time of the closing month left to sample, as an expression.
fn is_left(now: Timestamp, month: ClosingMonth) -> Document {
    let now = moment(now);
    let sampled_to = number_or("$processing.last_interval.end", &now);
    let reached = doc! { "$min": [number_or("$end", &now), &now] };
    let from = doc! { "$min": [&sampled_to, &reached] };
    doc! { "$and": [
        { "$ne": [sampled_to, reached] },
        { "$lt": [from, moment(month.end)] },
    ] }
}

fn number_or(field: &str, otherwise: &Bson) -> Document {
    doc! { "$cond": [{ "$isNumber": field }, field, otherwise] }
}

fn sum_if(condition: Document) -> Document {
    doc! { "$sum": { "$cond": [condition, 1, 0] } }
}

/// When a span fell due whose usage failed.
fn fell_due() -> Document {
    let end = "$processing.planned_interval.end";
    let is_forward = doc! { "$gt": [end, "$processing.planned_interval.start"] };
    doc! { "$cond": [is_forward, end, "$processing.planned_interval.planned_at"] }
}

/// A number of any type; 0 where there is none.
pub(crate) fn number(document: &Document, name: &str) -> f64 {
    match document.get(name) {
        Some(Bson::Int32(number)) => f64::from(*number),
        Some(Bson::Int64(number)) => *number as f64,
        Some(Bson::Double(number)) => *number,
        _ => 0.0,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "held at the limits of the type"
)]
fn whole(number: f64) -> u64 {
    number.round() as u64
}

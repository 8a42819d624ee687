//! The backlog: spans that wait for the workers.
//!
//! How many spans are due, and what they have to sample, is read from their documents: the server reads
//! these for the condition of a partial index, even where its keys say enough. Reading a million would
//! cost too much each time. So they are read of as many whole partitions as have few enough spans, and
//! where these are not all, the rest is estimated from them: spans are in partitions by a hash.

use bson::{Bson, Document, doc};
use futures_util::TryStreamExt;
use mongodb::Collection;
use mongodb::options::AggregateOptions;
use sampler_domain::partition::PARTITIONS;
use sampler_domain::{ClosingMonth, Granularities, SUSPENDED_DUE_AT, Timestamp};
use sampler_store::{Backlog, BacklogQuery, ClosingBacklog, Published, StoreError};
use tracing::error;

use crate::call::{CallError, hint};
use crate::document::{has_failed, moment, read_integer, read_moment};
use crate::workers::is_alive;
use crate::{MongoStore, index};

/// Documents that are read for one count, unless a single partition has more.
const DOCUMENTS: u32 = 20_000;

/// The document with the last count.
const BACKLOG: &str = "backlog";

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    /// Documents that were read.
    documents: f64,
    spans: f64,
    millis: f64,
    intervals: f64,
    left: f64,
    left_intervals: f64,
    oldest: Option<Timestamp>,
}

pub(crate) async fn count_backlog(
    store: &MongoStore,
    query: &BacklogQuery,
) -> Result<Backlog, StoreError> {
    let (of_due, read) = store.sum_some(query).await?;
    let failed = store.sum_failed(query).await?;
    let scale = f64::from(PARTITIONS) / f64::from(read);
    let oldest = store.oldest_due(query).await?;
    let closing = query.closing.map(|month| ClosingBacklog {
        start: month.start,
        end: month.end,
        spans: whole(of_due.left * scale + failed.left),
        intervals: whole(of_due.left_intervals * scale + failed.left_intervals),
    });
    let millis = whole(of_due.millis * scale + failed.millis);
    Ok(Backlog {
        due: whole(of_due.spans * scale + failed.spans),
        oldest: oldest.into_iter().chain(failed.oldest).min(),
        span_millis: i64::try_from(millis).unwrap_or(i64::MAX),
        intervals: whole(of_due.intervals * scale + failed.intervals),
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

impl MongoStore {
    /// The sums over as many partitions as have few enough spans, at least one, and the number of
    /// these partitions. It is estimated from the first one.
    async fn sum_some(&self, query: &BacklogQuery) -> Result<(Sums, u32), CallError> {
        let first = self.sum_due(query, &[0]).await?;
        let count = affordable(first.documents);
        if count == 1 {
            return Ok((first, 1));
        }
        let partitions: Vec<i64> = (0..i64::from(count)).collect();
        Ok((self.sum_due(query, &partitions).await?, count))
    }

    /// When the span fell due that is first in the index.
    async fn oldest_due(&self, query: &BacklogQuery) -> Result<Option<Timestamp>, CallError> {
        let pipeline = vec![
            due_by(query.now, &all_partitions()),
            doc! { "$sort": { "processing.due_at": 1 } },
            doc! { "$limit": 1 },
            doc! { "$project": { "_id": 0, "due_at": "$processing.due_at" } },
        ];
        let found = self.aggregate_spans(pipeline, index::DUE).await?;
        Ok(found
            .first()
            .and_then(|found| read_moment(found, "due_at").ok()))
    }

    /// Sums over the spans of these partitions.
    async fn sum_due(&self, query: &BacklogQuery, partitions: &[i64]) -> Result<Sums, CallError> {
        let is_due = doc! { "$lte": ["$processing.due_at", moment(query.now)] };
        let group = sums(query, &is_due.into(), &Bson::Boolean(true));
        let pipeline = vec![due_by(horizon(query), partitions), group];
        let found = self.aggregate_spans(pipeline, index::DUE).await?;
        Ok(found.first().map(read_sums).unwrap_or_default())
    }

    /// Sums over the spans that wait after a failure: as a rule, none. The oldest may be one that is
    /// due again.
    async fn sum_failed(&self, query: &BacklogQuery) -> Result<Sums, CallError> {
        let failed = doc! { "$match": {
            "processing.complete": false,
            "processing.partition": { "$in": all_partitions() },
            "processing.attempts": { "$gt": 0 },
            "processing.due_at": { "$lt": moment(SUSPENDED_DUE_AT) },
            "$expr": has_failed(),
        } };
        let limit = doc! { "$limit": DOCUMENTS };
        let waits = doc! { "$gt": ["$processing.due_at", moment(query.now)] };
        let is_behind = doc! { "$gt": ["$processing.due_at", moment(horizon(query))] };
        let group = sums(query, &waits.into(), &is_behind.into());
        let found = self.aggregate_spans(vec![failed, limit, group], index::FAILED);
        Ok(found.await?.first().map(read_sums).unwrap_or_default())
    }

    async fn count_suspended(&self) -> Result<u64, CallError> {
        let suspended = doc! { "$match": { "processing.suspended.cause": { "$gt": "" } } };
        let count = doc! { "$count": "spans" };
        let found = self.aggregate_spans(vec![suspended, count], index::SUSPENDED);
        let counted = found.await?.first().map(|found| number(found, "spans"));
        Ok(counted.map_or(0, whole))
    }

    /// Intervals that all workers that are alive do in a second.
    async fn rate_of_all(&self) -> Result<f64, CallError> {
        let pipeline = vec![
            doc! { "$match": is_alive() },
            doc! { "$group": { "_id": Bson::Null, "rate": { "$sum": "$rate" } } },
        ];
        let found = self.aggregate(self.workers.clone(), pipeline, None).await?;
        let rate = found.first().map_or(0.0, |found| number(found, "rate"));
        Ok(if rate.is_finite() { rate.max(0.0) } else { 0.0 })
    }

    async fn aggregate_spans(
        &self,
        pipeline: Vec<Document>,
        index: &str,
    ) -> Result<Vec<Document>, CallError> {
        let spans = self.link.collection.clone();
        self.aggregate(spans, pipeline, Some(index)).await
    }

    /// The few documents that a pipeline gives.
    pub(crate) async fn aggregate(
        &self,
        of: Collection<Document>,
        pipeline: Vec<Document>,
        index: Option<&str>,
    ) -> Result<Vec<Document>, CallError> {
        let options = AggregateOptions::builder()
            .hint(index.map(hint))
            .max_time(self.link.time_limit)
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
        let mut found = self.aggregate(self.control.clone(), pipeline, None).await?;
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

/// How many partitions may be read, given how many documents one of them has.
fn affordable(of_one: f64) -> u32 {
    let mut counts = (2..=PARTITIONS).rev();
    let affordable = counts.find(|count| f64::from(*count) * of_one <= f64::from(DOCUMENTS));
    affordable.unwrap_or(1)
}

/// The time up to which spans are read: now, or until the last ones fall due that belong to the
/// closing month.
fn horizon(query: &BacklogQuery) -> Timestamp {
    let last = query.closing.map(ClosingMonth::last_due_at);
    last.map_or(query.now, |last| last.max(query.now))
}

fn due_by(moment_of: Timestamp, partitions: &[i64]) -> Document {
    doc! { "$match": {
        "processing.complete": false,
        "processing.partition": { "$in": partitions },
        "processing.due_at": { "$lte": moment(moment_of) },
    } }
}

/// The sums over all documents: for documents that meet the first condition, how much is to be
/// sampled, and for documents that meet the second, what is left of the closing month.
fn sums(query: &BacklogQuery, is_counted: &Bson, may_be_left: &Bson) -> Document {
    let now = moment(query.now);
    let sampled_to = number_or("$processing.last_interval.end", &now);
    let reached = doc! { "$min": [number_or("$end", &now), &now] };
    let from = doc! { "$min": [&sampled_to, &reached] };
    let to = doc! { "$max": [&sampled_to, &reached] };
    let millis = doc! { "$subtract": [&to, &from] };
    let length = length(&query.granularities);
    let at_least_one = doc! { "$max": [1, intervals(&millis, &length)] };
    let mut group = doc! {
        "_id": Bson::Null,
        "documents": { "$sum": 1 },
        "spans": sum_if(is_counted, 1.into()),
        "millis": sum_if(is_counted, millis.into()),
        "intervals": sum_if(is_counted, at_least_one.into()),
        "oldest": { "$min": fell_due() },
    };
    if let Some(month) = query.closing {
        let end = doc! { "$max": [&from, { "$min": [&to, moment(month.end)] }] };
        let of_month = doc! { "$subtract": [end, &from] };
        let is_left = doc! { "$and": [may_be_left, { "$gt": [&of_month, 0] }] }.into();
        group.insert("left", sum_if(&is_left, 1.into()));
        let intervals = intervals(&of_month, &length);
        group.insert("left_intervals", sum_if(&is_left, intervals.into()));
    }
    doc! { "$group": group }
}

fn number_or(field: &str, otherwise: &Bson) -> Document {
    doc! { "$cond": [{ "$isNumber": field }, field, otherwise] }
}

fn intervals(millis: &Document, length: &Bson) -> Document {
    doc! { "$ceil": { "$divide": [millis, length] } }
}

fn sum_if(condition: &Bson, value: Bson) -> Document {
    doc! { "$sum": { "$cond": [condition, value, 0] } }
}

/// When a span fell due whose usage failed.
fn fell_due() -> Document {
    let end = "$processing.planned_interval.end";
    let is_forward = doc! { "$gt": [end, "$processing.planned_interval.start"] };
    doc! { "$cond": [is_forward, end, "$processing.planned_interval.planned_at"] }
}

/// How long an interval of a span is, ms.
fn length(granularities: &Granularities) -> Bson {
    let mut overrides: Vec<_> = granularities.overrides().collect();
    // The granularity of a plan comes before the granularity of its resource.
    overrides.sort_by_key(|(_, plan, _)| plan.is_none());
    let branches = overrides.into_iter().map(|(resource, plan, granularity)| {
        let mut conditions = vec![is("$target.resource_id", resource)];
        conditions.extend(plan.map(|plan| is("$target.plan_id", plan)));
        doc! { "case": { "$and": conditions }, "then": granularity.usual_length() }
    });
    let branches: Vec<Document> = branches.collect();
    let default = Bson::Int64(granularities.default_of_all().usual_length());
    if branches.is_empty() {
        return default;
    }
    doc! { "$switch": { "branches": branches, "default": default } }.into()
}

/// The condition that a field has this text.
fn is(field: &str, text: &str) -> Document {
    doc! { "$eq": [field, { "$literal": text }] }
}

fn read_sums(found: &Document) -> Sums {
    Sums {
        documents: number(found, "documents"),
        spans: number(found, "spans"),
        millis: number(found, "millis"),
        intervals: number(found, "intervals"),
        left: number(found, "left"),
        left_intervals: number(found, "left_intervals"),
        oldest: read_moment(found, "oldest").ok(),
    }
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

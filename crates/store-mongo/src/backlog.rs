//! The backlog: spans that wait for the workers.

use std::time::Duration;

use bson::raw::RawDocumentBuf;
use bson::{Bson, Document, doc};
use sampler_domain::partition::PARTITIONS;
use sampler_domain::{CauseId, ClosingMonth, SUSPENDED_DUE_AT, Timestamp};
use sampler_store::{Backlog, BacklogQuery, ClosingBacklog, StoreError};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::call::{BY_ID, CallError, Link};
use crate::document::{cause_to_bson, moment};
use crate::operating::is_alive;
use crate::{MongoStore, index, raw};

/// How long the server counts at the most.
const COUNT_TIME: Duration = Duration::from_secs(2);

/// Spans that are counted where that does not suffice for all.
const COUNTED: u32 = 10_000;

/// Documents of spans that are read to see what is left of a month, and of spans that have failed.
const DOCUMENTS: u32 = 100_000;

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
            spans: store.count_left(query, month).await? + failed.left.unsigned_abs(),
        }),
        None => None,
    };
    Ok(Backlog {
        due: due + failed.spans.unsigned_abs(),
        at_least,
        oldest: oldest.into_iter().chain(failed.oldest).min(),
        suspended: store.count_suspended().await?,
        rate: store.rate_of_all().await?,
        closing,
        cost: 0,
    })
}

/// The spans that wait after a failure.
#[derive(Default, Deserialize)]
struct Failed {
    spans: i64,
    #[serde(default)]
    left: i64,
    oldest: Option<Timestamp>,
}

#[derive(Deserialize)]
struct Count {
    spans: i64,
}

#[derive(Deserialize)]
struct Due {
    due_at: Timestamp,
}

#[derive(Deserialize)]
struct Rate {
    rate: f64,
}

impl MongoStore {
    /// How many spans are due, and whether there are more. The index alone is read.
    async fn count_due(&self, query: &BacklogQuery) -> Result<(u64, bool), CallError> {
        let all = [due_by(query.now), count()];
        match self.count_by(all.to_vec(), index::DUE).await {
            Err(error) if error.is_beyond_limits() => {
                let some = vec![due_by(query.now), doc! { "$limit": COUNTED }, count()];
                Ok((self.count_by(some, index::DUE).await?, true))
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
        match self.count_by(of(DOCUMENTS), index::DUE).await {
            Err(error) if error.is_beyond_limits() => self.count_by(of(COUNTED), index::DUE).await,
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
        let found = first::<Due>(&self.link, pipeline, index::DUE).await?;
        Ok(found.map(|found| found.due_at))
    }

    /// The spans that wait after a failure: as a rule, none. The oldest may be one that is due again.
    async fn count_failed(&self, query: &BacklogQuery) -> Result<Failed, CallError> {
        let failed = doc! { "$match": {
            "processing.failure.attempts": { "$gt": 0 },
            "processing.due_at": { "$lt": moment(SUSPENDED_DUE_AT) },
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
        let found = first(&self.link, pipeline, index::FAILED).await?;
        Ok(found.unwrap_or_default())
    }

    /// The number that a pipeline ends with.
    async fn count_by(&self, pipeline: Vec<Document>, index: &str) -> Result<u64, CallError> {
        let found = first::<Count>(&self.link, pipeline, index).await?;
        Ok(found.map_or(0, |found| found.spans.unsigned_abs()))
    }

    async fn count_suspended(&self) -> Result<u64, CallError> {
        let first = cause_to_bson(CauseId::from(Uuid::nil()));
        let suspended = doc! { "$match": { "processing.failure.cause": { "$gte": first } } };
        self.count_by(vec![suspended, count()], index::SUSPENDED)
            .await
    }

    /// Intervals that all workers that are alive do in a second.
    async fn rate_of_all(&self) -> Result<f64, CallError> {
        let pipeline = vec![
            doc! { "$match": is_alive() },
            doc! { "$group": { "_id": Bson::Null, "rate": { "$sum": "$rate" } } },
            doc! { "$project": { "rate": { "$toDouble": "$rate" } } },
        ];
        let found = first::<Rate>(&self.workers, pipeline, BY_ID).await?;
        let rate = found.map_or(0.0, |found| found.rate);
        Ok(if rate.is_finite() { rate.max(0.0) } else { 0.0 })
    }
}

/// The first document that a pipeline gives, if it can be read.
pub(crate) async fn first<T: DeserializeOwned>(
    link: &Link,
    pipeline: Vec<Document>,
    index: &str,
) -> Result<Option<T>, CallError> {
    let time_limit = link.time_limit.min(COUNT_TIME);
    let found = link.aggregate(pipeline, index, time_limit).await?;
    let first: Option<&RawDocumentBuf> = found.first();
    Ok(first.and_then(|raw| raw::read(raw).ok()))
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
    doc! { "$group": { "_id": Bson::Null, "spans": { "$sum": 1_i64 } } }
}

/// Whether a span has time of the closing month left to sample, as an expression.
fn is_left(now: Timestamp, month: ClosingMonth) -> Document {
    let now = moment(now);
    let sampled_to = "$processing.last_interval.end";
    let reached = doc! { "$min": ["$end", &now] };
    let from = doc! { "$min": [sampled_to, &reached] };
    doc! { "$and": [
        { "$ne": [sampled_to, reached] },
        { "$lt": [from, moment(month.end)] },
    ] }
}

fn sum_if(condition: Document) -> Document {
    doc! { "$sum": { "$cond": [condition, 1_i64, 0_i64] } }
}

/// When a span fell due whose usage failed.
fn fell_due() -> Document {
    let end = "$processing.planned_interval.end";
    let is_forward = doc! { "$gt": [end, "$processing.planned_interval.start"] };
    doc! { "$cond": [is_forward, end, "$processing.planned_interval.planned_at"] }
}

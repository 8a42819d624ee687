//! The worker's interface.

use std::sync::Arc;

use async_trait::async_trait;
use bson::raw::RawDocumentBuf;
use bson::{Bson, DateTime, Document, doc};
use mongodb::options::ReturnDocument;
use sampler_domain::partition::PARTITIONS;
use sampler_domain::{CauseId, Change, Changed, Span, SpanId, Target, Timestamp};
use sampler_store::{Alive, DuePages, DueQuery, Finished, Resumption, StoreError, Work};
use serde::Deserialize;
use tokio::time::Instant;

use crate::call::BY_ID;
use crate::document::{id_to_bson, key_to_bson, moment};
use crate::operating::{EVENTS, date_in, is_alive, time_of};
use crate::raw::{self, key_of, span_id, span_in, written};
use crate::resolve::of_target;
use crate::{MongoStore, causes, changes, due, index};

/// More than there will ever be.
const WORKERS_MAX: usize = 1_000;

#[derive(Deserialize)]
struct AliveDocument {
    #[serde(rename = "_id")]
    id: String,
    now: DateTime,
}

#[async_trait]
impl Work for MongoStore {
    fn due(&self, query: DueQuery) -> DuePages {
        due::due(self, &query)
    }

    async fn read(&self, id: &SpanId, target: &Target) -> Result<Option<Span>, StoreError> {
        let mut filter = of_target(target);
        filter.insert("_id", id_to_bson(id));
        let options = self.link.find_options(1, doc! {}, BY_ID);
        let found = self.link.fetch(filter, options).await?;
        let span = found.first().map(|raw| span_in(raw));
        span.transpose().map_err(StoreError::refused)
    }

    async fn change(
        &self,
        read: &Span,
        change: &Change,
        now: Timestamp,
    ) -> Result<Changed, StoreError> {
        let statement = changes::statement(read, change, now);
        self.changes.submit(Arc::new(statement)).await
    }

    async fn suspended_causes(&self, limit: usize) -> Result<Vec<CauseId>, StoreError> {
        let causes = self.first_spans(limit, None).await?;
        Ok(causes.into_iter().map(|cause| cause.id).collect())
    }

    async fn probe(&self, cause: CauseId, resumption: Resumption) -> Result<bool, StoreError> {
        causes::probe(self, cause, resumption).await
    }

    async fn completed_before(
        &self,
        cutoff: Timestamp,
        limit: usize,
    ) -> Result<Vec<Finished>, StoreError> {
        let partitions: Vec<i64> = (0..PARTITIONS).map(i64::from).collect();
        let filter = doc! {
            "processing.complete": true,
            "processing.partition": { "$in": partitions },
            "processing.last_interval.end": { "$lt": moment(cutoff) },
        };
        let mut options = self.link.find_options(limit, doc! {}, index::COMPLETE);
        options.projection = Some(doc! { "_id": 1, "processing.key": 1 });
        let found = self.link.fetch(filter, options).await?;
        let finished = found.iter().filter_map(|raw| {
            let id = span_id(raw);
            if let Err(problem) = &id {
                self.link.logged.tell("cleanup.not_removed", raw, problem);
            }
            Some(Finished {
                id: id.ok()?,
                key: key_of(raw)?,
            })
        });
        Ok(finished.collect())
    }

    async fn remove(&self, finished: &[Finished]) -> Result<u64, StoreError> {
        if finished.is_empty() {
            return Ok(0);
        }
        let statements: Vec<RawDocumentBuf> = finished.iter().map(removal).collect();
        let (link, send_by) = (self.link.clone(), Instant::now() + self.link.call_limit());
        let removal = async move { link.delete(&statements, send_by).await };
        let removed = self.link.run(removal).await?;
        match removed.failed.into_iter().next() {
            Some((_, error)) => Err(error.into()),
            None => Ok(removed.matched as u64),
        }
    }

    async fn limit_event_age(&self, age: i64) -> Result<Timestamp, StoreError> {
        let since = doc! { "$subtract": ["$$NOW", Bson::Int64(age)] };
        let update = vec![doc! { "$set": {
            "taken_since": { "$max": ["$taken_since", since] },
            "at": "$$NOW",
        } }];
        let control = self.control.collection.clone();
        let call = async move {
            let written = control.find_one_and_update(doc! { "_id": EVENTS }, update);
            let written = written.upsert(true);
            written.return_document(ReturnDocument::After).await
        };
        let written: Option<Document> = self.link.run(call).await?;
        date_in(&written.unwrap_or_default(), "at")
    }

    async fn heartbeat(&self, worker: &str) -> Result<Alive, StoreError> {
        let seen = vec![doc! { "$set": { "seen_at": "$$NOW" } }];
        let by_name = doc! { "_id": worker };
        self.workers.update_one(by_name, seen, true).await?;
        let mut options = self.workers.find_options(WORKERS_MAX, doc! {}, BY_ID);
        options.projection = Some(doc! { "now": "$$NOW" });
        let found = self.workers.fetch(is_alive(), options).await?;
        let alive = found.iter().map(|raw| raw::read(raw));
        let alive: Vec<AliveDocument> = alive
            .collect::<Result<_, _>>()
            .map_err(StoreError::refused)?;
        let now = alive.first().map(|found| time_of(found.now));
        Ok(Alive {
            now: now.ok_or_else(|| StoreError::refused("the server has forgotten the worker"))?,
            workers: alive.into_iter().map(|found| found.id).collect(),
        })
    }

    async fn leave(&self, worker: &str) -> Result<(), StoreError> {
        let (workers, by_name) = (self.workers.collection.clone(), doc! { "_id": worker });
        let removal = async move { workers.delete_one(by_name).await };
        self.link.run(removal).await?;
        Ok(())
    }
}

/// The statement that removes a span if it is complete.
fn removal(finished: &Finished) -> RawDocumentBuf {
    let condition = doc! {
        "_id": id_to_bson(&finished.id),
        "processing.key": key_to_bson(finished.key),
        "processing.complete": true,
    };
    written(&doc! { "q": condition, "limit": 1, "hint": BY_ID })
}

//! Workers that are alive, and other times by the clock of the server.

use std::time::Duration;

use bson::{Bson, DateTime, Document, doc};
use mongodb::options::ReturnDocument;
use sampler_domain::Timestamp;
use sampler_store::{Alive, StoreError};
use serde::Deserialize;

use crate::MongoStore;
use crate::call::BY_ID;
use crate::raw::{self, unreadable};

/// How long a worker counts as alive after a heartbeat.
const LIFETIME: Duration = Duration::from_secs(20);

/// More than there will ever be.
const WORKERS_MAX: usize = 1_000;

/// The document that says since when receivers take events.
const EVENTS: &str = "events";

pub(crate) fn is_alive() -> Document {
    let millis = i64::try_from(LIFETIME.as_millis()).expect("20 s fit");
    let since = doc! { "$subtract": ["$$NOW", Bson::Int64(millis)] };
    doc! { "$expr": { "$gt": ["$seen_at", since] } }
}

#[derive(Deserialize)]
struct AliveDocument {
    #[serde(rename = "_id")]
    id: String,
    now: DateTime,
}

pub(crate) async fn heartbeat(store: &MongoStore, worker: &str) -> Result<Alive, StoreError> {
    let seen = vec![doc! { "$set": { "seen_at": "$$NOW" } }];
    let workers = &store.workers;
    workers
        .update_one(doc! { "_id": worker }, seen, true)
        .await?;
    let mut options = workers.find_options(WORKERS_MAX, doc! {}, BY_ID);
    options.projection = Some(doc! { "now": "$$NOW" });
    let found = workers.fetch(is_alive(), options).await?;
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

pub(crate) async fn leave(store: &MongoStore, worker: &str) -> Result<(), StoreError> {
    let (workers, worker) = (store.workers.collection.clone(), worker.to_owned());
    let removal = async move { workers.delete_one(doc! { "_id": worker }).await };
    store.link.run(removal).await?;
    Ok(())
}

/// The clock of the server.
pub(crate) async fn time(store: &MongoStore) -> Result<Timestamp, StoreError> {
    let database = store.link.database.clone();
    let hello = async move { database.run_command(doc! { "hello": 1 }).await };
    let hello = store.link.run(hello).await?;
    date_in(&hello, "localTime")
}

pub(crate) async fn limit_event_age(store: &MongoStore, age: i64) -> Result<Timestamp, StoreError> {
    let since = doc! { "$subtract": ["$$NOW", Bson::Int64(age)] };
    let update = vec![doc! { "$set": {
        "taken_since": { "$max": ["$taken_since", since] },
        "at": "$$NOW",
    } }];
    let control = store.control.collection.clone();
    let call = async move {
        let written = control.find_one_and_update(doc! { "_id": EVENTS }, update);
        let written = written.upsert(true);
        written.return_document(ReturnDocument::After).await
    };
    let written = store.link.run(call).await?.unwrap_or_default();
    date_in(&written, "at")
}

pub(crate) async fn events_taken_since(store: &MongoStore) -> Result<Timestamp, StoreError> {
    match store.control.find_by_id(EVENTS).await? {
        Some(found) => date_in(&found, "taken_since"),
        None => Ok(Timestamp::MIN),
    }
}

fn date_in(document: &Document, name: &str) -> Result<Timestamp, StoreError> {
    let date = document.get_datetime(name).map(|date| time_of(*date));
    date.map_err(|problem| StoreError::refused(unreadable(format!("{name}: {problem}"))))
}

fn time_of(date: DateTime) -> Timestamp {
    Timestamp::clamped(date.timestamp_millis())
}

//! How old events may be, by the clock of the server.

use bson::{Bson, Document, doc};
use mongodb::options::{FindOneOptions, ReturnDocument};
use sampler_domain::Timestamp;
use sampler_store::StoreError;

use crate::MongoStore;
use crate::document::{Unreadable, unreadable};

/// The document that says since when receivers take events.
const EVENTS: &str = "events";

pub(crate) async fn limit_event_age(store: &MongoStore, age: i64) -> Result<Timestamp, StoreError> {
    let since = doc! { "$subtract": ["$$NOW", Bson::Int64(age)] };
    let update = vec![doc! { "$set": {
        "taken_since": { "$max": ["$taken_since", since] },
        "at": "$$NOW",
    } }];
    let control = store.control.clone();
    let call = async move {
        let filter = doc! { "_id": EVENTS };
        let written = control.find_one_and_update(filter, update).upsert(true);
        written.return_document(ReturnDocument::After).await
    };
    let written = store.link.run(call).await?.unwrap_or_default();
    read_date(&written, "at").map_err(StoreError::refused)
}

pub(crate) async fn events_taken_since(store: &MongoStore) -> Result<Timestamp, StoreError> {
    let (control, time_limit) = (store.control.clone(), store.link.time_limit);
    let call = async move {
        let options = FindOneOptions::builder().max_time(time_limit).build();
        let found = control.find_one(doc! { "_id": EVENTS });
        found.with_options(options).await
    };
    let Some(found) = store.link.run(call).await? else {
        return Ok(Timestamp::MIN);
    };
    read_date(&found, "taken_since").map_err(StoreError::refused)
}

fn read_date(document: &Document, name: &str) -> Result<Timestamp, Unreadable> {
    let Ok(date) = document.get_datetime(name) else {
        return Err(unreadable(name, "is not a date"));
    };
    Ok(Timestamp::clamped(date.timestamp_millis()))
}

//! How far into the past receivers take events, by the clock of the server.
//!
//! An announcement is as durable as the spans: a worker that did not see it would forget events
//! that a receiver still takes.

use bson::{Bson, doc};
use mongodb::options::FindOneOptions;
use sampler_store::{SLACK_LIFETIME, StoreError};

use crate::MongoStore;
use crate::document::read_integer;

/// There is one document for each slack that was announced, however many receivers have it, and
/// however often they are started.
pub(crate) async fn announce_slack(store: &MongoStore, past: i64) -> Result<(), StoreError> {
    let slack = doc! { "_id": Bson::Int64(past) };
    let seen = vec![doc! { "$set": { "seen_at": "$$NOW" } }];
    let announced = store.link.update_one(&store.receivers, slack, seen, true);
    announced.await?;
    Ok(())
}

/// Removes announcements that are too old, and reads the others.
pub(crate) async fn largest_slack(store: &MongoStore) -> Result<Option<i64>, StoreError> {
    let (receivers, time_limit) = (store.receivers.clone(), store.link.time_limit);
    let call = async move {
        let millis = i64::try_from(SLACK_LIFETIME.as_millis()).unwrap_or(i64::MAX);
        let since = doc! { "$subtract": ["$$NOW", Bson::Int64(millis)] };
        let is_old = doc! { "$expr": { "$lt": ["$seen_at", since] } };
        receivers.delete_many(is_old).await?;
        let options = FindOneOptions::builder()
            .sort(doc! { "_id": -1 })
            .projection(doc! { "_id": 1 })
            .max_time(time_limit)
            .build();
        let numbers = doc! { "_id": { "$type": "number" } };
        receivers.find_one(numbers).with_options(options).await
    };
    let found = store.link.run(call).await?;
    let largest = found.map(|found| read_integer(&found, "_id"));
    largest.transpose().map_err(StoreError::refused)
}

//! Workers that are alive, by the clock of the server.

use std::time::Duration;

use bson::{Bson, Document, doc};
use futures_util::TryStreamExt;
use sampler_store::StoreError;

use crate::MongoStore;
use crate::call::{BY_ID, hint};

/// How long a worker counts as alive after a heartbeat.
const LIFETIME: Duration = Duration::from_secs(20);

pub(crate) fn is_alive() -> Document {
    let millis = i64::try_from(LIFETIME.as_millis()).expect("20 s fit");
    let since = doc! { "$subtract": ["$$NOW", Bson::Int64(millis)] };
    doc! { "$expr": { "$gt": ["$seen_at", since] } }
}

pub(crate) async fn heartbeat(store: &MongoStore, worker: &str) -> Result<Vec<String>, StoreError> {
    let (workers, id) = (store.workers.clone(), worker.to_owned());
    let seen = vec![doc! { "$set": { "seen_at": "$$NOW" } }];
    let call = async move {
        workers
            .update_one(doc! { "_id": id }, seen)
            .upsert(true)
            .await?;
        workers
            .find(is_alive())
            .hint(hint(BY_ID))
            .await?
            .try_collect::<Vec<Document>>()
            .await
    };
    let alive = store.link.run(call).await?;
    Ok(alive
        .iter()
        .filter_map(|found| found.get_str("_id").ok().map(str::to_owned))
        .collect())
}

pub(crate) async fn leave(store: &MongoStore, worker: &str) -> Result<(), StoreError> {
    let filter = doc! { "_id": worker };
    store.link.delete_one(&store.workers, filter).await?;
    Ok(())
}

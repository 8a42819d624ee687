//! Which instances of both programs run, as they report it, by the clock of the server.

use std::error::Error;

use bson::{Bson, Document, doc};
use mongodb::Collection;
use sampler_domain::Timestamp;
use sampler_store::{
    INSTANCE_SHOWN, INSTANCES_MAX, Instance, InstanceProgram, SeenInstance, StoreError,
    sort_instances,
};
use tracing::warn;

use crate::MongoStore;
use crate::call::BY_ID;
use crate::document::{Unreadable, member, read_integer, read_text, unreadable};
use crate::workers::is_alive;

/// The condition that an instance is shown, or with `$lte` that it is no longer shown.
fn seen(comparison: &str) -> Document {
    let millis = i64::try_from(INSTANCE_SHOWN.as_millis()).expect("an hour fits");
    let since = doc! { "$subtract": ["$$NOW", Bson::Int64(millis)] };
    doc! { "$expr": { comparison: ["$seen_at", since] } }
}

pub(crate) async fn report_instance(
    store: &MongoStore,
    instance: &Instance,
) -> Result<(), StoreError> {
    let (instances, name) = (store.instances.clone(), instance.name.clone());
    let reported = bson::serialize_to_document(instance).map_err(StoreError::refused)?;
    let report = vec![doc! { "$replaceWith": { "$mergeObjects": [
        { "$literal": reported }, { "seen_at": "$$NOW" },
    ] } }];
    let call = async move {
        let update = instances.update_one(doc! { "_id": name }, report);
        let is_first = update.upsert(true).await?.upserted_id.is_some();
        if is_first {
            // Programs that were killed leave their reports behind, and each is followed by
            // one that begins.
            instances.delete_many(seen("$lte")).await?;
        }
        Ok::<(), mongodb::error::Error>(())
    };
    Ok(store.link.run(call).await?)
}

pub(crate) async fn withdraw_instance(store: &MongoStore, name: &str) -> Result<(), StoreError> {
    let filter = doc! { "_id": name };
    store.link.delete_one(&store.instances, filter).await?;
    Ok(())
}

pub(crate) async fn instances(store: &MongoStore) -> Result<Vec<SeenInstance>, StoreError> {
    let reported = store.with_ages(&store.instances, seen("$gt")).await?;
    let mut all: Vec<_> = reported
        .iter()
        .filter_map(|found| match read_instance(found) {
            Ok(instance) => Some(instance),
            Err(problem) => {
                store.warn_of_unreadable(found, &*problem);
                None
            }
        })
        .collect();
    // A worker of a release that reports nothing else is known by its heartbeats.
    for found in store.with_ages(&store.workers, is_alive()).await? {
        if let Ok(worker) = read_worker(&found)
            && !all
                .iter()
                .any(|it| it.instance.name == worker.instance.name)
        {
            all.push(worker);
        }
    }
    sort_instances(&mut all);
    Ok(all)
}

impl MongoStore {
    /// The documents that match, each with how long ago it was written.
    async fn with_ages(
        &self,
        of: &Collection<Document>,
        filter: Document,
    ) -> Result<Vec<Document>, StoreError> {
        let most = i64::try_from(INSTANCES_MAX).unwrap_or(i64::MAX);
        let age = doc! { "$subtract": ["$$NOW", "$seen_at"] };
        let pipeline = vec![
            doc! { "$match": filter },
            doc! { "$sort": { "seen_at": -1 } },
            doc! { "$limit": most },
            doc! { "$project": { "document": "$$ROOT", "age": age } },
        ];
        Ok(self.aggregate(of.clone(), pipeline, BY_ID).await?)
    }

    fn warn_of_unreadable(&self, found: &Document, problem: &dyn Error) {
        let name = found.get("_id").map(Bson::to_string).unwrap_or_default();
        if self.link.logged.is_news("instances", &name) {
            warn!(code = "instance.unreadable", instance = name, error = %problem,
                "what an instance reported of itself cannot be read; it is not shown");
        }
    }
}

/// A document with its age, as [`MongoStore::with_ages`] finds it.
fn read_instance(found: &Document) -> Result<SeenInstance, Box<dyn Error>> {
    let instance = bson::deserialize_from_document(member(found, "document")?.clone())?;
    Ok(dated(found, instance)?)
}

fn read_worker(found: &Document) -> Result<SeenInstance, Unreadable> {
    let name = read_text(member(found, "document")?, "_id")?;
    dated(
        found,
        Instance::new(name.to_owned(), InstanceProgram::Worker),
    )
}

fn dated(found: &Document, instance: Instance) -> Result<SeenInstance, Unreadable> {
    let Ok(seen_at) = member(found, "document")?.get_datetime("seen_at") else {
        return Err(unreadable("seen_at", "is not a date"));
    };
    Ok(SeenInstance {
        instance,
        seen_at: Timestamp::clamped(seen_at.timestamp_millis()),
        age: read_integer(found, "age")?,
    })
}

//! A store in a database of its own.

use std::time::Duration;

use bson::Document;
use mongodb::Collection;
use sampler_store_mongo::{MongoOptions, MongoStore};
use sampler_testkit::TestDatabase;

pub(crate) fn options(database: &TestDatabase) -> MongoOptions {
    MongoOptions {
        uri: database.uri().to_owned(),
        database: database.name().to_owned(),
        collection: "spans".to_owned(),
        pool_size: 64,
        server_selection_timeout: Duration::from_secs(10),
        operation_timeout: Duration::from_secs(20),
        app_name: "sampler-test".to_owned(),
    }
}

/// A store with its indexes, and the collection behind it.
pub(crate) async fn store_and_spans(label: &str) -> (MongoStore, Collection<Document>) {
    let database = TestDatabase::new(label).await;
    let store = MongoStore::connect(options(&database)).await.unwrap();
    store.migrate().await.unwrap();
    let spans = database.database().await.collection("spans");
    // It goes with its value, and the test goes on; the server of the tests goes after them all.
    std::mem::forget(database);
    (store, spans)
}

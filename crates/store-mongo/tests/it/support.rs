//! A store in a database of its own.

use std::collections::BTreeSet;
use std::time::Duration;

use bson::spec::BinarySubtype;
use bson::{Binary, Document, doc};
use mongodb::{Collection, Database};
use sampler_domain::{Key, Target};
use sampler_store_mongo::{MongoOptions, MongoStore};
use sampler_testkit::TestDatabase;

pub(crate) fn options(database: &TestDatabase) -> MongoOptions {
    options_of(database.uri(), database.name())
}

/// How a database of this name is reached on a server.
pub(crate) fn options_of(uri: impl Into<String>, database: &str) -> MongoOptions {
    MongoOptions {
        uri: uri.into(),
        database: database.to_owned(),
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
    // It goes with its value, and the test continues; the server of the tests goes after them all.
    std::mem::forget(database);
    (store, spans)
}

/// The same, where the original has made its indexes before us, and nothing is taken over yet.
pub(crate) async fn beside_original(label: &str) -> (MongoStore, Collection<Document>) {
    let database = TestDatabase::new(label).await;
    make_original_indexes(&database.database().await).await;
    let store = MongoStore::connect(options(&database)).await.unwrap();
    store.migrate().await.unwrap();
    let spans = database.database().await.collection("spans");
    std::mem::forget(database);
    (store, spans)
}

/// The database that a collection is in.
pub(crate) fn database_of(collection: &Collection<Document>) -> Database {
    collection.client().database(&collection.namespace().db)
}

/// The ledger beside the spans.
pub(crate) fn usages_beside(spans: &Collection<Document>) -> Collection<Document> {
    database_of(spans).collection("spans_usages")
}

/// Another program on the collection of a store.
pub(crate) async fn beside(spans: &Collection<Document>) -> MongoStore {
    let server = TestDatabase::new("beside").await;
    let options = MongoOptions {
        database: spans.namespace().db,
        ..options(&server)
    };
    let store = MongoStore::connect(options).await.unwrap();
    store.migrate().await.unwrap();
    store
}

/// Makes the indexes as the original makes them, its `background` included.
pub(crate) async fn make_original_indexes(database: &Database) {
    let unique_sparse = doc! { "unique": true, "sparse": true, "background": true };
    let index = |name: &str, keys: Document, options: &Document| {
        let mut index = doc! { "name": name, "key": keys };
        index.extend(options.clone());
        index
    };
    let command = doc! { "createIndexes": "spans", "indexes": [
        index("unique_target", doc! {
            "target.organization_id": 1, "target.space_id": 1, "target.consumer_id": 1,
            "target.resource_id": 1, "target.plan_id": 1, "target.resource_instance_id": 1,
            "target.correlation_id": 1,
        }, &doc! { "unique": true, "background": true }),
        index("unique_start_dedup_id", doc! { "start_dedup_id": 1 }, &unique_sparse),
        index("unique_end_dedup_id", doc! { "end_dedup_id": 1 }, &unique_sparse),
        index("search_processing", doc! {
            "processing.complete": 1, "processing.last_interval.end": 1,
        }, &doc! { "background": true }),
        index("search_end_is_set", doc! { "processing.complete": 1 },
            &doc! { "partialFilterExpression": { "end_is_set": true } }),
    ] };
    database.run_command(command).await.unwrap();
}

/// The members of `processing` that follow from the target.
pub(crate) fn placement(target: &Target) -> Document {
    let key = Key::of(target);
    let bytes = Binary {
        subtype: BinarySubtype::Generic,
        bytes: key.bytes().to_vec(),
    };
    doc! { "partition": key.partition(), "key": bytes }
}

/// The names of the indexes that there are.
pub(crate) async fn index_names(spans: &Collection<Document>) -> BTreeSet<String> {
    let names = spans.list_index_names().await.unwrap();
    names.into_iter().collect()
}

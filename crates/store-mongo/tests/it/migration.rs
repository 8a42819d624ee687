//! The indexes: there after any number of migrations, and never silently others than asked for.

use std::collections::BTreeSet;

use bson::{Document, doc};
use mongodb::IndexModel;
use mongodb::options::IndexOptions;
use sampler_store_mongo::{MigrationError, MongoStore};
use sampler_testkit::TestDatabase;
use sampler_testkit::mongod::ReplicaSet;

use crate::support::options;

const NAMES: [&str; 9] = [
    "_id_",
    "previous_end",
    "search_due",
    "search_end_is_set",
    "search_failed",
    "search_processing",
    "unique_end_dedup_id",
    "unique_start_dedup_id",
    "unique_target",
];

async fn names(database: &TestDatabase) -> BTreeSet<String> {
    let spans = database.database().await.collection::<Document>("spans");
    spans
        .list_index_names()
        .await
        .unwrap()
        .into_iter()
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_that_start_at_once_do_not_trip_over_each_other() {
    let database = TestDatabase::new("migrate").await;
    let mut programs = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let options = options(&database);
        programs.spawn(async move {
            let store = MongoStore::connect(options).await.unwrap();
            store.migrate().await.unwrap();
            store.migrate().await.unwrap();
        });
    }
    programs.join_all().await;
    assert_eq!(names(&database).await, NAMES.map(str::to_owned).into());
}

/// The indexes as the original makes them, its `background` included.
#[tokio::test(flavor = "multi_thread")]
async fn the_indexes_of_an_original_are_taken_as_they_are() {
    let database = TestDatabase::new("original_indexes").await;
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
    database
        .database()
        .await
        .run_command(command)
        .await
        .unwrap();
    let store = MongoStore::connect(options(&database)).await.unwrap();
    store.migrate().await.unwrap();
    assert_eq!(names(&database).await, NAMES.map(str::to_owned).into());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_with_other_options_is_an_error_that_says_what_to_do() {
    let database = TestDatabase::new("conflict").await;
    let spans = database.database().await.collection::<Document>("spans");
    let other = IndexOptions::builder()
        .name("unique_start_dedup_id".to_owned())
        .build();
    let model = IndexModel::builder()
        .keys(doc! { "start_dedup_id": 1 })
        .options(other)
        .build();
    spans.create_index(model).await.unwrap();
    let store = MongoStore::connect(options(&database)).await.unwrap();
    let error = store.migrate().await.unwrap_err();
    assert!(matches!(
        error,
        MigrationError::Conflict {
            index: "unique_start_dedup_id",
            ..
        }
    ));
    let text = error.to_string();
    assert!(
        text.contains(r#"db.spans.dropIndex("unique_start_dedup_id")"#),
        "{text}"
    );
    spans.drop_index("unique_start_dedup_id").await.unwrap();
    store.migrate().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_that_do_not_fit_a_unique_index_are_an_error_of_their_own() {
    let database = TestDatabase::new("duplicates").await;
    let spans = database.database().await.collection::<Document>("spans");
    spans
        .insert_many([
            doc! { "start_dedup_id": "a" },
            doc! { "start_dedup_id": "a" },
        ])
        .await
        .unwrap();
    let store = MongoStore::connect(options(&database)).await.unwrap();
    let error = store.migrate().await.unwrap_err();
    assert!(
        matches!(error, MigrationError::Duplicates { .. }),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_alone_is_refused_with_what_to_do() {
    let alone = ReplicaSet::standalone().await.unwrap();
    let database = TestDatabase::new("unused").await;
    let mut options = options(&database);
    options.uri = alone.uri_of("alone");
    let store = MongoStore::connect(options).await.unwrap();
    // At once: time does not mend it.
    let refused = store.migrate_when_possible(std::future::pending()).await;
    let error = refused.unwrap_err();
    assert!(matches!(error, MigrationError::Standalone), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("rs.initiate()") && text.contains("--replSet"),
        "{text}"
    );
}

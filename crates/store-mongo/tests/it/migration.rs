//! The indexes: there after any number of migrations, and never silently others than asked for. What is removed by
//! them, and otherwise.

use std::collections::BTreeSet;
use std::time::Duration;

use bson::{Bson, DateTime, Document, doc};
use mongodb::IndexModel;
use mongodb::options::IndexOptions;
use sampler_store::{Ledger, Work};
use sampler_store_mongo::{MigrationError, MongoStore};
use sampler_store_testing::support::{at, completed, entry, finished, started};
use sampler_testkit::TestDatabase;
use sampler_testkit::mongod::ReplicaSet;

use crate::support::{index_names, options, store_and_spans, usages_beside};

pub(crate) const NAMES: [&str; 13] = [
    "_id_",
    "list_excluded",
    "list_instance",
    "list_organization",
    "list_resource",
    "list_suspended",
    "search_complete",
    "search_due",
    "search_failed",
    "search_suspended",
    "unique_span",
    "unique_start",
    "unique_stop",
];

async fn names(database: &TestDatabase) -> BTreeSet<String> {
    index_names(&database.database().await.collection("spans")).await
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

#[tokio::test(flavor = "multi_thread")]
async fn an_index_with_other_options_is_an_error_that_says_what_to_do() {
    let database = TestDatabase::new("conflict").await;
    let spans = database.database().await.collection::<Document>("spans");
    let other = IndexOptions::builder()
        .name("unique_start".to_owned())
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
            index: "unique_start",
            ..
        }
    ));
    let text = error.to_string();
    assert!(
        text.contains(r#"db.spans.dropIndex("unique_start")"#),
        "{text}"
    );
    spans.drop_index("unique_start").await.unwrap();
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

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_set_that_was_not_initiated_is_waited_for_and_says_what_to_do() {
    let set = ReplicaSet::uninitiated().await.unwrap();
    let database = TestDatabase::new("unused").await;
    let mut options = options(&database);
    options.server_selection_timeout = Duration::from_millis(500);
    let direct = set.uri_of("sampler");
    // The driver looks at the set as a whole, and finds no primary.
    let (server, _) = direct.split_once('?').unwrap();
    for uri in [format!("{server}?replicaSet=rs0"), direct.clone()] {
        options.uri = uri;
        let store = MongoStore::connect(options.clone()).await.unwrap();
        let error = store.migrate().await.unwrap_err();
        assert!(matches!(error, MigrationError::NotInitiated), "{error:?}");
        assert!(error.to_string().contains("rs.initiate()"), "{error}");
    }
    let (_, address) = server.split_once("//").unwrap();
    let address = address.trim_end_matches("/sampler");
    let members = [doc! { "_id": 0, "host": address }];
    let config = doc! { "_id": "rs0", "members": members.to_vec() };
    set.command(0, doc! { "replSetInitiate": config })
        .await
        .unwrap();
    let store = MongoStore::connect(options).await.unwrap();
    let migrated = store.migrate_when_possible(std::future::pending()).await;
    assert!(migrated.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_is_removed_by_the_server_once_it_has_expired() {
    let (store, spans) = store_and_spans("retention").await;
    let span = started(&store, "a", "a", 0).await;
    let entry = entry(&span, 0, 1_000);
    store.write_entry(&entry, at(5_000), None).await.unwrap();
    // Written again, it expires as it was to.
    store.write_entry(&entry, at(9_000), None).await.unwrap();
    let usages = usages_beside(&spans);
    let kept = usages.find_one(doc! {}).await.unwrap().unwrap();
    let expires_at = DateTime::from_millis(at(5_000).as_millis());
    assert_eq!(kept.get("expires_at"), Some(&Bson::DateTime(expires_at)));
    let mut indexes = usages.list_indexes().await.unwrap();
    let mut expiries = Vec::new();
    while indexes.advance().await.unwrap() {
        let index = indexes.deserialize_current().unwrap();
        let after = index.options.and_then(|options| options.expire_after);
        expiries.extend(after.map(|after| (index.keys, after.as_secs())));
    }
    assert_eq!(expiries, [(doc! { "expires_at": 1 }, 0)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_span_that_is_no_longer_complete_is_not_removed() {
    let (store, spans) = store_and_spans("removal").await;
    let span = completed(&store, "a", -1_000).await;
    let found = store.completed_before(at(0), 10).await.unwrap();
    assert_eq!(found, [finished(&span)]);
    // An operator has something sent again meanwhile.
    let again = doc! { "$set": { "processing.complete": false } };
    spans.update_one(doc! {}, again).await.unwrap();
    assert_eq!(store.remove(&found).await.unwrap(), 0);
    let complete = doc! { "$set": { "processing.complete": true } };
    spans.update_one(doc! {}, complete).await.unwrap();
    assert_eq!(store.remove(&found).await.unwrap(), 1);
    assert_eq!(spans.count_documents(doc! {}).await.unwrap(), 0);
}

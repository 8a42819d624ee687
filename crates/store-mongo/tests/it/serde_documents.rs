//! What serde keeps is named as other releases read it, and may lack what they do not write.

use bson::{Bson, DateTime, Document, doc};
use mongodb::Collection;
use sampler_store::{
    Backlog, ClosingBacklog, Instance, InstanceProgram, Intake, Operating, Reading,
};
use sampler_store_mongo::MongoStore;
use sampler_store_testing::support::at;

use crate::support::{database_of, store_and_spans};

async fn store_and(label: &str, collection: &str) -> (MongoStore, Collection<Document>) {
    let (store, spans) = store_and_spans(label).await;
    let database = database_of(&spans);
    (store, database.collection(collection))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_of_an_instance_is_kept_under_the_names_that_other_releases_read() {
    let (store, instances) = store_and("instance_names", "spans_instances").await;
    let full = Instance {
        index: Some("0".to_owned()),
        version: Some("1.2.3".to_owned()),
        started_at: Some(at(1)),
        is_stopping: true,
        failing: vec!["database".to_owned()],
        warnings: vec!["clock".to_owned()],
        partitions: Some(64),
        paused_by: vec!["operator".to_owned()],
        upstream: Some("abacus".to_owned()),
        usages_today: Some(5_000_000_000),
        slack: Some(7),
        intake: Some(Intake {
            kept: 240,
            refused: 3,
            last_at: Some(at(8)),
        }),
        ..Instance::new("full".to_owned(), InstanceProgram::Worker)
    };
    store.report_instance(&full).await.unwrap();
    let mut kept = instances
        .find_one(doc! { "_id": "full" })
        .await
        .unwrap()
        .unwrap();
    assert!(matches!(kept.remove("seen_at"), Some(Bson::DateTime(_))));
    let expected = doc! {
        "_id": "full",
        "program": InstanceProgram::Worker.name(),
        "index": "0",
        "version": "1.2.3",
        "started_at": at(1).as_millis(),
        "is_stopping": true,
        "failing": ["database"],
        "warnings": ["clock"],
        "partitions": 64_i64,
        "paused_by": ["operator"],
        "upstream": "abacus",
        "usages_today": 5_000_000_000_i64,
        "slack": 7_i64,
        "intake": { "kept": 240_i64, "refused": 3_i64, "last_at": at(8).as_millis() },
    };
    assert_eq!(kept, expected);

    let least = doc! { "_id": "least", "program": "receiver", "seen_at": DateTime::now() };
    instances.insert_one(least).await.unwrap();
    let seen = store.instances().await.unwrap();
    let least = Instance::new("least".to_owned(), InstanceProgram::Receiver);
    assert!(seen.iter().any(|it| it.instance == least), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_backlog_is_kept_under_the_names_that_other_releases_read() {
    let (store, control) = store_and("backlog_names", "spans_control").await;
    let backlog = Backlog {
        due: 5_000_000_000,
        at_least: true,
        oldest: Some(at(1)),
        suspended: 4,
        rate: 0.5,
        closing: Some(ClosingBacklog {
            start: at(10),
            end: at(20),
            spans: 6,
        }),
        cost: 8,
    };
    store.publish_backlog(&backlog).await.unwrap();
    let filter = doc! { "_id": "backlog" };
    let mut kept = control.find_one(filter.clone()).await.unwrap().unwrap();
    assert!(matches!(kept.remove("at"), Some(Bson::DateTime(_))));
    let expected = doc! {
        "due": 5_000_000_000_i64,
        "at_least": true,
        "oldest": at(1).as_millis(),
        "suspended": 4_i64,
        "rate": 0.5,
        "closing": {
            "start": at(10).as_millis(), "end": at(20).as_millis(), "spans": 6_i64,
        },
        "cost": 8_i64,
        "_id": "backlog",
    };
    assert_eq!(kept, expected);

    let read = store.published_backlog().await.unwrap().unwrap().value;
    assert_eq!(read, backlog);
}

//! What serde keeps is named as other releases read it, and may lack what they do not write.

use bson::{Bson, Document, doc};
use mongodb::Collection;
use sampler_store::{Backlog, ClosingBacklog, Operating};
use sampler_store_mongo::MongoStore;
use sampler_store_testing::support::at;

use crate::support::{database_of, store_and_spans};

async fn store_and(label: &str, collection: &str) -> (MongoStore, Collection<Document>) {
    let (store, spans) = store_and_spans(label).await;
    let database = database_of(&spans);
    (store, database.collection(collection))
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

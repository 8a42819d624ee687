//! A database that is away, and callers that go away.

use std::time::{Duration, Instant};

use bson::doc;
use sampler_store::contract::support::{id, new_span, start, start_event};
use sampler_store::{SpanStore, Started, StoreError};
use sampler_store_mongo::{MongoOptions, MongoStore};
use sampler_testkit::wait_until;

use crate::support::store_and_spans;

#[tokio::test]
async fn a_database_that_is_away_is_told_within_the_time_limit() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let store = MongoStore::connect(MongoOptions {
        uri: format!("mongodb://{nobody}/?replicaSet=rs0"),
        database: "sampler".into(),
        collection: "spans".into(),
        pool_size: 4,
        server_selection_timeout: Duration::from_millis(300),
        operation_timeout: Duration::from_millis(500),
        app_name: "sampler-test".into(),
    })
    .await
    .unwrap();
    let began = Instant::now();
    let error = store.ping().await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_connection_string_that_is_no_good_is_refused_without_its_password() {
    let options = MongoOptions {
        uri: "mongodb://user:hush@host:notaport/db".into(),
        database: "sampler".into(),
        collection: "spans".into(),
        pool_size: 4,
        server_selection_timeout: Duration::from_millis(300),
        operation_timeout: Duration::from_millis(500),
        app_name: "sampler-test".into(),
    };
    let error = MongoStore::connect(options).await.unwrap_err().to_string();
    assert!(!error.contains("hush"), "{error}");
}

/// A client that disconnects drops its request, but not the call to the driver.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_goes_on_when_its_caller_goes_away() {
    let (store, spans) = store_and_spans("dropped").await;
    for number in 0..50 {
        let name = format!("start-{number}");
        let event = start_event(Some(&name), &name, 0);
        let start = store.start(new_span(event));
        // Polled once, so that it is on its way, then dropped.
        tokio::select! { biased; _ = start => {}, () = std::future::ready(()) => {} }
    }
    // Each got as far as its first call; the connections are all fit for use after that.
    assert_eq!(
        start(&store, Some("last"), "last", 0).await,
        Started::Opened
    );
    wait_until(
        "the last span is there",
        Duration::from_secs(10),
        async || {
            spans
                .count_documents(doc! { "start_dedup_id": "last" })
                .await
                .unwrap()
                == 1
        },
    )
    .await;
    assert!(store.started_by(&id("last")).await.unwrap().is_some());
}

//! Connection strings that are no good, that lead nowhere, or that would have us ask a secondary.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use sampler_domain::Refusal;
use sampler_store::{Events, StartOutcome, StopOutcome, StoreError, Work};
use sampler_store_mongo::{MongoOptions, MongoStore};
use sampler_store_testing::support::{must_stop, new_span, new_stop, start, start_event};
use sampler_testkit::mongod::{Options, ReplicaSet};

use crate::support::options_of;

#[tokio::test]
async fn a_database_that_is_away_is_told_within_the_time_limit() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let store = MongoStore::connect(MongoOptions {
        server_selection_timeout: Duration::from_millis(300),
        operation_timeout: Duration::from_millis(500),
        ..options_of(format!("mongodb://{nobody}/?replicaSet=rs0"), "sampler")
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
    let options = options_of("mongodb://user:hush@host:notaport/db", "sampler");
    let error = MongoStore::connect(options).await.unwrap_err().to_string();
    assert!(
        !error.contains("hush") && !error.contains("notaport"),
        "{error}"
    );
    assert!(error.ends_with("the driver cannot read it"), "{error}");
}

/// How many targets are told of.
const TARGETS: usize = 60;

#[tokio::test(flavor = "multi_thread")]
async fn only_the_primary_is_asked_whatever_the_connection_string_says() {
    let set = ReplicaSet::start(Options::three()).await.unwrap();
    let weak = "readPreference=secondaryPreferred&w=1&journal=false&readConcernLevel=local";
    let uri = format!("{}&{weak}", set.uri_of("primary"));
    let store = MongoStore::connect(options_of(uri, "primary"));
    let store = store.await.unwrap();
    store.migrate().await.unwrap();
    let started = join_all((0..TARGETS).map(async |number| {
        let name = format!("instance-{number}");
        start(&store, Some(&name), &name, 0).await
    }));
    assert_eq!(started.await, vec![StartOutcome::Opened; TARGETS]);
    let repeated = start(&store, Some("instance-0"), "instance-0", 0).await;
    assert!(matches!(repeated, StartOutcome::Repeated { .. }));
    let again = start_event(Some("other"), "instance-0", 5);
    assert_eq!(
        store.start(new_span(again)).await.unwrap(),
        StartOutcome::Refused(Refusal::AlreadyOpen)
    );
    let unknown = store.stop(new_stop(None, "stranger", 5)).await.unwrap();
    assert_eq!(unknown, StopOutcome::Refused(Refusal::NotOpen));

    // A start inside the span that has just ended, before a secondary knows of the end.
    let inside = join_all((0..TARGETS).map(async |number| {
        let name = format!("instance-{number}");
        must_stop(&store, None, &name, 1_000).await;
        start(&store, None, &name, 500).await
    }));
    for answer in inside.await {
        assert!(
            matches!(answer, StartOutcome::Refused(Refusal::Overlaps { .. })),
            "{answer:?}"
        );
    }
    let alive = store.heartbeat("worker").await.unwrap();
    assert_eq!(alive.workers, ["worker"], "a heartbeat knows of itself");
}

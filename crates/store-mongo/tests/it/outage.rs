//! A database that is away.

use std::time::{Duration, Instant};

use sampler_store::StoreError;
use sampler_store_mongo::{MongoOptions, MongoStore};

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

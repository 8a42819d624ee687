//! A real server: it starts, it is elected, it dies and comes back.

use std::time::Duration;

use mongodb::bson::{Document, doc};
use sampler_testkit::guard::wait_gone;
use sampler_testkit::mongod::{Options, ReplicaSet};
use sampler_testkit::{TestDatabase, wait_until};

const LIMIT: Duration = Duration::from_mins(1);

#[tokio::test]
async fn test_databases_are_apart() {
    let one = TestDatabase::new("apart").await;
    let other = TestDatabase::new("apart").await;
    assert_ne!(one.name(), other.name());
    let collection = one.database().await.collection::<Document>("things");
    collection.insert_one(doc! { "a": 1 }).await.unwrap();
    assert_eq!(collection.count_documents(doc! {}).await.unwrap(), 1);
    let collection = other.database().await.collection::<Document>("things");
    assert_eq!(collection.count_documents(doc! {}).await.unwrap(), 0);
}

#[tokio::test]
async fn the_uri_carries_the_database() {
    let database = TestDatabase::new("uri").await;
    let client = mongodb::Client::with_uri_str(database.uri()).await.unwrap();
    assert_eq!(client.default_database().unwrap().name(), database.name());
}

#[tokio::test]
async fn fail_command_is_there() {
    let set = ReplicaSet::start(Options::single()).await.unwrap();
    let fail = doc! {
        "configureFailPoint": "failCommand",
        "mode": { "times": 1 },
        "data": { "failCommands": ["insert"], "errorCode": 8000 },
    };
    set.command(0, fail).await.unwrap();
    let client = mongodb::Client::with_uri_str(set.uri_of("test"))
        .await
        .unwrap();
    let collection = client.database("test").collection::<Document>("things");
    assert!(collection.insert_one(doc! {}).await.is_err());
    assert!(collection.insert_one(doc! {}).await.is_ok());
}

#[tokio::test]
async fn kept_data_is_taken_up_again_on_another_port() {
    let folder = tempfile::tempdir().unwrap();
    let kept = || Options {
        folder: Some(folder.path().to_owned()),
        ..Options::single()
    };
    let set = ReplicaSet::start(kept()).await.unwrap();
    let first_port = set.ports()[0];
    insert(&set, 1).await;
    let pid = set.pid(0).await.unwrap();
    set.stop().await.unwrap();
    wait_gone(pid, LIMIT).await.unwrap();
    let other_port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    assert_ne!(other_port, first_port);
    let set = ReplicaSet::start(Options {
        ports: vec![other_port],
        ..kept()
    })
    .await
    .unwrap();
    assert_eq!(count(&set).await, 1);
    insert(&set, 2).await;
    set.kill(0).await.unwrap();
    drop(set);
    let set = ReplicaSet::start(kept()).await.unwrap();
    assert_eq!(count(&set).await, 2);
}

#[tokio::test]
async fn another_primary_is_elected_and_the_old_one_comes_back() {
    let set = ReplicaSet::start(Options::three()).await.unwrap();
    insert(&set, 1).await;
    let first = set.wait_for_primary().await.unwrap();
    let pid = set.pid(first).await.unwrap();
    set.kill(first).await.unwrap();
    wait_gone(pid, LIMIT).await.unwrap();
    let second = set.wait_for_primary().await.unwrap();
    assert_ne!(first, second);
    insert(&set, 2).await;
    set.restart(first).await.unwrap();
    wait_until("the old primary follows", LIMIT, || async {
        let hello = set.command(first, doc! { "hello": 1 }).await;
        hello.is_ok_and(|answer| answer.get_bool("secondary").unwrap_or(false))
    })
    .await;
    assert_eq!(count(&set).await, 2);
}

#[tokio::test]
async fn a_frozen_primary_is_replaced() {
    let set = ReplicaSet::start(Options::three()).await.unwrap();
    let first = set.wait_for_primary().await.unwrap();
    set.freeze(first).await.unwrap();
    wait_until("another primary", LIMIT, || async {
        set.primary().await.is_some_and(|second| second != first)
    })
    .await;
    set.thaw(first).await.unwrap();
    wait_until("the old primary steps down", LIMIT, || async {
        let hello = set.command(first, doc! { "hello": 1 }).await;
        hello.is_ok_and(|answer| answer.get_bool("secondary").unwrap_or(false))
    })
    .await;
}

async fn things(set: &ReplicaSet) -> mongodb::Collection<Document> {
    let client = mongodb::Client::with_uri_str(set.uri_of("test"))
        .await
        .unwrap();
    client.database("test").collection("things")
}

async fn insert(set: &ReplicaSet, number: i32) {
    let durable = mongodb::options::WriteConcern::majority();
    let insert = things(set).await;
    insert
        .insert_one(doc! { "_id": number })
        .write_concern(durable)
        .await
        .unwrap();
}

async fn count(set: &ReplicaSet) -> u64 {
    things(set).await.count_documents(doc! {}).await.unwrap()
}

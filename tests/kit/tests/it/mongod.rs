//! A real server takes up the data of an earlier one. How it is killed, frozen and started again is shown by
//! chaos, and its fail points by the tests of the store.

use std::time::Duration;

use mongodb::bson::{Document, doc};
use sampler_testkit::guard::wait_gone;
use sampler_testkit::mongod::{Options, ReplicaSet};

const LIMIT: Duration = Duration::from_mins(1);

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

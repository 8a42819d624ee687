//! Events of batches beside events that come alone.

use std::sync::Arc;
use std::time::Duration;

use bson::doc;
use mongodb::Client;
use sampler_store::{Arrival, Events, StartOutcome};
use sampler_store_mongo::{MongoOptions, MongoStore};
use sampler_store_testing::support::{new_span, start, start_event};
use sampler_testkit::mongod::{Options, ReplicaSet};
use tokio::task::JoinSet;

use crate::support::options_of;

/// How many events come in a batch: more than all commands of single events hold.
const BATCH: usize = 300;

/// How long the server holds a command, ms. Much longer than all that is done meanwhile.
const HELD: i64 = 10_000;

/// The commands of a kind that are in flight at a time.
const COMMANDS: i32 = 4;

struct World {
    set: ReplicaSet,
    store: Arc<MongoStore>,
    client: Client,
}

impl World {
    async fn new() -> Self {
        let set = ReplicaSet::start(Options::single()).await.unwrap();
        let options = MongoOptions {
            operation_timeout: Duration::from_mins(1),
            app_name: "lanes".into(),
            ..options_of(set.uri(), "lanes")
        };
        let store = Arc::new(MongoStore::connect(options).await.unwrap());
        store.migrate().await.unwrap();
        let client = Client::with_uri_str(set.uri()).await.unwrap();
        Self { set, store, client }
    }

    /// Has the server hold the next commands of this name, so many of them. The answer waits until it
    /// does.
    async fn hold(&self, command: &str, count: i32) -> bson::Document {
        let held = doc! {
            "failCommands": [command], "appName": "lanes", "namespace": "lanes.spans",
            "blockConnection": true, "blockTimeMS": HELD,
        };
        let order =
            doc! { "configureFailPoint": "failCommand", "mode": { "times": count }, "data": held };
        let before = self.set.command(0, order).await.unwrap();
        doc! {
            "waitForFailPoint": "failCommand",
            "timesEntered": before.get_i32("count").unwrap() + count,
            "maxTimeMS": 20_000,
        }
    }

    async fn run(&self, command: bson::Document) {
        let admin = self.client.database("admin");
        admin.run_command(command).await.unwrap();
    }

    async fn count(&self) -> u64 {
        let database = self.client.database("lanes");
        let spans = database.collection::<bson::Document>("spans");
        spans.count_documents(doc! {}).await.unwrap()
    }
}

fn instance(number: usize) -> String {
    format!("instance-{number}")
}

/// The commands of the batch take their time; the lone event does not wait for them.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_comes_alone_does_not_wait_for_those_of_batches() {
    let world = World::new().await;
    let held = world.hold("insert", COMMANDS).await;
    let mut batch = JoinSet::new();
    for number in 0..BATCH {
        let store = Arc::clone(&world.store);
        let mut new = new_span(start_event(Some("in a batch"), &instance(number), 0));
        new.arrival = Arrival::InBatch;
        batch.spawn(async move { store.start(new).await.unwrap() });
    }
    world.run(held).await;
    let before = world.count().await;
    let alone = start(&*world.store, Some("alone"), "alone", 0).await;
    assert_eq!(alone, StartOutcome::Opened);
    assert_eq!(world.count().await, before + 1, "the batch is held still");
    let outcomes = batch.join_all().await;
    assert_eq!(outcomes, vec![StartOutcome::Opened; BATCH]);
}

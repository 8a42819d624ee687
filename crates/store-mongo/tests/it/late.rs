//! Commands that the server carries out after their client has gone.

use std::time::Duration;

use bson::{Document, doc};
use mongodb::{Client, Collection};
use sampler_store::{Events, StartOutcome, StoreError};
use sampler_store_mongo::{MongoOptions, MongoStore};
use sampler_store_testing::support::{at, kept, must_stop, new_span, new_stop, start, start_event};
use sampler_testkit::mongod::{Options, ReplicaSet};
use sampler_testkit::wait_until;

use crate::proxy::Proxy;
use crate::support::options_of;

/// The instance that all events are of.
const INSTANCE: &str = "instance";

/// How long the server holds a command, ms. Much longer than all that is done meanwhile.
const HELD: i64 = 4_000;

/// How long a test waits for what must come.
const SOON: Duration = Duration::from_secs(30);

/// A server of its own. One store reaches it over links that can be cut, the other directly.
struct World {
    set: ReplicaSet,
    proxy: Proxy,
    cut: MongoStore,
    store: MongoStore,
    spans: Collection<Document>,
    client: Client,
}

impl World {
    async fn new(operation_timeout: Duration) -> Self {
        let set = ReplicaSet::start(Options::single()).await.unwrap();
        let proxy = Proxy::start(set.ports()[0]).await;
        let connect = async |uri: String, app_name: &str, operation_timeout| {
            let options = MongoOptions {
                operation_timeout,
                app_name: app_name.into(),
                ..options_of(uri, "late")
            };
            MongoStore::connect(options).await.unwrap()
        };
        let store = connect(set.uri(), "direct", Duration::from_secs(20)).await;
        store.migrate().await.unwrap();
        let client = Client::with_uri_str(set.uri()).await.unwrap();
        Self {
            cut: connect(proxy.uri(), "cut", operation_timeout).await,
            spans: client.database("late").collection("spans"),
            client,
            set,
            proxy,
            store,
        }
    }

    /// Has the server hold the next update that this store sends. The command that waits until it
    /// does.
    async fn hold(&self, app_name: &str) -> Document {
        let held = doc! {
            "failCommands": ["update", "findAndModify"], "appName": app_name,
            "blockConnection": true, "blockTimeMS": HELD,
        };
        let order =
            doc! { "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": held };
        let before = self.set.command(0, order).await.unwrap();
        doc! {
            "waitForFailPoint": "failCommand",
            "timesEntered": before.get_i32("count").unwrap() + 1,
            "maxTimeMS": 20_000,
        }
    }

    /// Makes a call whose update the server holds, and cuts the link meanwhile. What the caller is
    /// told.
    async fn cut_off<T>(&self, call: impl Future<Output = T>) -> T {
        let entered = self.hold("cut").await;
        let cut = async {
            let admin = self.client.database("admin");
            admin.run_command(entered).await.unwrap();
            assert!(self.is_at_work().await, "the server holds it");
            self.proxy.cut();
        };
        tokio::join!(call, cut).0
    }

    /// Whether the server still works on what came over the links that were cut.
    async fn is_at_work(&self) -> bool {
        let pipeline = [
            doc! { "$currentOp": { "allUsers": true } },
            doc! { "$match": { "appName": "cut", "$or": [
                { "command.update": "spans" }, { "command.findAndModify": "spans" },
            ] } },
        ];
        let admin = self.client.database("admin");
        let mut found = admin.aggregate(pipeline).await.unwrap();
        found.advance().await.unwrap()
    }

    async fn start_b(&self) -> Result<StartOutcome, StoreError> {
        let event = start_event(Some("b"), INSTANCE, 1_000);
        self.cut_off(self.cut.start(new_span(event))).await
    }

    async fn has(&self, start_id: &str) -> bool {
        let filter = doc! { "start_dedup_id": start_id };
        self.spans.count_documents(filter).await.unwrap() == 1
    }
}

/// While the server works on it, the target has another open span, which is not a reason to say that
/// the start was not kept.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_may_come_late_is_not_refused() {
    let world = World::new(Duration::from_secs(20)).await;
    let store = &world.store;
    start(store, Some("a"), INSTANCE, 0).await;
    let answer = world.start_b().await;
    must_stop(store, None, INSTANCE, 500).await;
    wait_until("the start is kept", SOON, async || world.has("b").await).await;
    assert!(matches!(answer, Err(StoreError::Unknown(_))), "{answer:?}");
}

/// There is nothing to stop when it is sent; when it is carried out, there is.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_that_may_come_late_is_not_refused() {
    let world = World::new(Duration::from_secs(20)).await;
    let store = &world.store;
    let late = world.cut.stop(new_stop(Some("late"), INSTANCE, 2_000));
    let answer = world.cut_off(late).await;
    start(store, Some("a"), INSTANCE, 1_000).await;
    wait_until("the stop is kept", SOON, async || {
        kept(store, "a").await.end == Some(at(2_000))
    })
    .await;
    assert!(matches!(answer, Err(StoreError::Unknown(_))), "{answer:?}");
}

/// The server gives a command up that has taken longer than it may, so that a repeat that comes
/// after that is told the truth.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_held_for_too_long_is_never_carried_out() {
    let world = World::new(Duration::from_secs(1)).await;
    let store = &world.store;
    start(store, Some("a"), INSTANCE, 0).await;
    let answer = world.start_b().await;
    must_stop(store, None, INSTANCE, 500).await;
    wait_until("the server is done with it", SOON, async || {
        !world.is_at_work().await
    })
    .await;
    assert!(!world.has("b").await, "it was carried out");
    assert!(matches!(answer, Err(StoreError::Unknown(_))), "{answer:?}");
}

/// A client that disconnects drops its request, but not the call to the driver.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_goes_on_when_its_caller_goes_away() {
    let world = World::new(Duration::from_secs(20)).await;
    let entered = world.hold("direct").await;
    let store = world.store.clone();
    let event = start_event(Some("gone"), INSTANCE, 0);
    let caller = tokio::spawn(async move { store.start(new_span(event)).await });
    let admin = world.client.database("admin");
    admin.run_command(entered).await.unwrap();
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    assert!(!world.has("gone").await, "it is on its way still");
    wait_until("it is kept", SOON, async || world.has("gone").await).await;
    // The connections are all fit for use after that.
    let repeated = start(&world.store, Some("gone"), INSTANCE, 0).await;
    assert!(matches!(repeated, StartOutcome::Repeated { .. }));
}

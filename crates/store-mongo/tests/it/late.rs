//! Commands that the server carries out after their client has gone.

use std::sync::Arc;
use std::time::Duration;

use bson::doc;
use sampler_store::{Arrival, Events, StartOutcome, StoreError};
use sampler_store_mongo::MongoStore;
use sampler_store_testing::support::{at, kept, must_stop, new_span, new_stop, start, start_event};
use sampler_testkit::wait_until;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::support::{OwnServer, held};

/// The instance that most events are of.
const INSTANCE: &str = "instance";

/// How long the server holds a command, ms. Much longer than all that is done meanwhile.
const HELD: i64 = 4_000;

/// How long a test waits for what must come.
const SOON: Duration = Duration::from_secs(30);

/// A server of its own. One store reaches it over links that can be cut, the other directly.
struct World {
    server: OwnServer,
    proxy: Proxy,
    cut: MongoStore,
    store: MongoStore,
}

impl World {
    async fn new(operation_timeout: Duration) -> Self {
        let server = OwnServer::start().await;
        let proxy = Proxy::start(server.set.ports()[0]).await;
        Self {
            store: server.store("direct", SOON).await,
            cut: server.store_by(proxy.uri(), "cut", operation_timeout).await,
            server,
            proxy,
        }
    }

    /// Has the server hold the next update that this store sends. What says that it does.
    async fn hold(&self, app_name: &str) -> i32 {
        let commands = ["update", "findAndModify"];
        self.server.fail(app_name, &commands, 1, held(HELD)).await
    }

    /// Makes a call whose update the server holds, and cuts the link meanwhile. What the caller is
    /// told.
    async fn cut_off<T>(&self, call: impl Future<Output = T>) -> T {
        let is_held = self.hold("cut").await;
        let cut = async {
            self.server.has_failed(is_held).await;
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
        let admin = self.server.client.database("admin");
        let mut found = admin.aggregate(pipeline).await.unwrap();
        found.advance().await.unwrap()
    }

    async fn start_b(&self) -> Result<StartOutcome, StoreError> {
        let event = start_event(Some("b"), INSTANCE, 1_000);
        self.cut_off(self.cut.start(new_span(event))).await
    }

    async fn has(&self, start_id: &str) -> bool {
        let filter = doc! { "start_dedup_id": start_id };
        self.server.spans.count_documents(filter).await.unwrap() == 1
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
    let is_held = world.hold("direct").await;
    let store = world.store.clone();
    let event = start_event(Some("gone"), INSTANCE, 0);
    let caller = tokio::spawn(async move { store.start(new_span(event)).await });
    world.server.has_failed(is_held).await;
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    assert!(!world.has("gone").await, "it is on its way still");
    wait_until("it is kept", SOON, async || world.has("gone").await).await;
    // The connections are all fit for use after that.
    let repeated = start(&world.store, Some("gone"), INSTANCE, 0).await;
    assert!(matches!(repeated, StartOutcome::Repeated { .. }));
}

/// How many events come in a batch: more than the four commands hold that are in flight at a time.
const BATCH: usize = 300;

/// The commands of a batch take their time; a lone event does not wait for them.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_comes_alone_does_not_wait_for_those_of_batches() {
    let server = OwnServer::start().await;
    let store = Arc::new(server.store("batches", Duration::from_mins(1)).await);
    let how = held(10_000);
    let are_held = server.fail("batches", &["insert"], 4, how).await;
    let mut batch = JoinSet::new();
    for number in 0..BATCH {
        let store = Arc::clone(&store);
        let name = format!("instance-{number}");
        let mut new = new_span(start_event(Some("in a batch"), &name, 0));
        new.arrival = Arrival::InBatch;
        batch.spawn(async move { store.start(new).await.unwrap() });
    }
    server.has_failed(are_held).await;
    let count = async || server.spans.count_documents(doc! {}).await.unwrap();
    let before = count().await;
    let alone = start(&*store, Some("alone"), "alone", 0).await;
    assert_eq!(alone, StartOutcome::Opened);
    assert_eq!(count().await, before + 1, "the batch is held still");
    let outcomes = batch.join_all().await;
    assert_eq!(outcomes, vec![StartOutcome::Opened; BATCH]);
}

/// A running TCP proxy in front of one server. It goes when this value goes.
#[derive(Debug)]
struct Proxy {
    port: u16,
    cuts: watch::Sender<()>,
    serving: JoinHandle<()>,
}

impl Proxy {
    async fn start(upstream: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (cuts, cut) = watch::channel(());
        let serving = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(link(client, upstream, cut.clone()));
            }
        });
        Self {
            port,
            cuts,
            serving,
        }
    }

    fn uri(&self) -> String {
        format!("mongodb://127.0.0.1:{}/?directConnection=true", self.port)
    }

    /// Closes all connections that there are. New ones are served.
    fn cut(&self) {
        self.cuts.send_replace(());
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn link(mut client: TcpStream, upstream: u16, mut cut: watch::Receiver<()>) {
    cut.mark_unchanged();
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", upstream)).await else {
        return;
    };
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
        _ = cut.changed() => {}
    }
}

//! A store in a database of its own.

use std::collections::BTreeSet;
use std::time::Duration;

use bson::spec::BinarySubtype;
use bson::{Binary, Document, doc};
use mongodb::{Client, Collection, Database};
use sampler_domain::{Key, Target};
use sampler_store_mongo::{MongoOptions, MongoStore};
use sampler_testkit::TestDatabase;
use sampler_testkit::mongod::{Options, ReplicaSet};

pub(crate) fn options(database: &TestDatabase) -> MongoOptions {
    options_of(database.uri(), database.name())
}

/// How a database of this name is reached on a server.
pub(crate) fn options_of(uri: impl Into<String>, database: &str) -> MongoOptions {
    MongoOptions {
        uri: uri.into(),
        database: database.to_owned(),
        collection: "spans".to_owned(),
        pool_size: 64,
        server_selection_timeout: Duration::from_secs(10),
        operation_timeout: Duration::from_secs(20),
        app_name: "sampler-test".to_owned(),
    }
}

/// A store with its indexes, and the collection behind it.
pub(crate) async fn store_and_spans(label: &str) -> (MongoStore, Collection<Document>) {
    let database = TestDatabase::new(label).await;
    let store = MongoStore::connect(options(&database)).await.unwrap();
    store.migrate().await.unwrap();
    let spans = database.database().await.collection("spans");
    // It goes with its value, and the test continues; the server of the tests goes after them all.
    std::mem::forget(database);
    (store, spans)
}

/// The same, where the original has made its indexes before us, and nothing is taken over yet.
pub(crate) async fn beside_original(label: &str) -> (MongoStore, Collection<Document>) {
    let database = TestDatabase::new(label).await;
    make_original_indexes(&database.database().await).await;
    let store = MongoStore::connect(options(&database)).await.unwrap();
    store.migrate().await.unwrap();
    let spans = database.database().await.collection("spans");
    std::mem::forget(database);
    (store, spans)
}

/// A server of a test's own, which can be told to fail commands, or to hold them.
pub(crate) struct OwnServer {
    pub(crate) set: ReplicaSet,
    pub(crate) client: Client,
    pub(crate) spans: Collection<Document>,
}

impl OwnServer {
    pub(crate) async fn start() -> Self {
        let set = ReplicaSet::start(Options::single()).await.unwrap();
        let client = Client::with_uri_str(set.uri()).await.unwrap();
        let spans = client.database("own").collection("spans");
        Self { set, client, spans }
    }

    /// A store that calls itself so, and waits so long for an answer.
    pub(crate) async fn store(&self, app_name: &str, operation_timeout: Duration) -> MongoStore {
        let store = self.store_by(self.set.uri(), app_name, operation_timeout);
        let store = store.await;
        store.migrate().await.unwrap();
        store
    }

    /// One that reaches the server by this address.
    pub(crate) async fn store_by(
        &self,
        uri: String,
        app_name: &str,
        operation_timeout: Duration,
    ) -> MongoStore {
        let options = MongoOptions {
            operation_timeout,
            app_name: app_name.into(),
            ..options_of(uri, "own")
        };
        MongoStore::connect(options).await.unwrap()
    }

    /// Fails the next commands of these names so that this store sends, as many as are said. Only those on spans:
    /// the store also writes to have the journal written, and that may fail. What [`Self::has_failed`] waits for.
    pub(crate) async fn fail(
        &self,
        app_name: &str,
        commands: &[&str],
        times: i32,
        how: Document,
    ) -> i32 {
        let namespace = self.spans.namespace().to_string();
        let mut data =
            doc! { "failCommands": commands, "appName": app_name, "namespace": namespace };
        data.extend(how);
        let order =
            doc! { "configureFailPoint": "failCommand", "mode": { "times": times }, "data": data };
        let before = self.set.command(0, order).await.unwrap();
        before.get_i32("count").unwrap() + times
    }

    /// Waits until as many commands have failed, or are held.
    pub(crate) async fn has_failed(&self, count: i32) {
        let wait = doc! {
            "waitForFailPoint": "failCommand", "timesEntered": count, "maxTimeMS": 20_000,
        };
        let admin = self.client.database("admin");
        admin.run_command(wait).await.unwrap();
    }
}

/// How a command is held, ms.
pub(crate) fn held(millis: i64) -> Document {
    doc! { "blockConnection": true, "blockTimeMS": millis }
}

/// The database that a collection is in.
pub(crate) fn database_of(collection: &Collection<Document>) -> Database {
    collection.client().database(&collection.namespace().db)
}

/// The ledger beside the spans.
pub(crate) fn usages_beside(spans: &Collection<Document>) -> Collection<Document> {
    database_of(spans).collection("spans_usages")
}

/// Another program on the collection of a store.
pub(crate) async fn beside(spans: &Collection<Document>) -> MongoStore {
    let server = TestDatabase::new("beside").await;
    let options = MongoOptions {
        database: spans.namespace().db,
        ..options(&server)
    };
    let store = MongoStore::connect(options).await.unwrap();
    store.migrate().await.unwrap();
    store
}

/// Makes the indexes as the original makes them, its `background` included.
pub(crate) async fn make_original_indexes(database: &Database) {
    let unique_sparse = doc! { "unique": true, "sparse": true, "background": true };
    let index = |name: &str, keys: Document, options: &Document| {
        let mut index = doc! { "name": name, "key": keys };
        index.extend(options.clone());
        index
    };
    let command = doc! { "createIndexes": "spans", "indexes": [
        index("unique_target", doc! {
            "target.organization_id": 1, "target.space_id": 1, "target.consumer_id": 1,
            "target.resource_id": 1, "target.plan_id": 1, "target.resource_instance_id": 1,
            "target.correlation_id": 1,
        }, &doc! { "unique": true, "background": true }),
        index("unique_start_dedup_id", doc! { "start_dedup_id": 1 }, &unique_sparse),
        index("unique_end_dedup_id", doc! { "end_dedup_id": 1 }, &unique_sparse),
        index("search_processing", doc! {
            "processing.complete": 1, "processing.last_interval.end": 1,
        }, &doc! { "background": true }),
        index("search_end_is_set", doc! { "processing.complete": 1 },
            &doc! { "partialFilterExpression": { "end_is_set": true } }),
    ] };
    database.run_command(command).await.unwrap();
}

/// The members of `processing` that follow from the target.
pub(crate) fn placement(target: &Target) -> Document {
    let key = Key::of(target);
    let bytes = Binary {
        subtype: BinarySubtype::Generic,
        bytes: key.bytes().to_vec(),
    };
    doc! { "partition": key.partition(), "key": bytes }
}

/// The names of the indexes that there are.
pub(crate) async fn index_names(spans: &Collection<Document>) -> BTreeSet<String> {
    let names = spans.list_index_names().await.unwrap();
    names.into_iter().collect()
}

/// What a command cost the server.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    /// The full name of its collection.
    pub(crate) namespace: String,
    pub(crate) plan: String,
    pub(crate) keys: i64,
    pub(crate) documents: i64,
}

/// The commands since this was asked last, in their order; from now on each is noted.
pub(crate) async fn commands(database: &Database) -> Vec<Command> {
    database.run_command(doc! { "profile": 0 }).await.unwrap();
    let profile = database.collection::<Document>("system.profile");
    let of_a_store = doc! { "ns": { "$regex": r"\.spans(_\w+)?$" } };
    let found = profile.find(of_a_store).sort(doc! { "ts": 1 });
    let mut found = found.await.unwrap();
    let mut commands = Vec::new();
    while found.advance().await.unwrap() {
        let command = found.deserialize_current().unwrap();
        let number = |name: &str| {
            let number = command.get_i32(name).map(i64::from);
            number.or_else(|_| command.get_i64(name)).unwrap_or(0)
        };
        let text = |name: &str| command.get_str(name).unwrap_or_default().to_owned();
        commands.push(Command {
            namespace: text("ns"),
            plan: text("planSummary"),
            keys: number("keysExamined"),
            documents: number("docsExamined"),
        });
    }
    profile.drop().await.unwrap();
    let create = doc! { "create": "system.profile", "capped": true, "size": 16 << 20 };
    database.run_command(create).await.unwrap();
    database.run_command(doc! { "profile": 2 }).await.unwrap();
    commands
}

/// The commands on one collection since they were asked for last.
pub(crate) async fn examined(collection: &Collection<Document>) -> Vec<Command> {
    let mut commands = commands(&database_of(collection)).await;
    let namespace = collection.namespace().to_string();
    commands.retain(|command| command.namespace == namespace);
    commands
}

/// The keys and documents of all of them together.
pub(crate) fn cost(commands: &[Command]) -> (i64, i64) {
    let keys = commands.iter().map(|command| command.keys);
    let documents = commands.iter().map(|command| command.documents);
    (keys.sum(), documents.sum())
}

/// Each of the commands read so much at the most.
#[track_caller]
pub(crate) fn assert_cost(commands: &[Command], keys: i64, documents: i64) {
    for command in commands {
        let is_cheap = command.keys <= keys && command.documents <= documents;
        assert!(is_cheap, "{command:?}");
    }
}

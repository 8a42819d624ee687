//! The database server, and collections of spans in it.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bson::{Bson, Document, doc};
use futures_util::{StreamExt, TryStreamExt, stream};
use mongodb::options::{ClientOptions, CollectionOptions, WriteConcern};
use mongodb::{Client, Collection, Database};
use sampler_store::{Events, StartOutcome};
use sampler_store_mongo::{MongoOptions, MongoStore};
use sampler_testkit::mongod::{Options, ReplicaSet, find};
use sampler_testkit::{now_millis, target_dir};
use tempfile::TempDir;

use crate::event::new_span;

/// The collection of spans, as both programs have it unless told otherwise.
const SPANS: &str = "spans";
/// A collection that no program reads.
const HIDDEN: &str = "held_back";
/// The server's cache in GB: more than all that is written here.
const CACHE_GB: f32 = 2.0;
/// How many connections a program opens to the database unless told otherwise; as many for those
/// that it is compared with.
pub(crate) const POOL_SIZE: u32 = 64;
/// How many spans are being loaded at the same time.
const LOADED_AT_ONCE: usize = 512;
/// The commands that are work, not looking after connections.
const COMMANDS: [&str; 8] = [
    "aggregate",
    "count",
    "delete",
    "find",
    "findAndModify",
    "getMore",
    "insert",
    "update",
];

/// A server of our own, with an empty folder on the disk that the build is on.
#[derive(Debug)]
pub(crate) struct Server {
    set: ReplicaSet,
    client: Client,
    databases: AtomicU64,
    /// The process.
    pub(crate) pid: i32,
    /// What it calls itself.
    pub(crate) version: String,
    // Last: it is removed when the server is gone.
    _folder: TempDir,
}

impl Server {
    /// Starts a server.
    pub(crate) async fn start() -> Result<Self> {
        eprintln!("mongod: {}", find()?);
        let parent = target_dir().join("bench");
        std::fs::create_dir_all(&parent).with_context(|| format!("making {}", parent.display()))?;
        let folder = TempDir::with_prefix_in("mongod-", &parent).context("a data folder")?;
        let options = Options {
            folder: Some(folder.path().to_owned()),
            test_commands: false,
            cache_gb: CACHE_GB,
            ..Options::single()
        };
        let set = ReplicaSet::start(options).await?;
        let pid = set.pid(0).await.context("the server does not run")?;
        let client = client(&set.uri(), POOL_SIZE).await?;
        let info = client
            .database("admin")
            .run_command(doc! { "buildInfo": 1 })
            .await;
        let version = info.context("asking the server")?;
        let version = version.get_str("version").unwrap_or("unknown").to_owned();
        Ok(Self {
            set,
            client,
            databases: AtomicU64::new(0),
            pid,
            version,
            _folder: folder,
        })
    }

    /// A database with no spans in it, and all indexes.
    pub(crate) async fn spans(&self) -> Result<Spans> {
        self.collection(SPANS).await
    }

    /// The same, but the programs do not see the spans before [`Spans::reveal`].
    pub(crate) async fn hidden(&self) -> Result<Spans> {
        self.collection(HIDDEN).await
    }

    /// A database in which there is nothing, not even an index.
    pub(crate) fn untouched(&self) -> Spans {
        self.database(SPANS)
    }

    async fn collection(&self, collection: &'static str) -> Result<Spans> {
        let spans = self.database(collection);
        let store = store(&spans.uri, spans.database.name(), collection).await?;
        store.migrate().await.context("making the indexes")?;
        Ok(spans)
    }

    fn database(&self, collection: &'static str) -> Spans {
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        let name = format!("bench_{number}");
        Spans {
            client: self.client.clone(),
            database: self.client.database(&name),
            collection,
            uri: self.set.uri_of(&name),
        }
    }

    /// The least that the server can be asked.
    pub(crate) async fn ping(&self) -> Result<()> {
        let admin = self.client.database("admin");
        let answer = admin.run_command(doc! { "ping": 1 }).await;
        answer.map(drop).context("ping")
    }

    /// Has the server write down what it holds in memory, so that this does not happen while
    /// something else is measured.
    pub(crate) async fn settle(&self) -> Result<()> {
        let admin = self.client.database("admin");
        admin
            .run_command(doc! { "fsync": 1 })
            .await
            .context("fsync")?;
        Ok(())
    }

    /// How many commands that are work it has carried out since it was started.
    pub(crate) async fn commands(&self) -> Result<u64> {
        let only = doc! { "serverStatus": 1, "metrics": 1, "repl": 0, "locks": 0 };
        let status = self.client.database("admin").run_command(only).await;
        let status = status.context("asking for the state of the server")?;
        commands_in(&status).context("no metrics in the state of the server")
    }

    /// Ends the server.
    pub(crate) async fn stop(self) -> Result<()> {
        // Not cleanly: nothing in it is needed any more.
        self.set.kill(0).await
    }
}

fn commands_in(status: &Document) -> Option<u64> {
    let metrics = status.get_document("metrics").ok()?;
    let metrics = metrics.get_document("commands").ok()?;
    let total = |name: &str| {
        let total = metrics.get_document(name).ok()?.get_i64("total").ok()?;
        u64::try_from(total).ok()
    };
    COMMANDS.into_iter().map(total).sum()
}

pub(crate) async fn client(uri: &str, pool_size: u32) -> Result<Client> {
    let mut options = ClientOptions::parse(uri)
        .await
        .context("a connection string")?;
    options.max_pool_size = Some(pool_size);
    options.retry_writes = Some(true);
    Client::with_options(options).context("a client of the database")
}

/// Waits for a majority and its journal, as the programs do.
pub(crate) fn durable(database: &Database) -> Collection<Document> {
    let concern = WriteConcern::builder()
        .w(mongodb::options::Acknowledgment::Majority)
        .journal(true)
        .build();
    let options = CollectionOptions::builder().write_concern(concern).build();
    database.collection_with_options(SPANS, options)
}

async fn store(uri: &str, database: &str, collection: &str) -> Result<MongoStore> {
    let options = MongoOptions {
        uri: uri.to_owned(),
        database: database.to_owned(),
        collection: collection.to_owned(),
        pool_size: POOL_SIZE,
        server_selection_timeout: Duration::from_secs(10),
        operation_timeout: Duration::from_mins(1),
        app_name: "sampler-bench".to_owned(),
    };
    MongoStore::connect(options).await.context("the store")
}

/// A database with spans.
#[derive(Debug)]
pub(crate) struct Spans {
    client: Client,
    database: Database,
    collection: &'static str,
    /// The connection string, with this database in its path.
    pub(crate) uri: String,
}

impl Spans {
    /// Starts spans of the targets of these numbers, by the programs' own store: `moments` says when each
    /// starts, and when it is due.
    pub(crate) async fn load_open(
        &self,
        numbers: Range<u64>,
        moments: impl Fn(u64) -> (i64, i64),
    ) -> Result<()> {
        let store = store(&self.uri, self.database.name(), self.collection).await?;
        let now = now_millis();
        let starts = numbers.map(|number| {
            let new = new_span(number, moments(number), now);
            async {
                let outcome = store.start(new?).await.context("starting a span")?;
                ensure!(outcome == StartOutcome::Opened, "a start is {outcome:?}");
                Ok(())
            }
        });
        stream::iter(starts)
            .buffer_unordered(LOADED_AT_ONCE)
            .try_collect()
            .await
    }

    /// Makes hidden spans visible to the programs, all at the same moment.
    pub(crate) async fn reveal(&mut self) -> Result<()> {
        let name = |collection: &str| format!("{}.{collection}", self.database.name());
        let command = doc! {
            "renameCollection": name(self.collection), "to": name(SPANS), "dropTarget": true,
        };
        let admin = self.client.database("admin");
        admin.run_command(command).await.context("renaming")?;
        self.collection = SPANS;
        Ok(())
    }

    /// How many spans that are not complete are due by a moment.
    pub(crate) async fn due_by(&self, moment: i64) -> Result<u64> {
        let filter = doc! {
            "processing.complete": false,
            "processing.partition": { "$in": (0..64).collect::<Vec<i32>>() },
            "processing.due_at": { "$lte": moment },
        };
        let spans: Collection<Document> = self.database.collection(SPANS);
        spans.count_documents(filter).await.context("counting")
    }

    /// The bytes of all indexes of the spans, as they lie on the disk.
    pub(crate) async fn index_bytes(&self) -> Result<f64> {
        let stats = self.database.run_command(doc! { "collStats": SPANS }).await;
        let stats = stats.context("the sizes of indexes")?;
        let total = stats
            .get("totalIndexSize")
            .context("no size of the indexes")?;
        match total {
            Bson::Int32(bytes) => Ok(f64::from(*bytes)),
            Bson::Int64(bytes) => Ok(*bytes as f64),
            Bson::Double(bytes) => Ok(*bytes),
            _ => bail!("the size of the indexes is {total}"),
        }
    }

    /// Removes the database.
    pub(crate) async fn drop(self) -> Result<()> {
        self.database.drop().await.context("removing a database")
    }
}

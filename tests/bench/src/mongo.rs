//! The database server.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use mongodb::Client;
use mongodb::bson::doc;
use sampler_testkit::mongod::{Options, ReplicaSet, find};
use sampler_testkit::target_dir;
use tempfile::TempDir;

/// The server's cache in GB: more than all that is written here.
const CACHE_GB: f32 = 2.0;
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
        eprintln!("mongod: {}", find()?.display());
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
        let client = Client::with_uri_str(set.uri()).await;
        let client = client.context("a client of the database")?;
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

    /// The connection string of a database in which there is nothing, not even an index.
    pub(crate) fn new_database(&self) -> String {
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        self.set.uri_of(&format!("bench_{number}"))
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

    /// Ends the server.
    pub(crate) async fn stop(self) -> Result<()> {
        // Not cleanly: nothing in it is needed any more.
        self.set.kill(0).await
    }
}

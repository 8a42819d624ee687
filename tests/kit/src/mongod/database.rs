//! A fresh database for each test.

use anyhow::{Context, Result, bail};
use mongodb::options::ClientOptions;
use mongodb::{Client, Database};
use tokio::sync::OnceCell;

use super::find::{DB_URI_VARIABLE, find};
use super::replica_set::{Options, ReplicaSet};
use crate::unique;

/// MongoDB lets the name of a database be 63 bytes long.
const NAME_MAX: usize = 63;

/// The server that the tests of this process share unless one is given to them.
static SHARED: OnceCell<ReplicaSet> = OnceCell::const_new();

/// A database that no other test uses, on a server that is given or started on first use.
#[derive(Debug)]
pub struct TestDatabase {
    uri: String,
    name: String,
    /// Whether the server stays when we go, so that we have to clean up.
    outlives_us: bool,
}

impl TestDatabase {
    /// A new database, with `label` in its name for debugging.
    ///
    /// # Panics
    ///
    /// When there is no server and none can be started: a test cannot go on without.
    pub async fn new(label: &str) -> Self {
        match Self::try_new(label).await {
            Ok(database) => database,
            Err(error) => panic!("no database for tests: {error:#}"),
        }
    }

    async fn try_new(label: &str) -> Result<Self> {
        let name = database_name(label);
        let given = std::env::var(DB_URI_VARIABLE).ok();
        let server = match &given {
            Some(uri) => uri.clone(),
            None => SHARED.get_or_try_init(start_shared).await?.uri(),
        };
        let uri = with_database(&server, &name).context(DB_URI_VARIABLE)?;
        Ok(Self {
            uri,
            name,
            outlives_us: given.is_some(),
        })
    }

    /// The connection string, with the database in its path.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// The name of the database.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The database in a new client of the driver. It belongs to the runtime that is running.
    ///
    /// # Panics
    ///
    /// When the connection string is not one the driver takes.
    pub async fn database(&self) -> Database {
        let client = client(&self.uri).await;
        let client = client.expect("a client for the test database");
        client.database(&self.name)
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        if !self.outlives_us {
            return;
        }
        let (uri, name) = (self.uri.clone(), self.name.clone());
        // A thread of its own: here may be inside a runtime, which must not be blocked on.
        let dropping = std::thread::spawn(move || drop_database(&uri, &name));
        let _ = dropping.join();
    }
}

/// Done as well as it can be: what is left over costs space on a test server, nothing else.
fn drop_database(uri: &str, name: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let Ok(runtime) = runtime else { return };
    let dropping = async {
        if let Ok(client) = client(uri).await {
            let _ = client.database(name).drop().await;
        }
    };
    let limit = std::time::Duration::from_secs(5);
    let _ = runtime.block_on(async { tokio::time::timeout(limit, dropping).await });
}

async fn start_shared() -> Result<ReplicaSet> {
    eprintln!("mongod: {}", find()?.display());
    ReplicaSet::start(Options::single()).await
}

async fn client(uri: &str) -> Result<Client> {
    let mut options = ClientOptions::parse(uri).await?;
    options.max_pool_size = Some(64);
    Ok(Client::with_options(options)?)
}

fn database_name(label: &str) -> String {
    let fits = |letter: char| {
        if letter.is_ascii_alphanumeric() {
            letter
        } else {
            '_'
        }
    };
    let mut name: String = format!("t{}_{label}", unique()).chars().map(fits).collect();
    name.truncate(NAME_MAX);
    name
}

/// The same connection string with another database in its path. It is taken apart only as far as needed: it may name
/// several hosts, which URL parsers do not know.
fn with_database(uri: &str, database: &str) -> Result<String> {
    let Some((scheme, rest)) = uri.split_once("://") else {
        bail!("not a connection string")
    };
    let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (hosts, path) = before.split_once('/').unwrap_or((before, ""));
    let mut options: Vec<String> = query.split_terminator('&').map(str::to_owned).collect();
    // Without this, a user would be looked for in the new database.
    if hosts.contains('@') && !query.contains("authSource=") {
        let users = if path.is_empty() { "admin" } else { path };
        options.push(format!("authSource={users}"));
    }
    let separator = if options.is_empty() { "" } else { "?" };
    let options = options.join("&");
    Ok(format!("{scheme}://{hosts}/{database}{separator}{options}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn puts_a_database_into_a_connection_string() {
        for (old, new) in [
            ("a:1", "a:1/new"),
            ("a:1,b:2/old?w=1", "a:1,b:2/new?w=1"),
            ("u:p@a/?tls=true", "u:p@a/new?tls=true&authSource=admin"),
            ("u:p@a/old", "u:p@a/new?authSource=old"),
            ("u:p@a/old?authSource=x", "u:p@a/new?authSource=x"),
        ] {
            let put = with_database(&format!("mongodb://{old}"), "new").unwrap();
            assert_eq!(put, format!("mongodb://{new}"));
        }
        assert!(with_database("a:1", "new").is_err());
    }
}

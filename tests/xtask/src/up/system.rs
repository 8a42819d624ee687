//! Everything that runs: MongoDB, the stand-in Abacus, the receiver, the workers.

use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use mongodb::bson::{Document, doc};
use mongodb::options::{CollectionOptions, ReadConcern};
use mongodb::{Client, Collection, Database};
use sampler_testkit::abacus::{Options as AbacusOptions, StandInAbacus};
use sampler_testkit::meter::{MeterOptions, StandInMeter};
use sampler_testkit::mongod::{Options as SetOptions, ReplicaSet, find};
use sampler_testkit::program::{Launch, RECEIVER, WORKER};
use sampler_testkit::{Program, target_dir};
use sampler_verify::Target;

use super::{Arguments, GRANULARITY, Upstream};

/// The database on a server of our own.
const DATABASE: &str = "sampler";
/// The unit of the memory that the example measures.
const UNITS: &str = "memory = \"MB\"";
/// A connection string in the environment; then no server is started.
const DB_URI_VARIABLE: &str = "DB_URI";
/// How long a program may take to stop.
const STOP_LIMIT: Duration = Duration::from_secs(15);
/// How old events may be, and for how long spans are kept: examples may be old.
const SLACK: &str = "366d";
const RETENTION: &str = "733d";

/// What the stand-in for a metering system promises.
const METER: MeterOptions = MeterOptions {
    horizon: Duration::from_mins(5),
    settles: Duration::from_secs(1),
};

/// The settings of a worker for the stand-in.
fn upstream_settings(meter: &StandInMeter) -> Vec<(&'static str, String)> {
    let seconds = |length: Duration| format!("{}s", length.as_secs());
    vec![
        ("SAMPLER_UPSTREAM", "cloudevents".to_owned()),
        ("SAMPLER_UPSTREAM_URL", meter.post_url()),
        ("SAMPLER_UPSTREAM_FIND_URL", meter.find_url()),
        ("SAMPLER_UPSTREAM_HORIZON", seconds(METER.horizon)),
        ("SAMPLER_UPSTREAM_SETTLES", seconds(METER.settles)),
    ]
}

/// What is up.
pub(super) struct System {
    /// Held for as long as everything is up.
    _lock: File,
    abacus: StandInAbacus,
    /// The upstream, where it is not Abacus.
    meter: Option<StandInMeter>,
    database: Database,
    pub(super) receiver: Program,
    worker: Program,
    uri: String,
    server: Option<ReplicaSet>,
}

impl System {
    pub(super) async fn start(arguments: &Arguments) -> Result<Self> {
        let folder = target_dir().join("up");
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let lock = lock(&folder)?;
        let (server, uri) = database_server(&folder).await?;
        let database = open_database(&uri).await?;
        prepare_database(&database, server.is_some(), arguments.keep).await?;
        let abacus = StandInAbacus::start(AbacusOptions::default()).await?;
        let meter = match arguments.upstream {
            Upstream::Abacus => None,
            Upstream::Cloudevents => Some(StandInMeter::start(METER).await?),
        };
        let common = |name: &str, port: u16| {
            let launch = Launch::new(name)
                .log_file(folder.join(name).with_extension("log"))
                .env("PORT", port.to_string())
                .env(DB_URI_VARIABLE, &uri)
                .env("COLLECTOR_URL", abacus.base_url())
                .env("PROVISIONING_URL", abacus.base_url())
                .env("SAMPLER_DIMENSION", GRANULARITY)
                .env("SAMPLER_UNITS", UNITS)
                .env("SAMPLER_SLACK_PAST_INTERVAL", SLACK)
                .env("SAMPLER_RETENTION", RETENTION)
                .env("PROCESS_SCHEDULE_INTERVAL", "100");
            let more = meter.iter().flat_map(upstream_settings);
            more.fold(launch, |launch, (name, value)| launch.env(name, value))
        };
        let receiver = common(RECEIVER, arguments.port).start().await?;
        // Any free one for each, or one after the other.
        let next = arguments.port.checked_add(1);
        let port = next.filter(|_| arguments.port > 0).unwrap_or_default();
        let worker = common(WORKER, port).start().await?;
        Ok(Self {
            _lock: lock,
            abacus,
            meter,
            database,
            receiver,
            worker,
            uri,
            server,
        })
    }

    /// How many usages count upstream.
    pub(super) fn counted(&self) -> u64 {
        match &self.meter {
            Some(meter) => meter.counted().len() as u64,
            None => self.abacus.counted_count(),
        }
    }

    /// Fails when a program has ended by itself.
    pub(super) fn check_alive(&self) -> Result<()> {
        for program in self.programs() {
            if let Some(code) = program.exit_code() {
                bail!("a program has ended with code {code}; see the logs under target/up");
            }
        }
        Ok(())
    }

    /// How many spans were stopped.
    pub(super) async fn stopped(&self) -> Result<u64> {
        let stopped = doc! { "end": { "$ne": null } };
        Ok(spans(&self.database).count_documents(stopped).await?)
    }

    /// How many of them are not complete.
    pub(super) async fn incomplete(&self) -> Result<u64> {
        let stopped = doc! { "end": { "$ne": null }, "processing.complete": { "$ne": true } };
        Ok(spans(&self.database).count_documents(stopped).await?)
    }

    /// Whether usages of an open span of this target reach beyond a moment.
    pub(super) async fn is_sampled_beyond(&self, target: &Target, moment: i64) -> Result<bool> {
        let mut beyond = doc! { "end": null, "processing.last_interval.end": { "$gt": moment } };
        for (name, id) in Target::FIELDS.into_iter().zip(target.ids()) {
            beyond.insert(format!("target.{name}"), id);
        }
        Ok(spans(&self.database).count_documents(beyond).await? > 0)
    }

    fn programs(&self) -> [&Program; 2] {
        [&self.worker, &self.receiver]
    }

    /// What to look at, in the order in which one would: the console, the proof, requests to try, and
    /// the addresses of everything that runs.
    pub(super) fn addresses(&self, verification: Option<&str>) -> String {
        let receiver = self.receiver.base_url();
        let verification = verification.map(|line| {
            format!(
                "2. Work out again whether all of this is billed to the millisecond:\n   {line}\n\n"
            )
        });
        format!(
            "\n1. Look at the console in a browser:\n   {receiver}/console\n\n{}\
             3. Send events, as in README.md (\"The first event\")\n\n\
             4. Ask with the command line (docs/cli.md):\n\
             export SAMPLER_URL={receiver}\n\
             target/debug/sampler spans --resource-id postgres\n\
             target/debug/sampler usages --resource-id postgres --group-by plan_id\n\
             target/debug/sampler backlog\n\
             target/debug/sampler suspended\n\n\
             What runs:\n\
             receiver  {receiver} (API: {receiver}/docs)\nworker    {}\nabacus    {} (a stand-in)\n\
             mongodb   {}\nlogs      target/up/*.log\n\n\
             Ctrl-C stops everything.",
            verification.unwrap_or_default(),
            self.worker.base_url(),
            self.abacus.base_url(),
            self.uri,
        )
    }

    /// Stops the programs as a platform would, and then the server.
    pub(super) async fn stop(self) -> Result<()> {
        for program in self.programs() {
            program.sigterm()?;
        }
        for program in self.programs() {
            if program.wait_exit(STOP_LIMIT).await.is_err() {
                eprintln!("a program does not stop; it is killed");
                program.kill()?;
            }
        }
        match self.server {
            Some(server) => server.stop().await,
            None => Ok(()),
        }
    }
}

/// Two at a time would share data and logs.
fn lock(folder: &Path) -> Result<File> {
    let path = folder.join("lock");
    let file = File::create(&path).with_context(|| format!("making {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => bail!(
            "`cargo xtask up` runs already in this folder: stop it with Ctrl-C where it was \
             started, or use the addresses it printed"
        ),
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("locking {}", path.display()))
        }
    }
}

/// Read as the receiver reads it: what a majority has.
fn spans(database: &Database) -> Collection<Document> {
    let options = CollectionOptions::builder().read_concern(ReadConcern::majority());
    database.collection_with_options("spans", options.build())
}

async fn database_server(folder: &Path) -> Result<(Option<ReplicaSet>, String)> {
    if let Ok(uri) = std::env::var(DB_URI_VARIABLE) {
        eprintln!("mongod: the one that {DB_URI_VARIABLE} names");
        return Ok((None, uri));
    }
    eprintln!("mongod: {}", find()?.display());
    let folder = Some(folder.join("mongod"));
    let options = SetOptions {
        folder,
        test_commands: false,
        ..SetOptions::single()
    };
    let server = ReplicaSet::start(options).await?;
    let uri = server.uri_of(DATABASE);
    Ok((Some(server), uri))
}

async fn open_database(uri: &str) -> Result<Database> {
    let client = Client::with_uri_str(uri).await.context(DB_URI_VARIABLE)?;
    let database = client.default_database();
    database.with_context(|| format!("{DB_URI_VARIABLE} names no database in its path"))
}

/// Starts afresh, unless earlier data is kept; but never removes data that is not its own.
async fn prepare_database(database: &Database, is_ours: bool, keep: bool) -> Result<()> {
    if keep {
        return Ok(());
    }
    if is_ours {
        return database
            .drop()
            .await
            .context("dropping the data of an earlier run");
    }
    let spans = spans(database).count_documents(doc! {}).await?;
    let name = database.name();
    ensure!(
        spans == 0,
        "{name} holds spans; name an empty database, or go on with --keep"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_one_beside_it_is_told_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let first = lock(folder.path()).unwrap();
        let error = lock(folder.path()).unwrap_err().to_string();
        assert!(error.contains("stop it with Ctrl-C"), "{error}");
        drop(first);
        assert!(lock(folder.path()).is_ok());
    }
}

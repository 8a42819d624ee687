//! Everything that runs: MongoDB, the stand-in Abacus, the receiver, the workers.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use chrono::DateTime;
use mongodb::bson::{Document, doc};
use mongodb::options::{CollectionOptions, ReadConcern};
use mongodb::{Client, Collection, Database};
use sampler_testkit::abacus::{Options as AbacusOptions, StandInAbacus};
use sampler_testkit::meter::{MeterOptions, StandInMeter};
use sampler_testkit::mongod::{Options as SetOptions, ReplicaSet, find};
use sampler_testkit::program::{Launch, RECEIVER, WORKER};
use sampler_testkit::{Program, now_millis, target_dir};
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
/// An hour in ms.
const HOUR: i64 = 3_600_000;
/// A day in ms.
const DAY: i64 = 86_400_000;
/// The receiver's slack by default, in ms.
const USUAL_SLACK: i64 = 61 * DAY;

/// How old events may be, when they are older than usual.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ExtendedLimits {
    slack: Option<i64>,
}

impl ExtendedLimits {
    pub(super) fn for_events(earliest: Option<i64>, now: i64) -> Self {
        let age = earliest.map_or(0, |earliest| now - earliest);
        // A day to spare: the replay takes its time.
        let needed = age + DAY;
        Self {
            slack: (needed > USUAL_SLACK).then_some(needed),
        }
    }

    /// Spans must be kept for longer than repeats of their events are accepted.
    fn environment(&self) -> Vec<(&'static str, String)> {
        let Some(slack) = self.slack else {
            return Vec::new();
        };
        vec![
            ("SAMPLER_SLACK_PAST_INTERVAL", slack.to_string()),
            ("SAMPLER_RETENTION", (2 * slack).to_string()),
        ]
    }
}

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
    pub(super) async fn start(arguments: &Arguments, limits: &ExtendedLimits) -> Result<Self> {
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
        let common = |name: &str, log: PathBuf, port: u16| {
            let mut launch = Launch::new(name)
                .log_file(log)
                .env("PORT", port.to_string());
            launch = launch.env(DB_URI_VARIABLE, &uri);
            launch = launch.env("COLLECTOR_URL", abacus.base_url());
            launch = launch.env("PROVISIONING_URL", abacus.base_url());
            launch = launch.env("SAMPLER_DIMENSION", GRANULARITY);
            launch = launch.env("PROCESS_SCHEDULE_INTERVAL", "100");
            let more = limits.environment().into_iter();
            more.chain(meter.iter().flat_map(upstream_settings))
                .fold(launch, |launch, (name, value)| launch.env(name, value))
        };
        let log = folder.join("receiver.log");
        let receiver = common(RECEIVER, log, arguments.port)
            .env("SAMPLER_UNITS", UNITS)
            .start()
            .await?;
        let port = next_port(arguments.port)?;
        let worker = common(WORKER, folder.join("worker.log"), port);
        let worker = worker.start().await?;
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

    /// The spans, as a majority has them.
    fn spans(&self) -> Collection<Document> {
        spans(&self.database)
    }

    /// How many spans were stopped.
    pub(super) async fn stopped(&self) -> Result<u64> {
        let stopped = doc! { "end": { "$ne": null } };
        Ok(self.spans().count_documents(stopped).await?)
    }

    /// How many of them are not complete.
    pub(super) async fn incomplete(&self) -> Result<u64> {
        let stopped = doc! { "end": { "$ne": null }, "processing.complete": { "$ne": true } };
        Ok(self.spans().count_documents(stopped).await?)
    }

    /// Whether usages of an open span of this target reach beyond a moment.
    pub(super) async fn is_sampled_beyond(&self, target: &Target, moment: i64) -> Result<bool> {
        let mut beyond = doc! { "end": null, "processing.last_interval.end": { "$gt": moment } };
        for (name, id) in Target::FIELDS.into_iter().zip(target.ids()) {
            beyond.insert(format!("target.{name}"), id);
        }
        Ok(self.spans().count_documents(beyond).await? > 0)
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
             3. Send events:\n{}\n\
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
            example(&receiver, now_millis()),
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

/// A start and a stop as commands, with the moments in words. They are of a resource of their own, so that
/// the verification of what was replayed still fits.
fn example(receiver: &str, now: i64) -> String {
    let event = |path: &str, moment: i64, more: &str| {
        format!(
            "curl -i {receiver}/v1/events/{path} -H 'content-type: application/json' -d '{{\n  \
             \"id\": \"{path}-{now}\", \"timestamp\": {moment},\n  \
             \"organization_id\": \"org-1\", \"space_id\": \"space-1\", \"consumer_id\": \"app-1\",\n  \
             \"resource_id\": \"rabbitmq\", \"plan_id\": \"small\", \"resource_instance_id\": \"queue-{now}\"{more}}}'"
        )
    };
    let (start, stop) = (now - 3 * HOUR, now - HOUR);
    let measures = ",\n  \"measured_usage\": [{\"measure\": \"memory\", \"quantity\": 512}]";
    format!(
        "A usage that started at {}, three hours ago:\n{}\n\n\
         It stopped at {}, an hour ago (the same command again is a repeat, and changes nothing):\n{}\n",
        in_words(start),
        event("start", start, measures),
        in_words(stop),
        event("stop", stop, ""),
    )
}

/// The port after that one; any free one where that is any.
fn next_port(port: u16) -> Result<u16> {
    match port {
        0 => Ok(0),
        _ => port
            .checked_add(1)
            .context("there is no port after the receiver's"),
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

/// A moment in UTC, as people read it.
fn in_words(millis: i64) -> String {
    let moment = DateTime::from_timestamp_millis(millis);
    moment.map_or_else(
        || millis.to_string(),
        |moment| moment.format("%F %T%.3f").to_string(),
    )
}

async fn database_server(folder: &Path) -> Result<(Option<ReplicaSet>, String)> {
    if let Ok(uri) = std::env::var(DB_URI_VARIABLE) {
        eprintln!("mongod: the one that {DB_URI_VARIABLE} names");
        return Ok((None, uri));
    }
    eprintln!("mongod: {}", find()?);
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
    fn only_old_events_need_extended_limits() {
        let now = 1000 * DAY;
        assert_eq!(
            ExtendedLimits::for_events(None, now),
            ExtendedLimits::default()
        );
        assert_eq!(
            ExtendedLimits::for_events(Some(now - 60 * DAY), now),
            ExtendedLimits::default()
        );
        let limits = ExtendedLimits::for_events(Some(now - 150 * DAY), now);
        assert_eq!(limits.slack, Some(151 * DAY));
        let retention = limits.environment()[1].1.parse::<i64>().unwrap();
        assert!(retention > 151 * DAY);
    }

    #[test]
    fn the_example_is_json_with_ids_and_moments_in_words() {
        let now = 1_795_188_714_000;
        let text = example("http://localhost:7070", now);
        let bodies: Vec<serde_json::Value> = text
            .split("-d '")
            .skip(1)
            .map(|rest| serde_json::from_str(rest.split('\'').next().unwrap()).unwrap())
            .collect();
        let timestamps: Vec<i64> = bodies
            .iter()
            .map(|body| body["timestamp"].as_i64().unwrap())
            .collect();
        assert_eq!(timestamps, [now - 3 * HOUR, now - HOUR]);
        assert_ne!(bodies[0]["id"], bodies[1]["id"]);
        assert!(
            text.contains("started at 2026-11-20 12:31:54.000"),
            "{text}"
        );
    }

    #[test]
    fn a_second_one_beside_it_is_told_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let first = lock(folder.path()).unwrap();
        let error = lock(folder.path()).unwrap_err().to_string();
        assert!(error.contains("stop it with Ctrl-C"), "{error}");
        drop(first);
        assert!(lock(folder.path()).is_ok());
    }

    #[test]
    fn ports_follow_each_other() {
        assert_eq!(next_port(7070).unwrap(), 7071);
        assert_eq!(next_port(0).unwrap(), 0);
        assert!(next_port(u16::MAX).is_err());
    }
}

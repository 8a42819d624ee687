//! One server process.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use mongodb::Client;
use mongodb::bson::{Document, doc};
use mongodb::options::{ClientOptions, ServerAddress};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::guard::Guarded;

/// How long a server may take until it listens. Generous: it may have to recover its journal.
const START_LIMIT: Duration = Duration::from_mins(1);
/// How long a server may take for a clean end.
const STOP_LIMIT: Duration = Duration::from_secs(20);
/// How long one command to one member may take to find its way.
const COMMAND_LIMIT: Duration = Duration::from_secs(5);

/// The message in a server's log that names its port.
const WAITING_FOR_CONNECTIONS: &str = "Waiting for connections";

/// What stays the same when a member is started again.
#[derive(Clone, Debug)]
pub(super) struct MemberOptions {
    pub(super) binary: PathBuf,
    /// The set that it is a member of, unless it is alone.
    pub(super) set_name: Option<String>,
    pub(super) folder: PathBuf,
    pub(super) test_commands: bool,
    pub(super) cache_gb: f32,
    /// Removed when the server is killed because its owner is gone.
    pub(super) remove: Option<PathBuf>,
    /// What else it is started with.
    pub(super) arguments: Vec<String>,
}

/// A member of a replica set: its process, if it runs, and the port that it keeps.
#[derive(Debug)]
pub(super) struct Member {
    options: MemberOptions,
    process: Option<Guarded>,
    pub(super) port: u16,
}

impl Member {
    /// Starts a server on any free port.
    pub(super) async fn start(options: MemberOptions) -> Result<Self> {
        let mut member = Self {
            options,
            process: None,
            port: 0,
        };
        member.run().await?;
        Ok(member)
    }

    /// Starts the process unless it runs.
    pub(super) async fn run(&mut self) -> Result<()> {
        if self
            .process
            .as_mut()
            .is_some_and(|process| process.exit_code().is_none())
        {
            return Ok(());
        }
        let data = self.options.folder.join("data");
        fs::create_dir_all(&data).with_context(|| format!("making {}", data.display()))?;
        let log = self.options.folder.join("mongod.log");
        // The port is read from the log, so an old one must not be there.
        let _ = fs::remove_file(&log);
        let errors = File::create(self.options.folder.join("stderr.log")).context("stderr.log")?;
        let arguments = self.arguments(&data, &log);
        let remove = self.options.remove.as_deref();
        let mut process = Guarded::spawn(&self.options.binary, &arguments, remove, |command| {
            command.stderr(Stdio::from(errors));
        })?;
        // The log goes to a file; what is still said here is not to block the server.
        drop(process.take_stdout());
        self.port = wait_for_port(&mut process, &log).await?;
        self.process = Some(process);
        Ok(())
    }

    fn arguments(&self, data: &Path, log: &Path) -> Vec<OsString> {
        let options = &self.options;
        let mut line = format!(
            "--port {} --bind_ip 127.0.0.1 --nounixsocket --oplogSize 64 \
             --wiredTigerCacheSizeGB {} --setParameter diagnosticDataCollectionEnabled=false",
            self.port, options.cache_gb
        );
        if options.test_commands {
            line += " --setParameter enableTestCommands=1";
        }
        let mut arguments: Vec<OsString> = vec!["--dbpath".into(), data.into()];
        arguments.extend(["--logpath".into(), log.into()]);
        if let Some(set_name) = &options.set_name {
            arguments.extend(["--replSet", set_name].map(OsString::from));
        }
        arguments.extend(line.split(' ').map(OsString::from));
        arguments.extend(options.arguments.iter().map(OsString::from));
        arguments
    }

    pub(super) fn pid(&self) -> Option<i32> {
        self.process.as_ref().map(Guarded::pid)
    }

    pub(super) fn kill(&mut self) -> Result<()> {
        match self.process.take() {
            Some(mut process) => process.kill(),
            None => Ok(()),
        }
    }

    pub(super) fn signal(&mut self, signal: Signal) -> Result<()> {
        self.process
            .as_mut()
            .context("the member does not run")?
            .signal(signal)
    }

    /// Ends the server cleanly if it takes the hint in time, or else by force.
    pub(super) async fn stop(&mut self) -> Result<()> {
        let Some(mut process) = self.process.take() else {
            return Ok(());
        };
        process.signal(Signal::SIGCONT)?;
        process.signal(Signal::SIGTERM)?;
        if process.wait_exit(STOP_LIMIT).await.is_err() {
            process.kill()?;
        }
        Ok(())
    }
}

async fn wait_for_port(process: &mut Guarded, log: &Path) -> Result<u16> {
    let begin = std::time::Instant::now();
    loop {
        if let Some(port) = listening_port(log) {
            return Ok(port);
        }
        if let Some(code) = process.exit_code() {
            let errors = fs::read_to_string(log.with_file_name("stderr.log")).unwrap_or_default();
            bail!("mongod has ended with code {code}:\n{errors}{}", tail(log));
        }
        if begin.elapsed() > START_LIMIT {
            bail!(
                "mongod does not listen after {START_LIMIT:?}:\n{}",
                tail(log)
            );
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The port that the server listens on, once it does. Its log has one JSON document per line.
fn listening_port(log: &Path) -> Option<u16> {
    let text = fs::read_to_string(log).ok()?;
    // Parsing is slow and the log long, so most lines are skipped by their text.
    let lines = text
        .lines()
        .filter(|line| line.contains(WAITING_FOR_CONNECTIONS));
    let mut ports = lines.filter_map(|line| {
        let entry: Value = serde_json::from_str(line).ok()?;
        let port = entry["attr"]["port"].as_u64()?;
        port.try_into().ok()
    });
    ports.next_back()
}

/// The last lines of a log, for an error message.
fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

/// A client that talks to this one server, whatever state it is in.
///
/// One is made for each use: a client belongs to the runtime it was made in, and each test has its
/// own, while a server may be shared by all.
pub(super) fn direct_client(port: u16) -> Result<Client> {
    let address = ServerAddress::Tcp {
        host: "127.0.0.1".to_owned(),
        port: Some(port),
    };
    let options = ClientOptions::builder()
        .hosts(vec![address])
        .direct_connection(true)
        .server_selection_timeout(COMMAND_LIMIT)
        .connect_timeout(COMMAND_LIMIT)
        .build();
    Client::with_options(options).context("making a client")
}

/// Runs one command against `admin` on a server, which is to answer soon.
pub(super) async fn command(port: u16, document: Document) -> Result<Document> {
    patient_command(port, document, COMMAND_LIMIT).await
}

/// Runs one command against `admin` on a server.
pub(super) async fn patient_command(
    port: u16,
    command: Document,
    limit: Duration,
) -> Result<Document> {
    let client = direct_client(port)?;
    let answer = tokio::spawn(async move {
        let answer = client.database("admin").run_command(command).await;
        client.shutdown().immediate(true).await;
        answer
    });
    // A frozen member accepts connections and never answers.
    let answer = tokio::time::timeout(limit, answer).await;
    Ok(answer
        .context("the member does not answer")?
        .context("asking the member")??)
}

/// Whether the server takes writes.
pub(super) async fn is_primary(port: u16) -> bool {
    let hello = command(port, doc! { "hello": 1 }).await;
    hello.is_ok_and(|answer| answer.get_bool("isWritablePrimary").unwrap_or(false))
}

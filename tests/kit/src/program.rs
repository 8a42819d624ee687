//! The real programs as child processes.

mod binaries;
mod output;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use reqwest::Client;
use serde_json::Value;

pub use binaries::{BIN_DIR_VARIABLE, CLI, RECEIVER, WORKER, binary, build, built_dir};
use output::Output;

use crate::guard::Guarded;
use crate::wait::{wait_until, within};

/// How long a program may take until it listens.
const LISTEN_LIMIT: Duration = Duration::from_secs(30);
/// How long it may take to say whether it is ready.
const HEALTH_LIMIT: Duration = Duration::from_secs(2);
/// How long a line that is certain may be on its way.
const LOG_LIMIT: Duration = Duration::from_mins(1);
/// The log line that says where a program listens, in its field `address`.
const LISTENING: &str = "listening";

/// What to start, and with what around it.
#[derive(Clone, Debug)]
pub struct Launch {
    name: String,
    path: Option<PathBuf>,
    args: Vec<OsString>,
    environment: Vec<(String, String)>,
    log_file: Option<PathBuf>,
}

impl Launch {
    /// The program of that name ([`RECEIVER`] or [`WORKER`]), with an environment that holds only
    /// `PATH`, `HOME`, `HOST`, `PORT=0` and `LOG_FORMAT=json`.
    pub fn new(name: &str) -> Self {
        let environment = vec![
            ("HOST".to_owned(), "127.0.0.1".to_owned()),
            ("PORT".to_owned(), "0".to_owned()),
            ("LOG_FORMAT".to_owned(), "json".to_owned()),
        ];
        let name = name.to_owned();
        Self {
            name,
            path: None,
            args: Vec::new(),
            environment,
            log_file: None,
        }
    }

    /// Another file than the one built here.
    #[must_use]
    pub fn path(mut self, path: impl Into<PathBuf>) -> Self {
        self.path = Some(path.into());
        self
    }

    /// One more argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// One more variable of the environment; a later value of a name wins.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    /// A file that gets what the program writes.
    #[must_use]
    pub fn log_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.log_file = Some(path.into());
        self
    }

    /// Starts the program and does not wait for anything.
    pub async fn spawn(self) -> Result<Program> {
        let path = match self.path {
            Some(path) => path,
            None => binary(&self.name).await?,
        };
        let output = Output::new(self.log_file.as_deref())?;
        let mut process = Guarded::spawn(&path, &self.args, None, |command| {
            command.env_clear();
            let kept = ["PATH", "HOME"].map(|name| (name, std::env::var_os(name)));
            command.envs(
                kept.into_iter()
                    .filter_map(|(name, value)| Some((name, value?))),
            );
            command.envs(self.environment);
            command.stderr(Stdio::piped());
        })?;
        output.follow(process.take_stdout());
        output.follow(process.take_stderr());
        Ok(Program {
            name: self.name,
            process: Mutex::new(process),
            output,
            address: None,
        })
    }

    /// Starts the program and waits until it listens.
    pub async fn start(self) -> Result<Program> {
        let mut program = self.spawn().await?;
        program.wait_listening().await?;
        Ok(program)
    }
}

/// A running program. It is killed when this value goes, or the process does.
#[derive(Debug)]
pub struct Program {
    name: String,
    process: Mutex<Guarded>,
    output: Output,
    address: Option<String>,
}

impl Program {
    async fn wait_listening(&mut self) -> Result<()> {
        let begin = Instant::now();
        loop {
            if let Some(address) = self.output.find(listening_address) {
                self.address = Some(address);
                return Ok(());
            }
            if let Some(code) = self.exit_code()
                && self.output.has_ended()
            {
                bail!(
                    "{} has ended with code {code}:\n{}",
                    self.name,
                    self.output.tail()
                );
            }
            if begin.elapsed() > LISTEN_LIMIT {
                bail!("{} does not listen:\n{}", self.name, self.output.tail());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn process(&self) -> MutexGuard<'_, Guarded> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address it has said to listen on, like `127.0.0.1:7070`; empty before it has.
    pub fn address(&self) -> &str {
        self.address.as_deref().unwrap_or_default()
    }

    /// The URL of its root, without a slash at the end.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.process().pid()
    }

    /// All lines it has written so far, to its output or its errors.
    pub fn lines(&self) -> Vec<String> {
        self.output.lines()
    }

    /// The lines that are JSON objects: its log.
    pub fn logs(&self) -> Vec<Value> {
        let parse = |line: &String| serde_json::from_str(line).ok().filter(Value::is_object);
        self.output.lines().iter().filter_map(parse).collect()
    }

    /// The log entries with that message.
    pub fn logs_of(&self, message: &str) -> Vec<Value> {
        let mut logs = self.logs();
        logs.retain(|entry| entry["message"] == message);
        logs
    }

    /// The log entries with that message, once there are this many: what a program does shows
    /// elsewhere before its line has come through the pipe.
    ///
    /// # Panics
    ///
    /// When there are fewer for a minute.
    pub async fn until_logged(&self, message: &str, count: usize) -> Vec<Value> {
        wait_until(message, LOG_LIMIT, async || {
            self.logs_of(message).len() >= count
        })
        .await;
        self.logs_of(message)
    }

    /// Waits until it says that it is ready.
    pub async fn until_ready(&self, limit: Duration) -> Result<()> {
        until_ready(&self.base_url(), limit).await
    }

    /// Asks it to stop.
    pub fn sigterm(&self) -> Result<()> {
        self.process().signal(Signal::SIGTERM)
    }

    /// Kills it with SIGKILL, and waits until it is gone.
    pub fn kill(&self) -> Result<()> {
        self.process().kill()
    }

    /// Stops it where it stands, with SIGSTOP.
    pub fn freeze(&self) -> Result<()> {
        self.process().signal(Signal::SIGSTOP)
    }

    /// Lets it go on after [`Program::freeze`].
    pub fn thaw(&self) -> Result<()> {
        self.process().signal(Signal::SIGCONT)
    }

    /// The exit code, once it has ended: 128 and the signal's number if a signal ended it.
    pub fn exit_code(&self) -> Option<i32> {
        self.process().exit_code()
    }

    /// Waits until it ends and all that it has written is here, and gives the exit code.
    pub async fn wait_exit(&self, limit: Duration) -> Result<i32> {
        let begin = Instant::now();
        loop {
            if let Some(code) = self.exit_code()
                && self.output.has_ended()
            {
                return Ok(code);
            }
            let rest = limit.checked_sub(begin.elapsed());
            rest.with_context(|| format!("{} has not ended within {limit:?}", self.name))?;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Waits until a program at this address says that it is ready.
pub async fn until_ready(base_url: &str, limit: Duration) -> Result<()> {
    let client = Client::builder().timeout(HEALTH_LIMIT).no_proxy().build()?;
    let url = format!("{base_url}/healthz/ready");
    within(&format!("{url} is answered 200"), limit, async || {
        let answer = client.get(&url).send().await;
        answer.is_ok_and(|answer| answer.status().is_success())
    })
    .await
}

/// The address in a log line that says so, with an address that can be dialled.
fn listening_address(line: &str) -> Option<String> {
    if !line.contains(LISTENING) {
        return None;
    }
    let entry: Value = serde_json::from_str(line).ok()?;
    if entry["message"] != LISTENING {
        return None;
    }
    let mut address: std::net::SocketAddr = entry["address"].as_str()?.parse().ok()?;
    if address.ip().is_unspecified() {
        address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
    }
    Some(address.to_string())
}

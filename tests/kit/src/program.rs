//! The real programs as child processes.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;
use reqwest::Client;
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::guard::Guarded;
use crate::{target_dir, wait_until, within, workspace_dir};

/// The receiver's name.
pub const RECEIVER: &str = "sampler-receiver";
/// The worker's name.
pub const WORKER: &str = "sampler-worker";
/// The command line's name.
pub const CLI: &str = "sampler";
/// Names a folder that holds the programs; then nothing is built.
pub const BIN_DIR_VARIABLE: &str = "SAMPLER_BIN_DIR";

/// The folder with the programs, which are built once per process unless one is given.
static FOLDER: OnceCell<PathBuf> = OnceCell::const_new();

/// Older lines of a program are forgotten.
const LINES_MAX: usize = 100_000;
/// How many lines are shown when a program fails.
const TAIL_LINES: usize = 40;

/// How long a program may take until it listens.
const LISTEN_LIMIT: Duration = Duration::from_secs(30);
/// How long it may take to say whether it is ready.
const HEALTH_LIMIT: Duration = Duration::from_secs(2);
/// How long a line that is certain may be on its way.
const LOG_LIMIT: Duration = Duration::from_mins(1);
/// The log line that says where a program listens, in its field `address`.
const LISTENING: &str = "listening";

/// The file of the program of that name.
pub async fn binary(name: &str) -> Result<PathBuf> {
    let folder = FOLDER.get_or_try_init(folder).await?;
    let path = folder.join(name);
    ensure!(path.is_file(), "{} is not there", path.display());
    Ok(path)
}

async fn folder() -> Result<PathBuf> {
    match std::env::var_os(BIN_DIR_VARIABLE) {
        Some(folder) => Ok(workspace_dir().join(folder)),
        None => tokio::task::spawn_blocking(build)
            .await
            .context("building the programs")?,
    }
}

/// Builds the programs and the command line, and gives the folder that they are in. With the features
/// of the whole workspace, as the tests and xtask are built: so nothing is built twice.
pub fn build() -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--workspace"]);
    // On a terminal cargo shows how far it is: the first time takes minutes.
    if !std::io::stderr().is_terminal() {
        command.arg("--quiet");
    }
    for program in [RECEIVER, WORKER, CLI] {
        command.args(["--bin", program]);
    }
    let status = command.current_dir(workspace_dir()).status();
    let status = status.context("starting cargo")?;
    ensure!(status.success(), "cargo build of the programs: {status}");
    Ok(built_dir())
}

/// The folder in which cargo puts the programs that it builds.
pub fn built_dir() -> PathBuf {
    target_dir().join("debug")
}

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
            if let Some(code) = self.ended() {
                let tail = self.output.tail();
                bail!("{} has ended with code {code}:\n{tail}", self.name);
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

    /// The exit code, once it has ended and all that it has written is here.
    fn ended(&self) -> Option<i32> {
        self.exit_code().filter(|_| self.output.has_ended())
    }

    /// Waits until it ends and all that it has written is here, and gives the exit code.
    pub async fn wait_exit(&self, limit: Duration) -> Result<i32> {
        let end = format!("the end of {}", self.name);
        within(&end, limit, async || self.ended().is_some()).await?;
        self.ended().context("it has ended")
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

/// The lines that a program writes, which may be read while they come.
#[derive(Clone, Debug)]
struct Output {
    collected: Arc<Mutex<Collected>>,
}

#[derive(Debug)]
struct Collected {
    lines: VecDeque<String>,
    file: Option<File>,
    /// Pipes that have not ended yet.
    pipes: usize,
}

impl Output {
    /// With a file that gets all lines too.
    fn new(file: Option<&Path>) -> Result<Self> {
        let create = |path: &Path| {
            File::create(path).with_context(|| format!("creating {}", path.display()))
        };
        let file = file.map(create).transpose()?;
        let collected = Collected {
            lines: VecDeque::new(),
            file,
            pipes: 0,
        };
        Ok(Self {
            collected: Arc::new(Mutex::new(collected)),
        })
    }

    /// Collects from a pipe until it ends. A thread: pipes of child processes block.
    fn follow(&self, pipe: Option<impl BufRead + Send + 'static>) {
        let Some(pipe) = pipe else { return };
        let output = self.clone();
        self.collected().pipes += 1;
        std::thread::spawn(move || {
            for line in pipe.split(b'\n').map_while(Result::ok) {
                output.push(String::from_utf8_lossy(&line).into_owned());
            }
            output.collected().pipes -= 1;
        });
    }

    /// Whether all that was ever written is here.
    fn has_ended(&self) -> bool {
        self.collected().pipes == 0
    }

    fn push(&self, line: String) {
        let mut collected = self.collected();
        if let Some(file) = &mut collected.file {
            let _ = writeln!(file, "{line}");
        }
        if collected.lines.len() >= LINES_MAX {
            collected.lines.pop_front();
        }
        collected.lines.push_back(line);
    }

    fn collected(&self) -> MutexGuard<'_, Collected> {
        self.collected
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn lines(&self) -> Vec<String> {
        self.collected().lines.iter().cloned().collect()
    }

    /// The first thing that `pick` finds in a line.
    fn find<T>(&self, pick: impl Fn(&str) -> Option<T>) -> Option<T> {
        self.collected().lines.iter().find_map(|line| pick(line))
    }

    fn tail(&self) -> String {
        let lines = self.lines();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }
}

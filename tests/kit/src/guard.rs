//! Child processes that never outlive the process which started them.
//!
//! Between us and the child stands a small shell. It holds the reading end of a pipe whose only
//! writing end is ours: when we go, by whatever signal, the pipe ends and the shell kills the child.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// `$1` is a folder to remove at the end of the pipe (or empty); the rest is the command.
///
/// The inner shell says its process id and becomes the command. The watcher shuts out SIGTERM before
/// it kills, so that the outer shell, which ends the watcher once the child is gone, waits for the
/// folder to be removed.
const SCRIPT: &str = r#"
folder=$1
shift
/bin/sh -c 'echo "$$"; exec "$@"' sh "$@" </dev/null &
child=$!
exec 3<&0 >/dev/null 2>&1
(
    read -r _ <&3
    trap '' TERM
    kill -KILL "$child"
    tries=0
    while [ -n "$folder" ] && [ -e "$folder" ] && [ "$tries" -lt 50 ]; do
        rm -rf "$folder" || sleep 0.1
        tries=$((tries + 1))
    done
) &
watcher=$!
wait "$child"
status=$?
kill -TERM "$watcher"
wait "$watcher"
exit "$status"
"#;

/// A running child with its guard.
#[derive(Debug)]
pub struct Guarded {
    shell: Child,
    lifeline: Option<ChildStdin>,
    stdout: Option<BufReader<ChildStdout>>,
    pid: Pid,
}

impl Guarded {
    /// Starts `program`. `adjust` may set the environment and where errors go.
    ///
    /// With `remove`, that folder is removed when the child is killed by its guard.
    pub fn spawn(
        program: &Path,
        args: &[OsString],
        remove: Option<&Path>,
        adjust: impl FnOnce(&mut Command),
    ) -> Result<Self> {
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(SCRIPT).arg("guard");
        command
            .arg(remove.map_or(OsStr::new(""), Path::as_os_str))
            .arg(program)
            .args(args);
        adjust(&mut command);
        // A group of its own: Ctrl-C at a terminal is for us to hear and to pass on.
        command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut shell = command.spawn().context("starting the guard shell")?;
        let lifeline = shell.stdin.take();
        let mut stdout = BufReader::new(shell.stdout.take().context("the guard's output")?);
        let mut line = String::new();
        stdout
            .read_line(&mut line)
            .context("reading the child's process id")?;
        let pid = line
            .trim()
            .parse()
            .map(Pid::from_raw)
            .context("the child's process id")?;
        Ok(Self {
            shell,
            lifeline,
            stdout: Some(stdout),
            pid,
        })
    }

    /// The process id of the child itself.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// What the child writes to its standard output; to be taken once.
    pub fn take_stdout(&mut self) -> Option<BufReader<ChildStdout>> {
        self.stdout.take()
    }

    /// What the child writes to its standard error, if `adjust` has made that a pipe; to be taken
    /// once.
    pub fn take_stderr(&mut self) -> Option<BufReader<ChildStderr>> {
        self.shell.stderr.take().map(BufReader::new)
    }

    /// The exit code, once the child has ended: 128 and the signal's number if a signal ended it.
    pub fn exit_code(&mut self) -> Option<i32> {
        let status = self.shell.try_wait().ok().flatten()?;
        status.code()
    }

    /// Sends a signal to the child, if it still lives.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        if self.exit_code().is_some() {
            return Ok(());
        }
        kill(self.pid, signal).with_context(|| format!("sending {signal} to {}", self.pid))
    }

    /// Kills the child with SIGKILL and waits until it is gone. Its folder stays.
    pub fn kill(&mut self) -> Result<()> {
        self.signal(Signal::SIGKILL)?;
        self.shell.wait().context("waiting for the guard")?;
        Ok(())
    }

    /// Waits for the child to end by itself.
    pub async fn wait_exit(&mut self, limit: Duration) -> Result<i32> {
        let begin = Instant::now();
        loop {
            if let Some(code) = self.exit_code() {
                return Ok(code);
            }
            let rest = limit.checked_sub(begin.elapsed());
            rest.with_context(|| format!("process {} has not ended in {limit:?}", self.pid))?;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // The end of the lifeline makes the guard kill the child and remove its folder.
        self.lifeline = None;
        let _ = self.shell.wait();
    }
}

//! A service that runs from an image.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::engine::Engine;

/// How long a service may take to stop: as long as compose.yaml gives it.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// A service, by the buildah that runs it.
pub(super) struct Service {
    image: String,
    buildah: Child,
}

impl Service {
    /// Starts the program of an image, with this environment and these arguments.
    pub(super) fn start(
        engine: &Engine,
        image: &str,
        environment: &[(&str, String)],
        arguments: &[&str],
    ) -> Result<Self> {
        let (container, entrypoint) = (engine.container(image)?, engine.entrypoint(image)?);
        let mut command = engine.buildah(&["run", "--isolation", "chroot"]);
        for (name, value) in environment {
            command.args(["--env", &format!("{name}={value}")]);
        }
        command
            .args([&container, "--"])
            .args(entrypoint)
            .args(arguments);
        let log = engine.log(image)?;
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let buildah = Command::from(command).kill_on_drop(true).spawn();
        let image = image.to_owned();
        let buildah = buildah.with_context(|| format!("starting {image}"))?;
        Ok(Self { image, buildah })
    }

    /// Asks it to stop, as an engine does, and waits until it has.
    pub(super) async fn stop(mut self) -> Result<()> {
        let image = &self.image;
        let Some(buildah) = self.buildah.id() else {
            return Ok(());
        };
        let program = last_descendant(buildah);
        kill(Pid::from_raw(i32::try_from(program)?), Signal::SIGTERM)
            .with_context(|| format!("stopping {image}"))?;
        let Ok(ended) = timeout(STOP_LIMIT, self.buildah.wait()).await else {
            kill(Pid::from_raw(i32::try_from(program)?), Signal::SIGKILL)?;
            anyhow::bail!("{image} has not stopped within {STOP_LIMIT:?}");
        };
        let status = ended?;
        ensure!(status.success(), "{image} ended with {status}");
        Ok(())
    }
}

/// The process that was started last by the last of those that a process has started: buildah starts
/// others that start the program.
fn last_descendant(process: u32) -> u32 {
    children(process)
        .last()
        .map_or(process, |child| last_descendant(*child))
}

fn children(process: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{process}/task"))
        .into_iter()
        .flatten();
    let lists = threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let texts: Vec<String> = lists.collect();
    let numbers = texts.iter().flat_map(|list| list.split_whitespace());
    numbers.filter_map(|number| number.parse().ok()).collect()
}

//! `up`: all of Sampler on this machine, with example events.

mod events;
mod system;

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use sampler_testkit::program::{CLI, binary};
use sampler_testkit::{now_millis, workspace_dir};
use tokio::process::Command;

use events::Events;
use system::System;

/// What the repository brings to replay.
const EXAMPLE: &str = "examples/events.ndjson";
/// The unit of time that no usage crosses a boundary of.
const GRANULARITY: &str = "hour";
/// How long nothing may happen before it is taken that nothing will.
const STALL_LIMIT: Duration = Duration::from_mins(1);
/// How long a late stop waits for usages that reach beyond it.
const OVERTAKE_LIMIT: Duration = Duration::from_secs(30);

/// The arguments of `up`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Ends after the table of `sampler verify`, and fails if what was billed differs from what was used.
    #[arg(long)]
    once: bool,
    /// A file of events (NDJSON) or spans (CSV) instead of the example; see examples/README.md.
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// Moves all events in time, so that the last lies this long ago: 1h unless said.
    #[arg(long, value_name = "AGO", num_args = 0..=1, default_missing_value = "1h")]
    shift: Option<String>,
    /// What takes the usages: a stand-in for Abacus, or one for a metering system that takes CloudEvents,
    /// recognises repeats for a while, forgets, and answers finds.
    #[arg(long, default_value = "abacus", value_enum)]
    upstream: Upstream,
    /// Goes on with the data of an earlier run.
    #[arg(long)]
    keep: bool,
    /// The receiver's port, the worker has the next one; 0 is any free one for each.
    #[arg(long, default_value_t = 7070, value_name = "PORT")]
    port: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Upstream {
    Abacus,
    Cloudevents,
}

/// Runs the command.
pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    let now = now_millis();
    let events = read_events(&arguments, now)?;
    let system = System::start(&arguments).await?;
    let result = tokio::select! {
        result = show(&arguments, &system, events) => result,
        _ = tokio::signal::ctrl_c() => Ok(()),
    };
    eprintln!("stopping");
    system.stop().await?;
    result
}

/// The events to replay. With `--keep`, the example is there already, from the run that is continued.
fn read_events(arguments: &Arguments, now: i64) -> Result<Option<Events>> {
    let path = match &arguments.replay {
        Some(path) => path.clone(),
        None if arguments.keep => return Ok(None),
        None => workspace_dir().join(EXAMPLE),
    };
    Events::read(path, now, arguments.shift.as_deref()).map(Some)
}

/// Replays, shows the table, and then stays unless it is not to.
async fn show(arguments: &Arguments, system: &System, events: Option<Events>) -> Result<()> {
    let mut again = None;
    if let Some(events) = events {
        let cli = Cli::new(&system.receiver.base_url()).await?;
        let mut is_right = replay(system, &cli, &events).await?;
        // The verifier must know all events behind the spans: not those of an earlier run.
        if !arguments.keep {
            let words = cli.verify(&events.path)?;
            let line = format!("{} {}", cli.program.display(), words.join(" "));
            println!("{line}");
            is_right &= cli.run(&words).await?.success();
            again = Some(line);
        }
        ensure!(
            is_right || !arguments.once,
            "an event was refused, or what was billed is not what was used"
        );
    }
    if arguments.once {
        return Ok(());
    }
    println!("{}", system.addresses(again.as_deref()));
    // Until Ctrl-C, which the caller waits for.
    std::future::pending().await
}

/// Sends events and waits until they are sampled. Returns whether all were taken.
async fn replay(system: &System, cli: &Cli, events: &Events) -> Result<bool> {
    let mut is_taken = true;
    for (number, part) in events.parts()?.iter().enumerate() {
        if number > 0 {
            wait_until_overtaken(system, events).await?;
        }
        is_taken &= cli.send(part).await?.success();
    }
    wait_for_completion(system).await?;
    Ok(is_taken)
}

/// Waits until usages reach beyond each late stop.
async fn wait_until_overtaken(system: &System, events: &Events) -> Result<()> {
    let begin = Instant::now();
    for (target, moment) in &events.late {
        while !system.is_sampled_beyond(target, *moment).await? {
            if begin.elapsed() > OVERTAKE_LIMIT {
                eprintln!("a late stop is sent in time: sampling does not overtake it");
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    Ok(())
}

/// Waits until all stopped spans are complete, or nothing moves any more.
async fn wait_for_completion(system: &System) -> Result<()> {
    let stopped = system.stopped().await?;
    let mut before = None;
    let mut moved_at = Instant::now();
    loop {
        let (incomplete, usages) = (system.incomplete().await?, system.counted());
        if before != Some((incomplete, usages)) {
            (before, moved_at) = (Some((incomplete, usages)), Instant::now());
            let complete = stopped.saturating_sub(incomplete);
            eprintln!("{complete} of {stopped} stopped spans are complete; usages: {usages}");
        }
        if incomplete == 0 {
            return Ok(());
        }
        if moved_at.elapsed() > STALL_LIMIT {
            eprintln!("nothing moves any more");
            return Ok(());
        }
        system.check_alive()?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// The command line, as somebody uses it who has nothing set, and the receiver.
#[derive(Debug)]
struct Cli {
    program: PathBuf,
    receiver: String,
}

impl Cli {
    async fn new(receiver: &str) -> Result<Self> {
        Ok(Self {
            program: binary(CLI).await?,
            receiver: receiver.to_owned(),
        })
    }

    /// Sends a file, and prints the outcome. Its status is 1 if an event was refused.
    async fn send(&self, file: &Path) -> Result<ExitStatus> {
        let file = text(file)?;
        let words = ["events", "send", &file, "--url", &self.receiver];
        self.run(&words.map(str::to_owned)).await
    }

    /// The words of `sampler verify` for a file.
    fn verify(&self, file: &Path) -> Result<Vec<String>> {
        let file = text(file)?;
        let words = ["verify", &file, "--url", &self.receiver];
        let how = ["--granularity", GRANULARITY, "--strict", "--all"];
        Ok(words.into_iter().chain(how).map(str::to_owned).collect())
    }

    /// Runs it, and prints what it prints.
    async fn run(&self, words: &[String]) -> Result<ExitStatus> {
        let mut command = Command::new(&self.program);
        command.args(words).stdin(Stdio::null());
        // No token and no address of this terminal is meant for it.
        let variables = std::env::vars_os().map(|(name, _)| name);
        for name in variables.filter(|name| name.to_string_lossy().starts_with("SAMPLER_")) {
            command.env_remove(name);
        }
        let status = command.kill_on_drop(true).status().await;
        status.with_context(|| format!("starting {}", self.program.display()))
    }
}

fn text(file: &Path) -> Result<String> {
    let name = file.to_str().context("the name of the file is no text")?;
    Ok(name.to_owned())
}

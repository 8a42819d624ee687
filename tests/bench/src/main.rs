//! Measures the receiver and the worker on this machine, on a MongoDB of its own: `cargo xtask bench`.
//! See `docs/performance.md` for what each figure means.

mod baseline;
mod event;
mod histogram;
mod load;
mod mongo;
mod process;
mod programs;
mod report;
mod scale;
mod scenario;

use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result};
use chrono::DateTime;
use clap::{Parser, Subcommand};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sampler_testkit::{now_millis, workspace_dir};

use mongo::Server;
use report::{Section, keep, markdown};
use scale::{Part, Scale, ScaleArguments};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench", about, version)]
struct Cli {
    #[command(subcommand)]
    command: Option<Hidden>,
    #[command(flatten)]
    scale: ScaleArguments,
}

/// What our own program is when it is not the one that measures.
#[derive(Debug, Subcommand)]
enum Hidden {
    /// Takes events, each with one write.
    #[command(name = programs::ONE_WRITE, hide = true)]
    OneWrite,
    /// A worker as it is.
    #[command(name = programs::WITH_LEDGER, hide = true)]
    WithLedger,
    /// A worker that writes no entries.
    #[command(name = programs::WITHOUT_LEDGER, hide = true)]
    WithoutLedger,
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match &cli.command {
        Some(Hidden::OneWrite) => baseline::server::one_write().await,
        Some(Hidden::WithLedger) => Box::pin(baseline::worker::work(true)).await,
        Some(Hidden::WithoutLedger) => Box::pin(baseline::worker::work(false)).await,
        None => tokio::select! {
            result = measure(cli.scale.scale()) => result,
            _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("stopped before the end")),
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(scale: Scale) -> Result<()> {
    let begin = Instant::now();
    raise_file_limit()?;
    let server = Server::start().await?;
    let origin = origin(&server, &scale)?;
    let sections = Box::pin(run(&server, &scale)).await;
    server.stop().await?;
    let report = markdown(&origin, &sections?);
    println!("{report}");
    let path = keep(&report)?;
    eprintln!(
        "{:.0} s; see {}",
        begin.elapsed().as_secs_f64(),
        path.display()
    );
    Ok(())
}

async fn run(server: &Server, scale: &Scale) -> Result<Vec<Section>> {
    use scenario::{against, beside, events, midnight, worker};
    let mut sections = Vec::new();
    for part in &scale.parts {
        eprintln!("{part:?}");
        sections.push(match part {
            Part::Receiver => Box::pin(events::run(server, scale)).await?,
            Part::Fairness => Box::pin(beside::fairness(server, scale)).await?,
            Part::Batches => Box::pin(beside::batches(server, scale)).await?,
            Part::Worker => Box::pin(worker::run(server, scale)).await?,
            Part::Midnight => Box::pin(midnight::run(server, scale)).await?,
            Part::Against => Box::pin(against::run(server, scale)).await?,
            Part::Ledger => Box::pin(worker::ledger(server, scale)).await?,
            Part::Upstreams => Box::pin(worker::upstreams(server, scale)).await?,
        });
    }
    Ok(sections)
}

/// A thousand connections are two thousand files, and more than some systems give unasked.
fn raise_file_limit() -> Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).context("the limit of open files")?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).context("raising the limit of open files")
}

/// When and on what figures are taken.
fn origin(server: &Server, scale: &Scale) -> Result<String> {
    let now = DateTime::from_timestamp_millis(now_millis()).context("the clock")?;
    Ok(format!(
        "Taken {} at commit `{}`, scale {}, MongoDB {}, {}.",
        now.format("%Y-%m-%d %H:%M UTC"),
        commit(),
        scale.name,
        server.version,
        process::machine(),
    ))
}

/// The commit that is checked out, with a sign where the tree has changes.
fn commit() -> String {
    let output = Command::new("git")
        .args(["describe", "--always", "--dirty=+", "--exclude=*"])
        .current_dir(workspace_dir())
        .output();
    let text = output.ok().filter(|output| output.status.success());
    let text = text.and_then(|output| String::from_utf8(output.stdout).ok());
    text.map_or("unknown".to_owned(), |text| text.trim().to_owned())
}

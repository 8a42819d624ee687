//! Measures the receiver and the worker on this machine, beside what they are compared with, on a
//! MongoDB of its own: `cargo xtask bench`. See `docs/performance.md` for what each figure means.

mod baseline;
mod data;
mod document;
mod event;
mod histogram;
mod load;
mod mongo;
mod process;
mod programs;
mod report;
mod scale;
mod scenario;
mod template;

use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result};
use chrono::DateTime;
use clap::{Parser, Subcommand};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sampler_testkit::{now_millis, workspace_dir};

use data::{Data, Taken};
use mongo::Server;
use report::markdown::markdown;
use report::output;
use scale::{Part, Scale, ScaleArguments};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench", about, version)]
struct Cli {
    #[command(subcommand)]
    command: Option<Hidden>,
    #[command(flatten)]
    scale: ScaleArguments,
    /// Writes the figures into the documents, too: the data and the generated section of
    /// docs/performance.md. Parts that are not run stay what they were.
    #[arg(long)]
    write_docs: bool,
    /// Measures nothing; makes the documents anew from the figures that are committed.
    #[arg(long, conflicts_with = "write_docs")]
    render: bool,
}

/// What our own program is when it is not the one that measures.
#[derive(Debug, Subcommand)]
enum Hidden {
    /// Takes events, each with one write.
    #[command(name = programs::ONE_WRITE, hide = true)]
    OneWrite,
    /// Takes events, and does nothing with them.
    #[command(name = programs::HTTP_ALONE, hide = true)]
    HttpAlone,
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
    let result = match (&cli.command, cli.render) {
        (Some(Hidden::OneWrite), _) => baseline::server::one_write().await,
        (Some(Hidden::HttpAlone), _) => baseline::server::http_alone().await,
        (Some(Hidden::WithLedger), _) => baseline::worker::work(true).await,
        (Some(Hidden::WithoutLedger), _) => baseline::worker::work(false).await,
        (None, true) => output::render_published(),
        (None, false) => tokio::select! {
            result = measure(&cli) => result,
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

async fn measure(cli: &Cli) -> Result<()> {
    let begin = Instant::now();
    raise_file_limit()?;
    let scale = cli.scale.scale();
    let server = Server::start().await?;
    let data = Box::pin(run(&server, &scale)).await;
    server.stop().await?;
    let data = data?;
    println!("{}", markdown(&data, 2));
    let folder = output::keep(&data)?;
    eprintln!(
        "{:.0} s; see {}",
        begin.elapsed().as_secs_f64(),
        folder.display()
    );
    if cli.write_docs {
        output::publish(data)?;
    }
    Ok(())
}

async fn run(server: &Server, scale: &Scale) -> Result<Data> {
    use scenario::{
        batches, fairness, growth, ledger, memory, midnight, reading, receiver, worker,
    };
    Ok(Data {
        receiver: part(
            Part::Receiver,
            server,
            scale,
            Box::pin(receiver::run(server, scale)),
        )
        .await?,
        fairness: part(
            Part::Fairness,
            server,
            scale,
            Box::pin(fairness::run(server, scale)),
        )
        .await?,
        batches: part(
            Part::Batches,
            server,
            scale,
            Box::pin(batches::run(server, scale)),
        )
        .await?,
        reading: part(
            Part::Reading,
            server,
            scale,
            Box::pin(reading::run(server, scale)),
        )
        .await?,
        worker: part(
            Part::Worker,
            server,
            scale,
            Box::pin(worker::run(server, scale)),
        )
        .await?,
        midnight: part(
            Part::Midnight,
            server,
            scale,
            Box::pin(midnight::run(server, scale)),
        )
        .await?,
        growth: part(
            Part::Growth,
            server,
            scale,
            Box::pin(growth::run(server, scale)),
        )
        .await?,
        ledger: part(
            Part::Ledger,
            server,
            scale,
            Box::pin(ledger::run(server, scale)),
        )
        .await?,
        memory: part(
            Part::Memory,
            server,
            scale,
            Box::pin(memory::run(server, scale)),
        )
        .await?,
    })
}

/// The figures of a part, if it is to be run.
async fn part<T>(
    part: Part,
    server: &Server,
    scale: &Scale,
    run: impl Future<Output = Result<T>>,
) -> Result<Option<data::Part<T>>> {
    if !scale.parts.contains(&part) {
        return Ok(None);
    }
    eprintln!("{part:?}");
    let taken = taken(server, scale)?;
    let figures = run.await?;
    Ok(Some(data::Part { taken, figures }))
}

/// A thousand connections are two thousand files, and more than some systems give unasked.
fn raise_file_limit() -> Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).context("the limit of open files")?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).context("raising the limit of open files")
}

fn taken(server: &Server, scale: &Scale) -> Result<Taken> {
    let now = DateTime::from_timestamp_millis(now_millis()).context("the clock")?;
    Ok(Taken {
        at: now.format("%Y-%m-%d %H:%M UTC").to_string(),
        commit: commit(),
        scale: scale.name.to_owned(),
        server: server.version.clone(),
        machine: process::machine(),
    })
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

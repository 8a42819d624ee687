//! Measures the receiver and the worker on this machine, on a MongoDB of its own: `cargo xtask bench`.
//! See `docs/performance.md` for what each figure means.

mod event;
mod histogram;
mod load;
mod mongo;
mod part;
mod process;
mod programs;
mod report;

use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result};
use chrono::DateTime;
use clap::{Parser, ValueEnum};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sampler_testkit::{now_millis, workspace_dir};

use mongo::Server;
use part::{Part, Sizes};
use programs::Build;
use report::{Figures, keep, markdown};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench", about, version)]
struct Cli {
    /// In some minutes.
    #[arg(long)]
    quick: bool,
    /// As little as there can be: whether it works, not how fast.
    #[arg(long, hide = true, conflicts_with = "quick")]
    smoke: bool,
    /// Only this part; may be repeated.
    #[arg(long, value_enum)]
    only: Vec<Part>,
    /// Measures the programs of another commit, too, by turns.
    #[arg(long, value_name = "COMMIT")]
    against: Option<String>,
    /// How often everything is measured; medians count.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = tokio::select! {
        result = measure(&cli) => result,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("stopped before the end")),
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
    let server = Server::start().await?;
    let sizes = match (cli.smoke, cli.quick) {
        (true, _) => Sizes::SMOKE,
        (_, true) => Sizes::QUICK,
        _ => Sizes::USUAL,
    };
    let origin = origin(&server, cli)?;
    let rounds = Box::pin(rounds(&server, &sizes, cli)).await;
    server.stop().await?;
    let report = markdown(&origin, &rounds?);
    println!("{report}");
    let path = keep(&report)?;
    let seconds = begin.elapsed().as_secs();
    eprintln!("{seconds} s; see {}", path.display());
    Ok(())
}

/// In each round, the builds come one after the other in each part, and which goes first changes: so
/// whatever else the machine does, and however fast it is just then, meets all alike.
async fn rounds(server: &Server, sizes: &Sizes, cli: &Cli) -> Result<Vec<[Figures; 2]>> {
    let parts = match &cli.only[..] {
        [] => Part::value_variants(),
        only => only,
    };
    let builds: &[Build] = match &cli.against {
        Some(_) => &[Build::Other, Build::Own],
        None => &[Build::Own],
    };
    let mut rounds = Vec::new();
    for round in 0..cli.rounds {
        let mut figures = [Figures::new(), Figures::new()];
        for part in parts {
            for turn in 0..builds.len() {
                let build = builds[(turn + round) % builds.len()];
                let found = Box::pin(part.run(server, sizes, build)).await?;
                eprintln!("  {part:?}, {build:?}: {found:?}");
                figures[build as usize].extend(found);
            }
        }
        rounds.push(figures);
    }
    Ok(rounds)
}

/// Three thousand connections are six thousand files, and more than some systems give unasked.
fn raise_file_limit() -> Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).context("the limit of open files")?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).context("raising the limit of open files")
}

/// When and on what figures are taken.
fn origin(server: &Server, cli: &Cli) -> Result<String> {
    let now = DateTime::from_timestamp_millis(now_millis()).context("the clock")?;
    let against = cli.against.as_ref();
    let against = against.map_or(String::new(), |commit| format!(" beside `{commit}`"));
    Ok(format!(
        "Taken {} at commit `{}`{against}, medians of {} rounds, MongoDB {}, {}.",
        now.format("%Y-%m-%d %H:%M UTC"),
        commit(),
        cli.rounds,
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

//! The programs that are measured, as a release builds them.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sampler_testkit::program::{BIN_DIR_VARIABLE, Launch, RECEIVER, WORKER};
use sampler_testkit::{Program, target_dir, workspace_dir};

/// The argument that makes our own program the server of one write per event.
pub(crate) const ONE_WRITE: &str = "one-write";
/// The arguments that make it a worker, as it is or without what that writes to the ledger.
pub(crate) const WITH_LEDGER: &str = "worker-with-ledger";
pub(crate) const WITHOUT_LEDGER: &str = "worker-without-ledger";
/// The folder with the programs of the commit that this one is compared with.
const OTHER_BUILD_VARIABLE: &str = "SAMPLER_BENCH_OTHER";
/// How long a program may take until it takes events.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// Only what is wrong, and where a program listens: that is how it is found.
const LOG_LEVEL: &str = "warn,sampler_service::http=info";

/// Starts the server of one write per event on that database.
pub(crate) async fn one_write(uri: &str) -> Result<Program> {
    ready(own(ONE_WRITE)?.env("DB_URI", uri)).await
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkerProgram {
    Of(Build),
    /// That of this commit in our own program.
    WithLedger,
    /// The same code, but no entry of the ledger is written.
    WithoutLedger,
}

/// Whose programs are run beside each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Build {
    /// Those of this commit.
    Own,
    /// Those of the commit that this one is compared with.
    Other,
}

/// Starts a receiver of a build on that database, and waits until it takes events.
pub(crate) async fn receiver(build: Build, uri: &str) -> Result<Program> {
    let launch = of_build(build, RECEIVER, uri)?.env("SAMPLER_DIMENSION", "day");
    // Earlier programs turn away what is beyond this, where later ones have a queue.
    ready(match build {
        Build::Own => launch,
        Build::Other => launch.env("MAX_INFLIGHT", "5000"),
    })
    .await
}

fn of_build(build: Build, name: &str, uri: &str) -> Result<Launch> {
    let path = match build {
        Build::Own => path(name)?,
        Build::Other => {
            let folder = std::env::var_os(OTHER_BUILD_VARIABLE);
            PathBuf::from(folder.context("no programs of another commit")?).join(name)
        }
    };
    Ok(Launch::new(name)
        .path(path)
        .log_file(target_dir().join("bench").join(format!("{name}.log")))
        .env("LOG_LEVEL", LOG_LEVEL)
        .env("DB_URI", uri))
}

/// Our own program with one of these arguments.
fn own(name: &str) -> Result<Launch> {
    let own = std::env::current_exe().context("our own program")?;
    Ok(Launch::new(name).path(own).arg(name))
}

/// Starts workers on that database, with these settings.
pub(crate) async fn workers(
    (program, count): (WorkerProgram, usize),
    uri: &str,
    settings: &[(&str, String)],
) -> Result<Vec<Program>> {
    let mut workers = Vec::new();
    for _ in 0..count {
        let launch = match program {
            WorkerProgram::Of(build) => of_build(build, WORKER, uri)?,
            WorkerProgram::WithLedger => own(WITH_LEDGER)?.env("DB_URI", uri),
            WorkerProgram::WithoutLedger => own(WITHOUT_LEDGER)?.env("DB_URI", uri),
        };
        // Workers that start together find each other sooner; otherwise all as it comes.
        let mut launch = launch.env("SAMPLER_HEARTBEAT_INTERVAL", "1s");
        for (name, value) in settings {
            launch = launch.env(name, value);
        }
        // Our own serves nothing: what it does shows in what is posted.
        workers.push(match program {
            WorkerProgram::Of(_) => launch.start().await?,
            _ => launch.spawn().await?,
        });
    }
    Ok(workers)
}

/// The program of that name: where the environment says, or beside our own.
fn path(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("our own program")?;
    let folder = match std::env::var_os(BIN_DIR_VARIABLE) {
        Some(folder) => workspace_dir().join(folder),
        None => own.parent().context("its folder")?.to_owned(),
    };
    let path = folder.join(name);
    let missing = "is not there: `cargo xtask bench` builds it";
    ensure!(path.is_file(), "{} {missing}", path.display());
    Ok(path)
}

async fn ready(launch: Launch) -> Result<Program> {
    let program = launch.start().await?;
    program.until_ready(READY_LIMIT).await?;
    Ok(program)
}

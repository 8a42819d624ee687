//! Where the programs are.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tokio::sync::OnceCell;

use crate::{target_dir, workspace_dir};

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

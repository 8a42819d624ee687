//! `cargo xtask`: builds the project's own commands and runs them. It depends on nothing, so it is there
//! at once and can say what the first build takes.

use std::env;
use std::fs::{File, TryLockError};
use std::io::{self, IsTerminal};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The commands, as cargo names their program.
const COMMANDS: &str = "xtask-commands";
/// What most of them start, built along with them.
const PROGRAMS: [&str; 3] = ["sampler-receiver", "sampler-worker", "sampler"];

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Builds, and becomes the program that was built.
fn run() -> io::Result<ExitCode> {
    let workspace = workspace()?;
    let built = built(&workspace);
    let commands = built.join(COMMANDS);
    if !commands.exists() {
        eprintln!(
            "building Sampler and its commands: the first time takes about 8 minutes on two cores, \
             and 4 GB in target/"
        );
    }
    let is_quiet = commands.exists() && !io::stderr().is_terminal();
    if is_quiet && is_locked(&built) {
        eprintln!("waiting for another build in {}", built.display());
    }
    if !build(&workspace, is_quiet).status()?.success() {
        return Ok(ExitCode::FAILURE);
    }
    Err(Command::new(commands).args(env::args_os().skip(1)).exec())
}

/// One build of everything: cargo chooses features for all of it together, and compiles each
/// dependency once.
fn build(workspace: &Path, is_quiet: bool) -> Command {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--workspace", "--bin", COMMANDS]);
    if env::args().nth(1).as_deref() == Some("up") {
        command.args(PROGRAMS.iter().flat_map(|program| ["--bin", program]));
    }
    if is_quiet {
        command.arg("--quiet");
    }
    command.current_dir(workspace);
    command
}

/// Whether another cargo builds there, for which ours will wait. A quiet cargo does not say so.
fn is_locked(built: &Path) -> bool {
    let lock = File::open(built.join(".cargo-lock"));
    lock.is_ok_and(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock)))
}

/// The folder in which cargo puts the programs that it builds.
fn built(workspace: &Path) -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    workspace.join(target).join("debug")
}

/// The root of the repository.
fn workspace() -> io::Result<PathBuf> {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
}

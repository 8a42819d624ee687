//! `cargo xtask`: builds the project's own commands and runs them. It depends on nothing, so it is there
//! at once and can say what the first build takes.

use std::env;
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
    let commands = env::current_exe()?.with_file_name(COMMANDS);
    if !commands.exists() {
        eprintln!(
            "building Sampler and its commands: the first time takes about 8 minutes on two cores, \
             and 4 GB in target/"
        );
    }
    if !build(&commands)?.status()?.success() {
        return Ok(ExitCode::FAILURE);
    }
    Err(Command::new(commands).args(env::args_os().skip(1)).exec())
}

/// One build of everything: cargo chooses features for all of it together, and compiles each
/// dependency once.
fn build(commands: &Path) -> io::Result<Command> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--workspace", "--bin", COMMANDS]);
    if env::args().nth(1).as_deref() == Some("up") {
        command.args(PROGRAMS.iter().flat_map(|program| ["--bin", program]));
    }
    if commands.exists() && !io::stderr().is_terminal() {
        command.arg("--quiet");
    }
    command.current_dir(workspace()?);
    Ok(command)
}

/// The root of the repository.
fn workspace() -> io::Result<PathBuf> {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
}

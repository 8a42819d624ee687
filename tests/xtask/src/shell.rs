//! Running other programs.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use sampler_testkit::workspace_dir;

/// A command that runs cargo in the workspace.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(args).current_dir(workspace_dir());
    command
}

/// Says what is run, runs it with our own output, and fails as it does.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    run_named("cargo", command)
}

/// The same for another program than cargo.
pub(crate) fn run_named(name: &str, command: &mut Command) -> Result<()> {
    let words: Vec<_> = command
        .get_args()
        .map(|word| word.to_string_lossy())
        .collect();
    let line = format!("{name} {}", words.join(" "));
    eprintln!("==> {line}");
    let status = command
        .status()
        .with_context(|| format!("starting {line}"))?;
    ensure!(status.success(), "{line}: {status}");
    Ok(())
}

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
    let line = line(name, command);
    eprintln!("==> {line}");
    let status = command
        .status()
        .with_context(|| format!("starting {line}"))?;
    ensure!(status.success(), "{line}: {status}");
    Ok(())
}

fn line(name: &str, command: &Command) -> String {
    let words = command.get_args().map(|word| word.to_string_lossy());
    let words: Vec<_> = words.collect();
    format!("{name} {}", words.join(" "))
}

/// What a command prints. It must succeed.
pub(crate) fn output(name: &str, command: &mut Command) -> Result<String> {
    let line = line(name, command);
    let output = command.output();
    let output = output.with_context(|| format!("starting {line}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{line}: {}", errors.trim());
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Whether a command succeeds; otherwise its errors are shown.
pub(crate) fn succeeds(name: &str, command: &mut Command) -> bool {
    let output = output(name, command);
    if let Err(error) = &output {
        eprintln!("{error:#}");
    }
    output.is_ok()
}

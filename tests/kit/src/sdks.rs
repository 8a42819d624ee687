//! The official SDKs of CloudEvents, which parse what a worker sends: that of Node.js, and that of Python.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{npm, target_dir, workspace_dir};

const SOURCE: &str = "tests/cloudevents";

/// The events that the SDK for Node.js reads from requests, each `{ headers, body }`.
///
/// # Errors
/// If the SDK cannot be installed, or a request is not a valid event.
pub fn parsed_by_node(requests: &Value) -> Result<Value> {
    let folder = npm::install(
        SOURCE,
        &["package.json", "package-lock.json", "parse.mjs"],
        "cloudevents-node",
    )?;
    parse(
        Command::new("node").arg("parse.mjs").current_dir(folder),
        requests,
    )
}

/// The events that the SDK for Python reads from the same.
///
/// # Errors
/// As for [`parsed_by_node`].
pub fn parsed_by_python(requests: &Value) -> Result<Value> {
    let (from, folder) = (
        workspace_dir().join(SOURCE),
        target_dir().join("cloudevents-python"),
    );
    let list = from.join("requirements.txt");
    let wanted = fs::read_to_string(&list).context("reading what is to be installed")?;
    let done = folder.join("installed");
    if !fs::read_to_string(&done).is_ok_and(|present| present == wanted) {
        install(&list, &folder)?;
        fs::write(&done, wanted).context("noting that it is installed")?;
    }
    let program = from.join("parse.py");
    parse(
        Command::new("python3")
            .arg(program)
            .env("PYTHONPATH", folder),
        requests,
    )
}

fn install(list: &Path, folder: &Path) -> Result<()> {
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]);
    pip.args([
        "--upgrade",
        "--no-deps",
        "--require-hashes",
        "--requirement",
    ]);
    pip.arg(list).arg("--target").arg(folder);
    let status = pip.status().context("starting pip")?;
    ensure!(status.success(), "pip: {status}");
    Ok(())
}

fn parse(command: &mut Command, requests: &Value) -> Result<Value> {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().context("starting an SDK")?;
    let mut input = child.stdin.take().context("it has an input")?;
    input.write_all(requests.to_string().as_bytes())?;
    drop(input);
    let output = child.wait_with_output()?;
    ensure!(
        output.status.success(),
        "an SDK refuses a request: {}",
        output.status
    );
    Ok(serde_json::from_slice(&output.stdout)?)
}

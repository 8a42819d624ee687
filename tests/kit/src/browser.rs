//! A real Chromium, driven by `playwright-core` in the version that `tests/console/package-lock.json`
//! pins. Debian's package `chromium` has it; `SAMPLER_CHROMIUM` names another.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::process::Command;
use tokio::time::timeout;

use crate::{npm, target_dir};

/// Names the browser.
const VARIABLE: &str = "SAMPLER_CHROMIUM";

/// What browsers are called.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// What a visit is made of, in `tests/console`.
const FILES: [&str; 4] = [
    "package.json",
    "package-lock.json",
    "visit.mjs",
    "browser.mjs",
];

/// How long a visit may take.
const LIMIT: Duration = Duration::from_mins(3);

/// Visits a console as people do, with what the visit needs to know; says whether there was a
/// browser. Pictures are written to `target/console`.
pub async fn visit(name: &str, known: &Value) -> Result<bool> {
    let Some(browser) = browser() else {
        eprintln!("skipped: no Chromium; install Debian's package chromium, or set {VARIABLE}");
        return Ok(false);
    };
    let installing = || npm::install("tests/console", &FILES, "console-browser");
    let folder = tokio::task::spawn_blocking(installing).await??;
    let pictures = target_dir().join("console");
    std::fs::create_dir_all(&pictures).context("making a folder for pictures")?;
    let visiting = Command::new("node")
        .arg(folder.join("visit.mjs"))
        .arg(name)
        .env("KNOWN", known.to_string())
        .env("BROWSER", browser)
        .env("PICTURES", pictures)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(LIMIT, visiting).await;
    let output = output
        .context("the visit takes too long")?
        .context("starting node")?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("the visit {name}:\n{errors}");
    }
    Ok(true)
}

fn browser() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE) {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let all = NAMES
        .iter()
        .flat_map(|name| folders.iter().map(move |it| it.join(name)));
    all.into_iter().find(|path| path.is_file())
}

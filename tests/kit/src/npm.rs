//! Programs of Node.js that tests need, in the versions that a `package-lock.json` pins. It needs
//! Node.js 18 or newer, with npm.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{target_dir, workspace_dir};

/// Installs what these files of a folder of the repository describe into a folder below the target
/// folder, once for all processes of a test run, and again when the files have changed.
pub(crate) fn install(source: &str, files: &[&str], name: &str) -> Result<PathBuf> {
    let (from, folder) = (workspace_dir().join(source), target_dir().join(name));
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let lock = File::create(folder.join("lock")).context("making a lock file")?;
    lock.lock().context("waiting for the lock file")?;
    let mut wanted = String::new();
    for file in files {
        let text = fs::read_to_string(from.join(file));
        wanted += &text.with_context(|| format!("reading {source}/{file}"))?;
    }
    let done = folder.join("installed");
    if fs::read_to_string(&done).is_ok_and(|present| present == wanted) {
        return Ok(folder);
    }
    for file in files {
        fs::copy(from.join(file), folder.join(file)).with_context(|| format!("copying {file}"))?;
    }
    npm_ci(&folder)?;
    // Written last, so that all of it is there.
    fs::write(&done, wanted).context("noting that it is installed")?;
    Ok(folder)
}

fn npm_ci(folder: &Path) -> Result<()> {
    let arguments = [
        "ci",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--loglevel=error",
    ];
    let output = Command::new("npm")
        .args(arguments)
        .current_dir(folder)
        .output();
    let output = output.context("starting npm: the tests need Node.js 18 or newer, with npm")?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("npm ci: {}: {}", output.status, errors.trim());
    }
    Ok(())
}

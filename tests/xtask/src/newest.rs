//! `newest`: whether what we rely on in the HTTP library holds in its newest version, too.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sampler_testkit::{target_dir, workspace_dir};

use crate::shell::{cargo, output, run, succeeds};

/// Connections rely on more than it promises (ADR 52).
const LIBRARY: &str = "hyper";

/// The tests that notice when that changes: a binary of `crates/service`.
const TESTS: &str = "http";

/// What a workspace of its own needs instead of a link to ours.
const COPIED: [&str; 2] = ["Cargo.toml", "Cargo.lock"];
/// What it must not link to: a folder that holds the link, and the history.
const LEFT_OUT: [&str; 2] = ["target", ".git"];

/// Runs those tests with the newest version that `Cargo.toml` allows, if `Cargo.lock` has an older one.
/// Ours is not touched.
pub(crate) fn run_newest() -> Result<()> {
    let folder = linked_workspace()?;
    let locked = version(&folder)?;
    if !is_updated(&folder) {
        eprintln!(
            "==> {LIBRARY}: the index cannot be fetched, so no version newer than {locked} was tested"
        );
        return Ok(());
    }
    let newest = version(&folder)?;
    if newest == locked {
        eprintln!("==> {LIBRARY}: found none newer than {locked}, which all tests run with");
        return Ok(());
    }
    eprintln!("==> {LIBRARY}: {newest} instead of {locked}");
    let mut tests = cargo(&["test", "--workspace", "--test", TESTS]);
    // The target folder is shared: only the library and what depends on it are compiled.
    tests
        .current_dir(&folder)
        .env("CARGO_TARGET_DIR", target_dir());
    run(&mut tests).with_context(|| {
        format!("{LIBRARY} {newest} is not what crates/service/src/http relies on (ADR 52)")
    })
}

/// A workspace with a `Cargo.lock` of its own. Everything else is ours.
fn linked_workspace() -> Result<PathBuf> {
    let folder = target_dir().join("newest");
    if folder.exists() {
        // Links are removed, not what they lead to.
        fs::remove_dir_all(&folder).context("removing the workspace of the last run")?;
    }
    fs::create_dir_all(&folder).context("making a workspace")?;
    for entry in fs::read_dir(workspace_dir()).context("reading the workspace")? {
        let entry = entry.context("reading the workspace")?;
        let name = entry.file_name();
        if LEFT_OUT.iter().any(|left_out| name == *left_out) {
            continue;
        }
        let (from, to) = (entry.path(), folder.join(&name));
        if COPIED.iter().any(|copied| name == *copied) {
            fs::copy(&from, &to).with_context(|| format!("copying {}", from.display()))?;
        } else {
            symlink(&from, &to).with_context(|| format!("linking {}", from.display()))?;
        }
    }
    Ok(folder)
}

/// The version of the library in the `Cargo.lock` of this workspace.
fn version(folder: &Path) -> Result<String> {
    let mut command = cargo(&["pkgid", LIBRARY]);
    let id = output("cargo", command.current_dir(folder))?;
    let (_, version) = id.rsplit_once(['@', '#']).context("no version")?;
    Ok(version.to_owned())
}

/// Takes the newest version into its `Cargo.lock`. Says whether the index could be asked for it.
fn is_updated(folder: &Path) -> bool {
    let mut command = cargo(&["update", "--package", LIBRARY]);
    succeeds("cargo", command.current_dir(folder))
}

//! `audit`: whether what is built in may be.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use sampler_testkit::{target_dir, workspace_dir};

use crate::shell::{cargo, run, run_named};

/// What looks, in the version that `deny.toml` was written for.
const TOOL: &str = "cargo-deny";
const VERSION: &str = "0.20.2";

/// What needs nothing but what cargo has fetched already.
const ALWAYS: [&str; 3] = ["bans", "licenses", "sources"];

/// What is done where the list of known weaknesses cannot be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreachable {
    /// The log says so, and the other checks count alone: nothing was found wrong.
    Passes,
    /// Nothing that was not checked may be released.
    Fails,
}

/// Checks licences, sources and bans; and known weaknesses, where their list can be fetched.
pub(crate) fn run_audit(unreachable: Unreachable) -> Result<()> {
    let tool = tool()?;
    run_named(TOOL, deny(&tool, "check").args(ALWAYS))?;
    if fetches_advisories(&tool)? {
        return run_named(TOOL, deny(&tool, "check").arg("advisories"));
    }
    unchecked(unreachable)
}

fn unchecked(unreachable: Unreachable) -> Result<()> {
    match unreachable {
        Unreachable::Passes => {
            eprintln!("==> advisories not checked: database unreachable");
            Ok(())
        }
        Unreachable::Fails => bail!(
            "the advisory database cannot be fetched, so a package could hold known weaknesses; \
             `cargo xtask package --unchecked` builds one that is not to be released"
        ),
    }
}

fn deny(tool: &Path, command: &str) -> Command {
    let mut deny = Command::new(tool);
    deny.arg(command).current_dir(workspace_dir());
    deny
}

/// Whether the list of weaknesses is here by now.
fn fetches_advisories(tool: &Path) -> Result<bool> {
    let fetched = deny(tool, "fetch").arg("db").output();
    let fetched = fetched.with_context(|| format!("starting {TOOL}"))?;
    if !fetched.status.success() {
        eprintln!("{}", String::from_utf8_lossy(&fetched.stderr).trim());
    }
    Ok(fetched.status.success())
}

/// The tool, which is built once: without optimization, because it runs for a second and would be
/// built for minutes.
fn tool() -> Result<PathBuf> {
    let root = target_dir().join("tools").join(format!("{TOOL}-{VERSION}"));
    let tool = root.join("bin").join(TOOL);
    if !tool.is_file() {
        let build = target_dir().join("tools").join("build");
        let mut install = cargo(&["install", "--quiet", "--locked", "--debug", TOOL]);
        install
            .args(["--version", VERSION, "--root"])
            .arg(&root)
            .env("CARGO_TARGET_DIR", &build)
            .env("CARGO_PROFILE_DEV_DEBUG", "0");
        run(&mut install)?;
        // Some hundred megabytes that are not needed again.
        std::fs::remove_dir_all(&build).context("removing what the tool was built of")?;
    }
    Ok(tool)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_checked_is_not_released() {
        assert!(unchecked(Unreachable::Passes).is_ok());
        let error = unchecked(Unreachable::Fails).unwrap_err().to_string();
        assert!(error.contains("advisory database"), "{error}");
    }
}

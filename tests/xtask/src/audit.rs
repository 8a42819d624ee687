//! `audit`: whether what is built in may be.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};
use sampler_testkit::workspace_dir;

use crate::shell::{run_named, succeeds};
use crate::tools::CHECKING;

/// What looks. `deny.toml` was written for the version that is fetched.
const TOOL: &str = "cargo-deny";

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
    let tool = CHECKING.program(TOOL)?;
    run_named(TOOL, deny(&tool, "check").args(ALWAYS))?;
    // The list of weaknesses is fetched first.
    if succeeds(TOOL, deny(&tool, "fetch").arg("db")) {
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

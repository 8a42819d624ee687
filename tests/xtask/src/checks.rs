//! `test` and `ci`: what must hold, and whether what is built in may be.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use sampler_testkit::mongod::{DB_URI_VARIABLE, Options, ReplicaSet, find};
use sampler_testkit::program::{BIN_DIR_VARIABLE, built_dir};
use sampler_testkit::workspace_dir;

use crate::docs;
use crate::tools::{CHECKING, KUBERNETES, cargo, run, succeeds};

/// A process for each test, several at a time.
const TEST_RUNNER: &str = "cargo-nextest";
/// Read by nextest: how many tests run at a time.
const THREADS_VARIABLE: &str = "NEXTEST_TEST_THREADS";
/// Tests wait most of their time, for timers, for MongoDB and for programs.
const TESTS_PER_PROCESSOR: usize = 2;

/// The folder of the manifests.
const FOLDER: &str = "deploy/kubernetes";
/// Those of Kubernetes itself. Others are custom resources, which its schemas do not know.
const MANIFESTS: [&str; 3] = ["settings.yaml", "receiver.yaml", "worker.yaml"];
/// An older release, and the newest one that the schemas are of.
const RELEASES: [&str; 2] = ["1.34", "1.37"];

/// What looks. `deny.toml` was written for the version that is fetched.
const TOOL: &str = "cargo-deny";

/// What needs nothing but what cargo has fetched already.
const ALWAYS: [&str; 3] = ["bans", "licenses", "sources"];

/// Everything that must hold before a change is taken.
pub(crate) async fn ci() -> Result<()> {
    run(&mut cargo(&["fmt", "--all", "--check"]))?;
    run(cargo(&["clippy", "--workspace", "--all-targets"]).args(["--", "-D", "warnings"]))?;
    run_audit(true)?;
    docs::run(true)?;
    check_manifests()?;
    test(&[]).await
}

/// All tests. The documentation of the code has no examples that would have to be compiled.
pub(crate) async fn test(filters: &[String]) -> Result<()> {
    let server = start_server().await?;
    let mut tests = Command::new(CHECKING.program(TEST_RUNNER)?);
    // The test runner builds the programs with the tests.
    tests
        .args(["nextest", "run", "--workspace"])
        .args(filters)
        .env(BIN_DIR_VARIABLE, built_dir())
        .current_dir(workspace_dir());
    if let Some(server) = &server {
        tests.env(DB_URI_VARIABLE, server.uri());
    }
    if std::env::var_os(THREADS_VARIABLE).is_none() {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = TESTS_PER_PROCESSOR * processors;
        tests.env(THREADS_VARIABLE, threads.to_string());
    }
    let result = run(&mut tests);
    if let Some(server) = server {
        server.stop().await?;
    }
    result
}

/// The MongoDB that all tests share, unless the environment names one already.
async fn start_server() -> Result<Option<ReplicaSet>> {
    if std::env::var_os(DB_URI_VARIABLE).is_some() {
        eprintln!("==> mongod: the one that {DB_URI_VARIABLE} names");
        return Ok(None);
    }
    eprintln!("==> mongod: {}", find()?.display());
    ReplicaSet::start(Options::single()).await.map(Some)
}

/// Checks licences, sources and bans; and known weaknesses, where their list can be fetched, or else must not be
/// `unchecked`.
pub(crate) fn run_audit(unchecked: bool) -> Result<()> {
    let tool = CHECKING.program(TOOL)?;
    run(deny(&tool, "check").args(ALWAYS))?;
    // The list of weaknesses is fetched first.
    if succeeds(deny(&tool, "fetch").arg("db"))? {
        return run(deny(&tool, "check").arg("advisories"));
    }
    require_unchecked(unchecked)
}

fn require_unchecked(unchecked: bool) -> Result<()> {
    ensure!(
        unchecked,
        "the advisory database cannot be fetched, so a package could hold known weaknesses; \
         `cargo xtask package --unchecked` builds one that is not to be released"
    );
    eprintln!("==> advisories not checked: database unreachable");
    Ok(())
}

fn deny(tool: &Path, command: &str) -> Command {
    let mut deny = Command::new(tool);
    deny.arg(command).current_dir(workspace_dir());
    deny
}

/// Checks each manifest against the schemas.
fn check_manifests() -> Result<()> {
    let folder = KUBERNETES.folder()?;
    for release in RELEASES {
        let mut command = Command::new("python3");
        command
            .args(["-m", "kubernetes_validate", "--strict", "-k", release])
            .args(MANIFESTS)
            .env("PYTHONPATH", &folder)
            .current_dir(workspace_dir().join(FOLDER));
        run(&mut command)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// All packages that such edges lead to, with their features.
    fn packages(edges: &str) -> BTreeSet<String> {
        let mut tree = cargo(&["tree", "--locked", "--workspace", "--edges", edges]);
        let output = tree
            .args(["--format", "{p} [{f}]", "--prefix", "none"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let lines = String::from_utf8(output.stdout).unwrap();
        let packages = lines
            .lines()
            .map(|it| it.trim_end_matches(" (*)").to_owned());
        packages.collect()
    }

    /// Cargo builds a package again when its features change, and then all that depend on it: for one
    /// feature of a decoder of UTF-8, the MongoDB driver and most of our crates.
    #[test]
    fn tests_add_no_feature_to_what_the_commands_are_built_from() {
        let (of_commands, of_tests) = (packages("normal,build"), packages("normal,build,dev"));
        let differing: Vec<_> = of_commands.difference(&of_tests).collect();
        assert!(differing.is_empty(), "{differing:#?}");
    }

    #[test]
    fn what_was_not_checked_is_not_released() {
        assert!(require_unchecked(true).is_ok());
        let error = require_unchecked(false).unwrap_err().to_string();
        assert!(error.contains("advisory database"), "{error}");
    }
}

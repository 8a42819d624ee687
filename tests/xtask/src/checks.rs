//! `test` and `ci`.

use std::process::Command;

use anyhow::Result;
use sampler_testkit::mongod::{DB_URI_VARIABLE, Options, ReplicaSet, find};
use sampler_testkit::program::{BIN_DIR_VARIABLE, built_dir};
use sampler_testkit::workspace_dir;

use crate::audit::{self, Unreachable};
use crate::docs;
use crate::kubernetes;
use crate::shell::{cargo, run, run_named};
use crate::tools::CHECKING;

/// A process for each test, several at a time.
const TEST_RUNNER: &str = "cargo-nextest";
/// Read by nextest: how many tests run at a time.
const THREADS_VARIABLE: &str = "NEXTEST_TEST_THREADS";
/// Tests wait most of their time, for timers, for MongoDB and for programs.
const TESTS_PER_PROCESSOR: usize = 2;

/// Everything that must hold before a change is taken.
pub(crate) async fn ci() -> Result<()> {
    run(&mut cargo(&["fmt", "--all", "--check"]))?;
    let clippy = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ];
    run(&mut cargo(&clippy))?;
    audit::run_audit(Unreachable::Passes)?;
    docs::run(true)?;
    kubernetes::check()?;
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
    let result = run_named(TEST_RUNNER, &mut tests);
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
    eprintln!("==> mongod: {}", find()?);
    ReplicaSet::start(Options::single()).await.map(Some)
}

/// Goes through all states of the model as fast as it goes.
pub(crate) fn model(scenarios: &[String]) -> Result<()> {
    let mut command = cargo(&["run", "--release", "--quiet"]);
    command.args(["--package", "sampler-model", "--"]);
    run(command.args(scenarios))
}

/// Runs the simulation as fast as it goes.
pub(crate) fn simulate(arguments: &[String]) -> Result<()> {
    let mut command = cargo(&["run", "--release", "--quiet"]);
    command.args(["--package", "sampler-simulation", "--"]);
    run(command.args(arguments))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// All packages that such edges lead to, with their features.
    fn packages(edges: &str) -> BTreeSet<String> {
        let arguments = [
            "tree",
            "--locked",
            "--workspace",
            "--edges",
            edges,
            "--format",
            "{p} [{f}]",
            "--prefix",
            "none",
        ];
        let output = cargo(&arguments).output().unwrap();
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
}

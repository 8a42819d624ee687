//! `model`, `sim`, `chaos` and `bench`: programs of the tests that run by themselves.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use sampler_testkit::program::{self, BIN_DIR_VARIABLE};
use sampler_testkit::{target_dir, workspace_dir};

use crate::tools::{cargo, run};

/// What measures.
const BENCH: &str = "sampler-bench";
/// What is measured.
const PROGRAMS: [&str; 2] = ["sampler-receiver", "sampler-worker"];
/// The argument that names a commit, and where the bench finds its programs.
const AGAINST: &str = "--against";
const OTHER_BUILD_VARIABLE: &str = "SAMPLER_BENCH_OTHER";

/// Runs such a program as fast as it goes: the model goes through all its states, the simulation through seeds.
pub(crate) fn run_fast(package: &str, arguments: &[String]) -> Result<()> {
    let mut command = cargo(&["run", "--release", "--quiet", "--package", package, "--"]);
    run(command.args(arguments))
}

/// Real processes and real faults, and a bill that must be right all the same. Builds the programs first, so that
/// none is built while another runs.
pub(crate) fn run_chaos(arguments: &[String]) -> Result<()> {
    let programs = program::build()?;
    let mut command = cargo(&["run", "--quiet", "--bin", "sampler-chaos", "--"]);
    run(command.args(arguments).env(BIN_DIR_VARIABLE, programs))
}

/// Builds the programs as a release has them, then has them measured beside what they are compared
/// with: other ways to do the same, or the programs of another commit.
pub(crate) fn run_bench(arguments: &[String]) -> Result<()> {
    let mut build = cargo(&["build", "--release"]);
    for package in PROGRAMS.into_iter().chain([BENCH]) {
        build.args(["--package", package]);
    }
    run(&mut build)?;
    // Not by `cargo run`: for one package alone, cargo would build what all share once more.
    let program = target_dir().join("release").join(BENCH);
    let mut bench = Command::new(program);
    bench.args(arguments);
    if let Some(commit) = against(arguments) {
        bench.env(OTHER_BUILD_VARIABLE, build_other(commit)?);
    }
    run(&mut bench)
}

/// The commit that is named after the argument.
fn against(arguments: &[String]) -> Option<&str> {
    let place = arguments.iter().position(|it| it == AGAINST)?;
    arguments.get(place + 1).map(String::as_str)
}

/// Builds the programs of another commit, in a work tree and a target folder of its own. Says where they
/// are.
fn build_other(commit: &str) -> Result<PathBuf> {
    let tree = target_dir().join("against").join(commit);
    if !tree.is_dir() {
        let mut git = Command::new("git");
        git.args(["worktree", "add", "--detach"]).arg(&tree);
        run(git.arg(commit).current_dir(workspace_dir()))?;
    }
    let target = tree.join("target");
    let mut build = cargo(&["build", "--release", "--target-dir"]);
    build.arg(&target).current_dir(&tree);
    for package in PROGRAMS {
        build.args(["--package", package]);
    }
    run(&mut build)?;
    Ok(target.join("release"))
}

//! `bench`: figures as in `docs/performance.md`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use sampler_testkit::{target_dir, workspace_dir};

use crate::shell::{cargo, run, run_named};

/// What measures.
const BENCH: &str = "sampler-bench";
/// What is measured.
const PROGRAMS: [&str; 2] = ["sampler-receiver", "sampler-worker"];
/// The argument that names a commit, and where the bench finds its programs.
const AGAINST: &str = "--against";
const OTHER_BUILD_VARIABLE: &str = "SAMPLER_BENCH_OTHER";

/// Builds the programs as a release has them, then has them measured beside what they are compared
/// with: other ways to do the same, or the programs of another commit.
pub(crate) fn bench(arguments: &[String]) -> Result<()> {
    let mut build = cargo(&["build", "--release"]);
    for package in PROGRAMS.into_iter().chain([BENCH]) {
        build.args(["--package", package]);
    }
    run(&mut build)?;
    // Not by `cargo run`: for one package alone, cargo would build what all share once more.
    let program = target_dir().join("release").join(BENCH);
    let mut bench = Command::new(&program);
    bench.args(arguments);
    if let Some(commit) = against(arguments) {
        bench.env(OTHER_BUILD_VARIABLE, build_other(commit)?);
    }
    let status = bench.status();
    let status = status.with_context(|| format!("starting {}", program.display()))?;
    ensure!(status.success(), "{BENCH}: {status}");
    Ok(())
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
        run_named(
            "git",
            git(&["worktree", "add", "--detach"]).arg(&tree).arg(commit),
        )?;
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

fn git(args: &[&str]) -> Command {
    let mut command = Command::new("git");
    command
        .args(args)
        .current_dir::<&Path>(workspace_dir().as_ref());
    command
}

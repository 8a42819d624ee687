//! `bench`: figures as in `docs/performance.md`.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use sampler_testkit::target_dir;

use crate::shell::{cargo, run};

/// What measures.
const BENCH: &str = "sampler-bench";

/// Builds the programs as a release has them, then has them measured beside what they are compared
/// with.
pub(crate) fn bench(arguments: &[String]) -> Result<()> {
    let mut build = cargo(&["build", "--release"]);
    for package in ["sampler-receiver", "sampler-worker", BENCH] {
        build.args(["--package", package]);
    }
    run(&mut build)?;
    // Not by `cargo run`: for one package alone, cargo would build what all share once more.
    let program = target_dir().join("release").join(BENCH);
    let status = Command::new(&program).args(arguments).status();
    let status = status.with_context(|| format!("starting {}", program.display()))?;
    ensure!(status.success(), "{BENCH}: {status}");
    Ok(())
}

//! `bench`: the figures of `docs/performance.md`.

use anyhow::Result;

use crate::shell::{cargo, run};

/// Builds the programs as a release has them, then measures them beside what they are compared
/// with.
pub(crate) fn bench(arguments: &[String]) -> Result<()> {
    let programs = [
        "build",
        "--release",
        "--quiet",
        "--package",
        "sampler-receiver",
        "--package",
        "sampler-worker",
    ];
    run(&mut cargo(&programs))?;
    let mut command = cargo(&["run", "--release", "--quiet", "--package", "sampler-bench"]);
    run(command.arg("--").args(arguments))
}

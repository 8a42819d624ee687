//! `chaos`: real processes and real faults, and a bill that must be right all the same.

use anyhow::Result;
use sampler_testkit::program::{self, BIN_DIR_VARIABLE};

use crate::shell::{cargo, run};

/// Builds the programs first, so that none is built while another runs.
pub(crate) fn run_chaos(arguments: &[String]) -> Result<()> {
    let programs = program::build()?;
    let mut command = cargo(&["run", "--quiet", "--bin", "sampler-chaos", "--"]);
    run(command.args(arguments).env(BIN_DIR_VARIABLE, programs))
}

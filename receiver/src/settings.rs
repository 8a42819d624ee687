//! The receiver on the command line.

use sampler_service::metrics;
use sampler_settings::Program;

use crate::problems::catalogue;

pub const PROGRAM: Program = Program {
    name: "sampler-receiver",
    about: "Takes start and stop events over HTTP and keeps them as spans.",
    version: env!("CARGO_PKG_VERSION"),
    printouts: &[
        ("--help-errors", catalogue),
        ("--help-metrics", || metrics::document(PROGRAM.name)),
    ],
};

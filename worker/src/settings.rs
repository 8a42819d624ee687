//! The worker on the command line.

use sampler_service::metrics;
use sampler_settings::{Of, Program};

pub const PROGRAM: Program = Program {
    of: Of::Worker,
    name: "sampler-worker",
    about: "Samples spans and posts their usages upstream, to Abacus or as CloudEvents.",
    version: env!("CARGO_PKG_VERSION"),
    printouts: &[("--help-metrics", || metrics::document(PROGRAM.name))],
};

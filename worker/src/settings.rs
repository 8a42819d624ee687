//! The worker on the command line.

use sampler_service::metrics;
use sampler_settings::Program;

pub const PROGRAM: Program = Program {
    name: "sampler-worker",
    about: "Samples spans and posts their usages upstream, to Abacus or as CloudEvents.",
    version: env!("CARGO_PKG_VERSION"),
    printouts: &[("--help-metrics", || metrics::document(PROGRAM.name))],
};

//! The worker on the command line.

use sampler_metrics::Metric;
use sampler_settings::{Printout, Program};

use crate::{confirm, metrics, upstream_time};

pub const PROGRAM: Program = Program {
    name: "sampler-worker",
    about: "Samples spans and posts their usages upstream, to Abacus or as CloudEvents.",
    version: env!("CARGO_PKG_VERSION"),
    printouts: &[Printout {
        flag: "--help-metrics",
        about: "Prints what each metric means, as Markdown",
        text: || sampler_metrics::document(PROGRAM.name, &metrics()),
    }],
};

/// All metrics of the worker.
pub fn metrics() -> Vec<&'static Metric> {
    let own = [metrics::METRICS, confirm::METRICS, upstream_time::METRICS];
    let steering = sampler_steering::METRICS.to_vec();
    [own.concat(), steering, sampler_service::program::metrics()].concat()
}

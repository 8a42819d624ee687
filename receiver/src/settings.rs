//! The receiver on the command line.

use sampler_metrics::Metric;
use sampler_settings::{Printout, Program};

use crate::metrics::METRICS;
use crate::problems::catalogue;

pub const PROGRAM: Program = Program {
    name: "sampler-receiver",
    about: "Takes start and stop events over HTTP and keeps them as spans.",
    version: env!("CARGO_PKG_VERSION"),
    printouts: &[
        Printout {
            flag: "--help-errors",
            about: "Prints what each error answer means, as Markdown",
            text: catalogue,
        },
        Printout {
            flag: "--help-metrics",
            about: "Prints what each metric means, as Markdown",
            text: || sampler_metrics::document(PROGRAM.name, &metrics()),
        },
    ],
};

/// All metrics of the receiver.
pub fn metrics() -> Vec<&'static Metric> {
    let common = sampler_service::program::metrics();
    [METRICS, sampler_steering::METRICS, &common].concat()
}

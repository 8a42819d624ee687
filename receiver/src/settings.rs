//! The receiver on the command line.

use sampler_service::metrics;
use sampler_settings::{Printout, Program};

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
            text: || metrics::document(PROGRAM.name),
        },
    ],
};

//! What the controller of starts does over three days: a simulation, and its drawings.

mod drawing;
mod simulation;

use sampler_domain::ControllerSettings;

use drawing::{BACKLOG, RATE};

/// The drawings: the path of each, and what it is.
pub(crate) fn drawings() -> [(&'static str, String); 2] {
    let settings = ControllerSettings {
        enabled: true,
        ..ControllerSettings::default()
    };
    let without = simulation::run(None).moments;
    let with = simulation::run(Some(settings)).moments;
    [
        (
            BACKLOG,
            drawing::backlog(&without, &with, settings.target_seconds),
        ),
        (RATE, drawing::rate(&with)),
    ]
}

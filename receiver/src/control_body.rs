//! From JSON to the control.

use std::collections::BTreeMap;

use sampler_api as api;
use sampler_domain::{Control, ControllerSettings, Id, Percent, SamplingControl, StartRates};
use sampler_service::problem::Pointer;

use crate::errors::Errors;

/// The reason, and the control, whose values are checked. All members are there: one that was forgotten would be
/// set back to its default.
pub(crate) fn check(given: api::ControlRequest, errors: &mut Errors) -> (String, Control) {
    let control = Control {
        starts: starts(given.starts, errors),
        sampling: SamplingControl {
            paused: given.sampling.paused,
        },
        controller: controller(given.controller, errors),
    };
    (given.reason, control)
}

fn starts(given: api::StartRates, errors: &mut Errors) -> StartRates {
    let rates = |control: Pointer| control.field("starts").field("resources");
    let rate = percent(given.rate, errors, |control| {
        control.field("starts").field("rate")
    });
    if given.resources.len() > StartRates::RESOURCES_MAX {
        let most = StartRates::RESOURCES_MAX;
        errors.wrong_at(rates, format!("It must have at most {most} fields."));
    }
    let mut resources = BTreeMap::new();
    for (name, rate) in given.resources.into_iter().take(StartRates::RESOURCES_MAX) {
        let at = |control| rates(control).field(&name);
        if let Err(error) = Id::new(&*name) {
            errors.wrong_at(at, format!("The id of a resource {error}."));
        } else {
            let rate = percent(rate, errors, at);
            resources.insert(name, rate);
        }
    }
    StartRates { rate, resources }
}

fn controller(given: api::ControllerSettings, errors: &mut Errors) -> ControllerSettings {
    let settings = ControllerSettings {
        enabled: given.enabled,
        target_seconds: given.target_seconds,
        kp: given.kp,
        ki: given.ki,
        kd: given.kd,
    };
    for (name, detail) in settings.errors() {
        let at = |control: Pointer| control.field("controller").field(name);
        errors.wrong_at(at, format!("It {detail}."));
    }
    settings
}

/// A percentage. A request with another number is refused.
fn percent(given: f64, errors: &mut Errors, at: impl FnOnce(Pointer) -> Pointer) -> Percent {
    Percent::new(given).unwrap_or_else(|error| {
        errors.wrong_at(at, format!("It {error}."));
        Percent::ALL
    })
}

//! From JSON to the control.

use std::collections::BTreeMap;

use sampler_domain::{Control, ControllerSettings, Id, Percent, SamplingControl, StartRates};

use crate::fields::{self, Fields};
use crate::json::Json;

/// Reads the three members. All of their fields must be there: a field that was forgotten would be
/// set back to its default.
pub(crate) fn read(fields: &mut Fields<'_>) -> Option<Control> {
    let starts = fields.object("starts", starts);
    let sampling = fields.object("sampling", sampling);
    let controller = fields.object("controller", |fields| Some(controller(fields)));
    Some(Control {
        starts: starts?,
        sampling: sampling?,
        controller: controller?,
    })
}

fn starts(fields: &mut Fields<'_>) -> Option<StartRates> {
    let rate = fields.required("rate", percent);
    let resources = fields.object("resources", rates);
    Some(StartRates {
        rate: rate?,
        resources: resources?,
    })
}

fn rates(fields: &mut Fields<'_>) -> Option<BTreeMap<String, Percent>> {
    let members = fields.take_all();
    if members.len() > StartRates::RESOURCES_MAX {
        let detail = format!("It must have at most {} fields.", StartRates::RESOURCES_MAX);
        fields.wrong_at(&[], detail);
        return None;
    }
    let mut rates = BTreeMap::new();
    for (name, value) in members {
        match rate_of(&name, value) {
            Ok(rate) => {
                rates.insert(name.into_owned(), rate);
            }
            Err(detail) => fields.wrong(&name, detail),
        }
    }
    Some(rates)
}

fn rate_of(resource: &str, rate: Json<'_>) -> Result<Percent, String> {
    Id::new(resource).map_err(|error| format!("The id of a resource {error}."))?;
    percent(rate)
}

fn sampling(fields: &mut Fields<'_>) -> Option<SamplingControl> {
    let paused = fields.required("paused", fields::boolean)?;
    Some(SamplingControl { paused })
}

fn controller(fields: &mut Fields<'_>) -> ControllerSettings {
    // A valid number replaces an invalid one, so that the check continues with the others.
    let settings = ControllerSettings {
        enabled: fields.required("enabled", fields::boolean).unwrap_or(false),
        target_seconds: fields
            .required("target_seconds", fields::number)
            .unwrap_or(1.0),
        kp: fields.required("kp", fields::number).unwrap_or(1.0),
        ki: fields.required("ki", fields::number).unwrap_or(1.0),
        kd: fields.required("kd", fields::number).unwrap_or(0.0),
    };
    for (name, detail) in settings.errors() {
        fields.wrong(name, format!("It {detail}."));
    }
    settings
}

fn percent(value: Json<'_>) -> Result<Percent, String> {
    let number = fields::number(value).ok();
    let percent = number.and_then(|number| Percent::new(number).ok());
    Ok(percent.ok_or("It must be a number from 0 to 100.")?)
}

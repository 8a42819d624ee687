//! From JSON to the control: all wrong fields are named at once.

use std::collections::BTreeMap;

use sampler_domain::{Control, ControllerSettings, Id, Percent, SamplingControl, StartRates};
use sampler_service::problem::Pointer;

use crate::acts::ActBody;
use crate::json::{Json, Members};

/// Reads the three members. All of their fields must be there: a field that was forgotten would be
/// set back to its default.
pub(crate) fn read(body: &mut ActBody<'_>) -> Option<Control> {
    let starts = Part::take(body, "starts").and_then(|part| starts(part, body));
    let sampling = Part::take(body, "sampling").and_then(|part| sampling(part, body));
    let controller = Part::take(body, "controller").and_then(|part| controller(part, body));
    Some(Control {
        starts: starts?,
        sampling: sampling?,
        controller: controller?,
    })
}

/// One of the members: an object, and what of it has not been read yet.
struct Part<'b> {
    pointer: Pointer,
    members: Members<'b>,
}

impl<'b> Part<'b> {
    fn take(body: &mut ActBody<'b>, name: &'static str) -> Option<Self> {
        let member = body.take(name);
        Self::of(member, Pointer::root().field(name), body)
    }

    fn of(value: Option<Json<'b>>, pointer: Pointer, body: &mut ActBody<'_>) -> Option<Self> {
        match value {
            Some(Json::Object(members)) => Some(Self { pointer, members }),
            Some(_) => complain(body, pointer, "It must be an object."),
            None => complain(body, pointer, "It is missing."),
        }
    }

    /// A field that must be there, as `read` takes it.
    fn field<T>(
        &mut self,
        name: &str,
        expected: &str,
        body: &mut ActBody<'_>,
        read: impl FnOnce(&Json<'_>) -> Option<T>,
    ) -> Option<T> {
        let pointer = self.pointer.clone().field(name);
        let Some(value) = self.member(name) else {
            return complain(body, pointer, "It is missing.");
        };
        match read(&value) {
            Some(value) => Some(value),
            None => complain(body, pointer, expected),
        }
    }

    fn member(&mut self, name: &str) -> Option<Json<'b>> {
        let index = self.members.iter().position(|member| member.0 == name)?;
        Some(self.members.swap_remove(index).1)
    }

    /// Nothing else may be there.
    fn finish(self, body: &mut ActBody<'_>) {
        for (name, _) in self.members {
            let pointer = self.pointer.clone().field(&name);
            body.complain(pointer, "There is no field of this name.");
        }
    }
}

fn starts(mut part: Part<'_>, body: &mut ActBody<'_>) -> Option<StartRates> {
    let rate = part.field("rate", PERCENT, body, percent);
    let pointer = part.pointer.clone().field("resources");
    let resources = Part::of(part.member("resources"), pointer, body);
    let resources = resources.and_then(|resources| rates(resources, body));
    part.finish(body);
    Some(StartRates {
        rate: rate?,
        resources: resources?,
    })
}

/// The rates of single resources.
fn rates(part: Part<'_>, body: &mut ActBody<'_>) -> Option<BTreeMap<String, Percent>> {
    if part.members.len() > StartRates::RESOURCES_MAX {
        let detail = format!("It must have at most {} fields.", StartRates::RESOURCES_MAX);
        return complain(body, part.pointer, &detail);
    }
    let (mut rates, mut is_right) = (BTreeMap::new(), true);
    for (name, value) in part.members {
        let pointer = part.pointer.clone().field(&name);
        if let Err(error) = Id::new(&*name) {
            body.complain(pointer, format!("The id of a resource {error}."));
            is_right = false;
        } else if let Some(rate) = percent(&value) {
            rates.insert(name.into_owned(), rate);
        } else {
            body.complain(pointer, PERCENT);
            is_right = false;
        }
    }
    is_right.then_some(rates)
}

fn sampling(mut part: Part<'_>, body: &mut ActBody<'_>) -> Option<SamplingControl> {
    let paused = part.field("paused", BOOLEAN, body, boolean);
    part.finish(body);
    Some(SamplingControl { paused: paused? })
}

fn controller(mut part: Part<'_>, body: &mut ActBody<'_>) -> Option<ControllerSettings> {
    let enabled = part.field("enabled", BOOLEAN, body, boolean);
    let mut parameter = |name| part.field(name, "It must be a number.", body, number);
    let target_seconds = parameter("target_seconds");
    let (kp, ki, kd) = (parameter("kp"), parameter("ki"), parameter("kd"));
    let pointer = part.pointer.clone();
    part.finish(body);
    let has_all = [target_seconds, kp, ki, kd].iter().all(Option::is_some);
    // A valid number replaces an invalid one, so that the check goes on to the others.
    let settings = ControllerSettings {
        enabled: enabled.unwrap_or(false),
        target_seconds: target_seconds.unwrap_or(1.0),
        kp: kp.unwrap_or(1.0),
        ki: ki.unwrap_or(1.0),
        kd: kd.unwrap_or(0.0),
    };
    let errors = settings.errors();
    for (name, detail) in &errors {
        body.complain(pointer.clone().field(name), format!("It {detail}."));
    }
    (enabled.is_some() && has_all && errors.is_empty()).then_some(settings)
}

const PERCENT: &str = "It must be a number from 0 to 100.";
const BOOLEAN: &str = "It must be true or false.";

fn percent(value: &Json<'_>) -> Option<Percent> {
    Percent::new(number(value)?).ok()
}

fn number(value: &Json<'_>) -> Option<f64> {
    value.as_number()?.as_f64()
}

fn boolean(value: &Json<'_>) -> Option<bool> {
    match value {
        Json::Plain(value) => value.as_bool(),
        _ => None,
    }
}

fn complain<T>(body: &mut ActBody<'_>, pointer: Pointer, detail: &str) -> Option<T> {
    body.complain(pointer, detail);
    None
}

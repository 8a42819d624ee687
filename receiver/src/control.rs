//! The control of operators.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::Request;
use sampler_api as api;
use sampler_domain::{Control, ControllerSettings, Id, Percent, SamplingControl, StartRates};
use sampler_service::problem::{Pointer, Problem};
use sampler_service::security::Grant;
use sampler_store::KeptControl;
use serde_json::{Value, to_value};

use crate::Receiver;
use crate::acts::{IfMatch, NewAuditRecord, stale};
use crate::failures::Task;
use crate::json::Errors;
use crate::openapi::IfMatchParams;
use crate::parameters::Parameters;
use crate::reading::{Tagged, tagged};

/// The address of what is set.
const SUBJECT: &str = "/v1/control";

#[utoipa::path(
    get, path = "/v1/control", operation_id = "get_control", tag = "Operating",
    summary = "The control of operators",
    responses((status = 200, description = "The control as it is set now.", body = api::Control)),
)]
pub(crate) async fn get(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    parameters: Parameters,
) -> Result<Tagged<api::Control>, Problem> {
    grant.require_admin()?;
    parameters.finish()?;
    let _turn = receiver.admit_reading(&grant).await?;
    let kept = receiver.control().await?;
    Ok(tagged(api::Control::from(&kept.control), kept.version))
}

#[utoipa::path(
    put, path = "/v1/control", operation_id = "set_control", tag = "Operating",
    summary = "Set how many starts are admitted, and whether sampling is paused",
    description = "All instances follow within 5 seconds. All members must be there.",
    params(IfMatchParams),
    request_body(content = api::Control, content_type = "application/json"),
    responses((status = 200, description = "The control as it is now.", body = api::Control)),
)]
pub(crate) async fn put(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    parameters: Parameters,
    request: Request<Body>,
) -> Result<Tagged<api::Control>, Problem> {
    grant.require_admin()?;
    parameters.finish()?;
    let seen = IfMatch::of(request.headers())?;
    let asked = receiver.admit_action(&grant, request, check).await?;
    let kept = receiver.control().await?;
    seen.require(kept.version)?;
    let record = NewAuditRecord {
        kind: "control.set",
        subject: SUBJECT.to_owned(),
        span: None,
        reason: asked.reason,
        before: record(&kept.control),
        after: record(&asked.fields),
    };
    let operating = &receiver.parts.operating;
    let setting = operating.set_control(&asked.fields, kept.version);
    receiver.perform(&grant, record, setting, stale).await?;
    // This instance follows at once.
    receiver.steering.poll().await;
    let control = api::Control::from(&asked.fields);
    Ok(tagged(control, kept.version.saturating_add(1)))
}

impl Receiver {
    async fn control(&self) -> Result<KeptControl, Problem> {
        let kept = self.parts.operating.control().await;
        kept.map_err(|failure| self.failed(Task::Read, &failure))
    }
}

/// The control in the audit trail.
fn record(control: &Control) -> Value {
    to_value(api::Control::from(control)).unwrap_or_default()
}

/// The reason, and the control, whose values are checked. All members are there: one that was forgotten would be
/// set back to its default.
fn check(given: api::Control, errors: &mut Errors) -> (String, Control) {
    let api::ControllerSettings {
        enabled,
        target_seconds,
        kp,
        ki,
        kd,
    } = given.controller;
    let controller = ControllerSettings {
        enabled,
        target_seconds,
        kp,
        ki,
        kd,
    };
    let control = Control {
        starts: starts(given.starts, errors),
        sampling: SamplingControl {
            paused: given.sampling.paused,
        },
        controller,
    };
    for (name, detail) in controller.errors() {
        let at = |control: Pointer| control.field("controller").field(name);
        errors.wrong_at(at, format!("It {detail}."));
    }
    (given.reason, control)
}

fn starts(given: api::StartRates, errors: &mut Errors) -> StartRates {
    let within = |name| move |control: Pointer| control.field("starts").field(name);
    let rate = percent(given.rate, errors, within("rate"));
    if given.resources.len() > StartRates::RESOURCES_MAX {
        let most = StartRates::RESOURCES_MAX;
        errors.wrong_at(
            within("resources"),
            format!("It must have at most {most} fields."),
        );
    }
    let mut resources = BTreeMap::new();
    for (name, rate) in given.resources.into_iter().take(StartRates::RESOURCES_MAX) {
        let at = |control| within("resources")(control).field(&name);
        if let Err(error) = Id::new(&*name) {
            errors.wrong_at(at, format!("The id of a resource {error}."));
        } else {
            let rate = percent(rate, errors, at);
            resources.insert(name, rate);
        }
    }
    StartRates { rate, resources }
}

/// A percentage. A request with another number is refused.
fn percent(given: f64, errors: &mut Errors, at: impl FnOnce(Pointer) -> Pointer) -> Percent {
    Percent::new(given).unwrap_or_else(|error| {
        errors.wrong_at(at, format!("It {error}."));
        Percent::ALL
    })
}

//! The control of operators, and the backlog: spans that wait for the workers.

use std::collections::BTreeMap;

use axum::Json;
use axum::body::Body;
use axum::http::Request;
use sampler_api as api;
use sampler_domain::{
    Control, ControllerSettings, Granularity, Id, Percent, SamplingControl, StartRates, Timestamp,
};
use sampler_service::problem::Problem;
use sampler_settings::millis;
use sampler_steering::MonthClose;
use sampler_store::{Backlog, BacklogQuery, KeptControl, StoreError};
use serde_json::to_value;

use crate::Caller;
use crate::Receiver;
use crate::acts::{IfMatch, stale};
use crate::failures::Task;
use crate::json::Errors;
use crate::openapi::IfMatchParams;
use crate::reading::{Tagged, tagged};

/// The address of what is set.
const SUBJECT: &str = "/v1/control";

/// The age at which a count that took no time is old, ms. A worker counts every 2 s.
const OLD: i64 = 3_000;

/// A worker waits 20 times as long as a count took.
const OLD_BY_COST: i64 = 21;

#[utoipa::path(
    get, path = "/v1/control", operation_id = "get_control", tag = "Operating",
    summary = "The control of operators",
    responses((status = 200, description = "The control as it is set now.", body = api::Control)),
)]
pub(crate) async fn get(caller: Caller) -> Result<Tagged<api::Control>, Problem> {
    caller.grant.require_admin()?;
    caller.parameters().finish()?;
    let _turn = caller.admit_reading().await?;
    let kept = caller.receiver.control().await?;
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
    caller: Caller,
    request: Request<Body>,
) -> Result<Tagged<api::Control>, Problem> {
    caller.grant.require_admin()?;
    caller.parameters().finish()?;
    let seen = IfMatch::of(request.headers())?;
    let asked = caller.admit_action(request, check).await?;
    let receiver = &caller.receiver;
    let kept = receiver.control().await?;
    seen.require(kept.version)?;
    let control = api::Control::from(&asked.fields);
    let states = [&api::Control::from(&kept.control), &control];
    let states = states.map(|control| to_value(control).unwrap_or_default());
    let record = caller.record("control.set", SUBJECT.to_owned(), asked.reason, states);
    let operating = &receiver.parts.operating;
    let setting = operating.set_control(&asked.fields, kept.version);
    caller.perform(record, setting, stale).await?;
    // This instance follows at once.
    receiver.steering.poll().await;
    Ok(tagged(control, kept.version.saturating_add(1)))
}

#[utoipa::path(
    get, path = "/v1/backlog", operation_id = "get_backlog", tag = "Operating",
    summary = "The backlog",
    responses((status = 200, description = "The backlog, counted a few seconds ago.", body = api::Backlog)),
)]
pub(crate) async fn backlog(caller: Caller) -> Result<Json<api::Backlog>, Problem> {
    caller.grant.require_read_everything()?;
    caller.parameters().finish()?;
    let _turn = caller.admit_reading().await?;
    let receiver = &caller.receiver;
    let backlog = receiver.backlog().await;
    let backlog = backlog.map_err(|failure| receiver.failed(Task::Read, &failure))?;
    Ok(Json(shown(
        &backlog,
        receiver.parts.clock.now(),
        receiver.month(),
    )))
}

impl Receiver {
    async fn control(&self) -> Result<KeptControl, Problem> {
        let kept = self.parts.operating.control().await;
        kept.map_err(|failure| self.failed(Task::Read, &failure))
    }

    pub(crate) fn month(&self) -> MonthClose {
        MonthClose {
            month_slack: millis(self.settings.month.month_slack),
            stop_grace: self.policy.stop_grace,
        }
    }

    /// The last count. If that is old, because no worker counts, the backlog is counted now.
    async fn backlog(&self) -> Result<Backlog, StoreError> {
        let operating = &self.parts.operating;
        if let Some(published) = operating.published_backlog().await? {
            let cost = published.value.cost.saturating_mul(OLD_BY_COST);
            if published.age <= OLD.saturating_add(cost) {
                return Ok(published.value);
            }
        }
        let now = self.parts.clock.now();
        let closing = self.month().closing(now);
        operating
            .count_backlog(&BacklogQuery { now, closing })
            .await
    }
}

fn shown(backlog: &Backlog, now: Timestamp, month: MonthClose) -> api::Backlog {
    let running = month.closing(now).map(|closing| closing.end);
    let closing = backlog.closing.filter(|left| Some(left.end) == running);
    api::Backlog {
        due: backlog.due,
        oldest: backlog.oldest,
        at_least: backlog.at_least,
        suspended: backlog.suspended,
        rate: rounded(backlog.rate),
        closing: closing.map(|left| api::Closing {
            month: Granularity::month_name(left.start),
            left: left.spans,
            closes_at: month.closes_at(left.end),
        }),
    }
}

/// To a hundredth: further digits of a rate mean nothing.
fn rounded(rate: f64) -> f64 {
    (rate * 100.0).round() / 100.0
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
    let mut within = Errors::default();
    for (name, detail) in controller.errors() {
        within.wrong(name, format!("The value {detail}."));
    }
    errors.nest("controller", within);
    (given.reason, control)
}

fn starts(given: api::StartRates, errors: &mut Errors) -> StartRates {
    let (mut within, mut of_resources) = (Errors::default(), Errors::default());
    let rate = percent("rate", given.rate, &mut within);
    let most = StartRates::RESOURCES_MAX;
    if given.resources.len() > most {
        let detail = format!("The object must have at most {most} fields.");
        within.wrong("resources", detail);
    }
    let mut resources = BTreeMap::new();
    for (name, rate) in given.resources.into_iter().take(most) {
        if let Err(error) = Id::new(&*name) {
            of_resources.wrong(&name, format!("The id of a resource {error}."));
        } else {
            let rate = percent(&name, rate, &mut of_resources);
            resources.insert(name, rate);
        }
    }
    within.nest("resources", of_resources);
    errors.nest("starts", within);
    StartRates { rate, resources }
}

/// A percentage. A request with another number is refused.
fn percent(name: &str, given: f64, errors: &mut Errors) -> Percent {
    Percent::new(given).unwrap_or_else(|error| {
        errors.wrong(name, format!("The value {error}."));
        Percent::ALL
    })
}

//! `start`, `stop` and `update`: one event, from options.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Args;
use sampler_api::{Problem, Span, Target};
use sampler_verify::moment::{InWords, Millis};
use sampler_verify::quantity;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use crate::api::{Answer, Api, ApiError, Request};
use crate::clock;
use crate::events::id_of_text;
use crate::failure::Failure;
use crate::listing::Common;
use crate::moment::time;
use crate::output::{note, print, printable};
use crate::resolve;
use crate::show::{print_json, target};

/// Starts the usage of an instance
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sampler start orders-db --organization-id acme --space-id prod --consumer-id shop \\
    --resource-id postgres --plan-id large --measure memory=512 --measure storage=20
  sampler start orders-db ... --at 2026-11-20T15:10:11Z

Exit codes: 0 the event is kept, 1 it is refused, 2 the command line is wrong, 3 the API gives no answer.")]
pub(crate) struct StartArguments {
    /// The instance that starts
    #[arg(value_name = "INSTANCE")]
    instance: String,
    /// Of this organization
    #[arg(long, value_name = "ID", help_heading = "Target")]
    organization_id: String,
    /// Of this space
    #[arg(long, value_name = "ID", help_heading = "Target")]
    space_id: String,
    /// Of this consumer
    #[arg(long, value_name = "ID", help_heading = "Target")]
    consumer_id: String,
    /// Of this resource
    #[arg(long, value_name = "ID", help_heading = "Target")]
    resource_id: String,
    /// Of this plan
    #[arg(long, value_name = "ID", help_heading = "Target")]
    plan_id: String,
    /// A measure with its quantity, a number; for each measure once
    #[arg(long = "measure", value_name = "NAME=NUMBER", value_parser = measure)]
    measures: Vec<Measured>,
    #[command(flatten)]
    event: EventArguments,
}

/// Stops the usage of an instance
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sampler stop orders-db
  sampler stop 6b0067e75a449b4a91561b99 --at -10m

Exit codes: 0 the event is kept, 1 it is refused, 2 the command line is wrong, or there are several open
spans of the instance, 3 the API gives no answer.")]
pub(crate) struct StopArguments {
    /// The span, or the instance, if that has one open span
    #[arg(value_name = "SPAN|INSTANCE")]
    span: String,
    #[command(flatten)]
    event: EventArguments,
}

/// Continues the usage of an instance with another plan, or with other quantities
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true))]
#[command(after_help = "\
Without --measure, the quantities stay as they are.

Examples:
  sampler update orders-db --plan-id larger
  sampler update orders-db --measure memory=1024 --measure storage=20 --at yesterday

Exit codes: 0 the event is kept, 1 it is refused, 2 the command line is wrong, or there are several open
spans of the instance, 3 the API gives no answer.")]
pub(crate) struct UpdateArguments {
    /// The span, or the instance, if that has one open span
    #[arg(value_name = "SPAN|INSTANCE")]
    span: String,
    /// The plan from now on
    #[arg(long, value_name = "ID", group = "change")]
    plan_id: Option<String>,
    /// All measures from now on, each with its quantity, a number
    #[arg(long = "measure", value_name = "NAME=NUMBER", value_parser = measure, group = "change")]
    measures: Vec<Measured>,
    #[command(flatten)]
    event: EventArguments,
}

/// The arguments of all events.
#[derive(Debug, Args)]
struct EventArguments {
    /// When it happened [default: now]
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    at: Option<Millis>,
    /// Tells a repeat from a new event [default: follows from what the event says]
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// A measure, with its quantity as it was written: none of its digits is lost.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Measured {
    measure: String,
    quantity: Box<RawValue>,
}

/// Whether two lists of measures say the same, whatever their order and however their numbers are written.
pub(crate) fn are_equal(one: &[Measured], other: &[Measured]) -> bool {
    let read = |measures: &[Measured]| -> Option<Vec<quantity::Measure>> {
        let text = serde_json::to_string(measures).ok()?;
        serde_json::from_str(&text).ok()
    };
    let (Some(one), Some(other)) = (read(one), read(other)) else {
        return false;
    };
    quantity::difference(&one, &other).is_none()
}

#[derive(Debug, Serialize)]
struct Body {
    #[serde(skip_serializing_if = "String::is_empty")]
    id: String,
    timestamp: Millis,
    #[serde(flatten)]
    target: Target,
    #[serde(skip_serializing_if = "Option::is_none")]
    measured_usage: Option<Vec<Measured>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    previous: Option<BTreeMap<&'static str, String>>,
}

fn measure(text: &str) -> Result<Measured, String> {
    let found = text.rsplit_once('=').and_then(|(measure, number)| {
        number.parse::<f64>().ok()?;
        let quantity = RawValue::from_string(number.to_owned()).ok()?;
        let measure = measure.to_owned();
        Some(Measured { measure, quantity })
    });
    found.ok_or_else(|| "write it as memory=512".to_owned())
}

pub(crate) async fn start(arguments: StartArguments) -> Result<ExitCode, Failure> {
    let api = Api::new(&arguments.event.common.connection)?;
    let target = Target {
        organization_id: arguments.organization_id,
        space_id: arguments.space_id,
        consumer_id: arguments.consumer_id,
        resource_id: arguments.resource_id,
        plan_id: arguments.plan_id,
        resource_instance_id: arguments.instance,
    };
    let measures = Some(arguments.measures);
    arguments
        .event
        .send(&api, "start", target, measures, None)
        .await
}

pub(crate) async fn stop(arguments: StopArguments) -> Result<ExitCode, Failure> {
    let api = Api::new(&arguments.event.common.connection)?;
    let Span { target, .. } = resolve::open_span(&api, &arguments.span).await?;
    arguments.event.send(&api, "stop", target, None, None).await
}

pub(crate) async fn update(arguments: UpdateArguments) -> Result<ExitCode, Failure> {
    let api = Api::new(&arguments.event.common.connection)?;
    let span = resolve::open_span(&api, &arguments.span).await?;
    let mut target = span.target;
    let mut previous = None;
    if let Some(plan) = arguments.plan_id.filter(|plan| *plan != target.plan_id) {
        let before = std::mem::replace(&mut target.plan_id, plan);
        previous = Some(BTreeMap::from([("plan_id", before)]));
    }
    let mut measures = arguments.measures;
    if measures.is_empty() {
        measures = kept(&span.measured_usage)?;
    }
    let event = &arguments.event;
    event
        .send(&api, "update", target, Some(measures), previous)
        .await
}

fn kept(measures: &[sampler_api::Measure]) -> Result<Vec<Measured>, Failure> {
    let kept: Result<_, serde_json::Error> = measures
        .iter()
        .map(|it| {
            let quantity = to_raw_value(&it.quantity)?;
            let measure = it.measure.clone();
            Ok(Measured { measure, quantity })
        })
        .collect();
    kept.map_err(|error| Failure::Input(error.to_string()))
}

impl EventArguments {
    async fn send(
        &self,
        api: &Api,
        kind: &str,
        subject: Target,
        measured_usage: Option<Vec<Measured>>,
        previous: Option<BTreeMap<&'static str, String>>,
    ) -> Result<ExitCode, Failure> {
        let timestamp = self.at.unwrap_or_else(clock::now);
        let mut body = Body {
            id: String::new(),
            timestamp,
            target: subject,
            measured_usage,
            previous,
        };
        let id = self.id.clone();
        body.id = id.unwrap_or_else(|| id_of_text(&format!("{kind} {}", text_of(&body))));
        let path = ["v1", "events", kind];
        match api.call(&Request::post(&path).json(&body)).await {
            Ok(answer) => self.tell(kind, &body, &answer),
            Err(error) => Err(unkept(error, &body)),
        }
    }

    fn tell(&self, kind: &str, body: &Body, answer: &Answer) -> Result<ExitCode, Failure> {
        let span = answer
            .location
            .as_deref()
            .and_then(|it| it.rsplit('/').next());
        if self.common.json {
            print_json(&json!({
                "id": body.id, "timestamp": body.timestamp, "span": span, "replayed": answer.is_replayed,
            }))?;
            return Ok(ExitCode::SUCCESS);
        }
        let (subject, at) = (target(&body.target), InWords(body.timestamp));
        let how = if answer.is_replayed {
            "was kept before"
        } else {
            "is kept"
        };
        let span = span.map_or_else(String::new, |id| {
            format!(" It is the span {}.", printable(id))
        });
        print(&format!("The {kind} of {subject} at {at} {how}.{span}\n"))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The failure of an event that may be kept all the same, unless the receiver refuses it for good.
fn unkept(error: ApiError, body: &Body) -> Failure {
    let is_half_kept = error.problem().is_some_and(Problem::has_stopped);
    if matches!(error.status(), Some(409 | 422)) && !is_half_kept {
        return Failure::Refused(error);
    }
    let may_be_kept = is_half_kept || !error.is_of_input();
    if may_be_kept {
        let (id, at) = (printable(&body.id), body.timestamp);
        note(&format!(
            "to send the same event again: the same command with --id {id} --at {at}"
        ));
    }
    error.into()
}

fn text_of(body: &Body) -> String {
    serde_json::to_string(body).expect("texts and numbers")
}

//! `start`, `stop` and `update`: one event, from options. `mapping`: a plan and those of Abacus.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Args;
use sampler_api::Problem;
use sampler_verify::Target;
use sampler_verify::moment::{InWords, Millis};
use sampler_verify::quantity::{self, Measure};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::api::{Api, ApiError, JSON};
use crate::failure::Failure;
use crate::moment::{now, time};
use crate::output::{note, printable};
use crate::show::{exit_code, show};
use crate::span;

/// Ids that follow from what events say are named in here.
const NAMESPACE: Uuid = Uuid::from_u128(0x9c3e_61f0_7d0b_4c55_8f0a_2f6b_1d94_e7a3);

/// Starts the usage of an instance
#[derive(Debug, Args, Serialize)]
#[command(after_help = "\
Examples:
  sampler start orders-db --organization-id acme --space-id prod --consumer-id shop \\
    --resource-id postgres --plan-id large --measure memory=512 --measure storage=20
  sampler start orders-db ... --at 2026-11-20T15:10:11Z")]
pub(crate) struct StartArguments {
    /// The instance that starts
    #[arg(value_name = "INSTANCE")]
    resource_instance_id: String,
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
    #[serde(skip)]
    measures: Vec<Measured>,
    #[command(flatten)]
    #[serde(skip)]
    event: EventArguments,
}

/// Stops the usage of an instance
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sampler stop orders-db
  sampler stop 6b0067e75a449b4a91561b99 --at -10m")]
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
  sampler update orders-db --measure memory=1024 --measure storage=20 --at yesterday")]
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
}

/// Maps a plan to the metering, rating and pricing plans of Abacus, before its first instance starts
#[derive(Debug, Args, Serialize)]
#[command(after_help = "\
A mapping is never changed: a plan that is mapped stays as it is, and the command ends with 1.

Examples:
  sampler mapping --resource-id postgres --plan-id large \\
    --metering-plan standard --rating-plan standard --pricing-plan standard")]
pub(crate) struct MappingArguments {
    /// The resource
    #[arg(long, value_name = "ID")]
    resource_id: String,
    /// Its plan
    #[arg(long, value_name = "ID")]
    plan_id: String,
    /// The metering plan of Abacus
    #[arg(long, value_name = "ID")]
    metering_plan: String,
    /// The rating plan of Abacus
    #[arg(long, value_name = "ID")]
    rating_plan: String,
    /// The pricing plan of Abacus
    #[arg(long, value_name = "ID")]
    pricing_plan: String,
}

/// An event as the receiver takes it.
#[derive(Debug, Serialize)]
pub(crate) struct Event {
    /// Empty where the address says it.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) r#type: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) id: String,
    pub(crate) timestamp: Millis,
    #[serde(flatten)]
    pub(crate) target: Target,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) measured_usage: Option<Vec<Measured>>,
    /// The ids that were others before an update.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) previous: Option<BTreeMap<&'static str, String>>,
}

/// A measure, with its quantity as it was written: none of its digits is lost.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Measured {
    measure: String,
    quantity: Box<RawValue>,
}

/// What matters here of a span of the receiver.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct SpanSeen {
    pub(crate) id: String,
    pub(crate) target: Target,
    pub(crate) measured_usage: Vec<Measured>,
    pub(crate) start: Millis,
    pub(crate) end: Option<Millis>,
}

impl Event {
    pub(crate) fn new(r#type: &'static str, target: Target, timestamp: Millis) -> Self {
        Self {
            r#type,
            id: String::new(),
            timestamp,
            target,
            measured_usage: None,
            previous: None,
        }
    }

    pub(crate) fn start(target: Target, timestamp: Millis, measures: Vec<Measured>) -> Self {
        Self {
            measured_usage: Some(measures),
            ..Self::new("start", target, timestamp)
        }
    }

    /// From now on it is another target, or has other measures.
    pub(crate) fn update(
        before: &Target,
        target: Target,
        timestamp: Millis,
        measures: Vec<Measured>,
    ) -> Self {
        let ids = before.ids().into_iter().zip(target.ids());
        let ids = Target::FIELDS.into_iter().zip(ids);
        let changed = ids.filter(|(_, (before, now))| before != now);
        let changed: BTreeMap<_, _> = changed
            .map(|(name, (before, _))| (name, before.to_owned()))
            .collect();
        Self {
            measured_usage: Some(measures),
            previous: (!changed.is_empty()).then_some(changed),
            ..Self::new("update", target, timestamp)
        }
    }

    /// The id follows from all else that the event says: the same again is a repeat.
    pub(crate) fn with_id(self) -> Self {
        let uuid = Uuid::new_v5(&NAMESPACE, self.body().as_bytes());
        let id = format!("sampler-{uuid}");
        Self { id, ..self }
    }

    pub(crate) fn body(&self) -> String {
        serde_json::to_string(self).expect("texts, numbers and lists of these")
    }
}

impl From<Measure> for Measured {
    fn from(Measure { measure, quantity }: Measure) -> Self {
        let quantity = RawValue::from_string(quantity.to_string()).expect("it is JSON");
        Self { measure, quantity }
    }
}

/// Measures by the values of their quantities, however these are written.
pub(crate) fn by_value(measures: &[Measured]) -> Option<Vec<Measure>> {
    serde_json::from_str(&serde_json::to_string(measures).ok()?).ok()
}

/// Whether two lists of measures say the same, whatever their order.
pub(crate) fn are_equal(one: &[Measured], other: &[Measured]) -> bool {
    let both = by_value(one).zip(by_value(other));
    both.is_some_and(|(one, other)| quantity::difference(&one, &other).is_none())
}

fn measure(text: &str) -> Result<Measured, String> {
    let found = text.rsplit_once('=').and_then(|(measure, number)| {
        quantity::read(number).ok().filter(Value::is_number)?;
        let quantity = RawValue::from_string(number.to_owned()).ok()?;
        let measure = measure.to_owned();
        Some(Measured { measure, quantity })
    });
    found.ok_or_else(|| "write it as memory=512".to_owned())
}

pub(crate) async fn start(arguments: StartArguments, api: &Api) -> Result<ExitCode, Failure> {
    let target = serde_json::from_value(json!(arguments));
    let target = target.expect("the members of a target");
    let event = Event::start(target, arguments.event.at(), arguments.measures);
    arguments.event.send(api, event).await
}

pub(crate) async fn stop(arguments: StopArguments, api: &Api) -> Result<ExitCode, Failure> {
    let span = span::open(api, &arguments.span).await?;
    let event = Event::new("stop", span.target, arguments.event.at());
    arguments.event.send(api, event).await
}

pub(crate) async fn update(arguments: UpdateArguments, api: &Api) -> Result<ExitCode, Failure> {
    let span = span::open(api, &arguments.span).await?;
    let mut target = span.target.clone();
    target.plan_id = arguments.plan_id.unwrap_or(target.plan_id);
    let measures = if arguments.measures.is_empty() {
        span.measured_usage
    } else {
        arguments.measures
    };
    let event = Event::update(&span.target, target, arguments.event.at(), measures);
    arguments.event.send(api, event).await
}

impl EventArguments {
    fn at(&self) -> Millis {
        self.at.unwrap_or_else(now)
    }

    async fn send(&self, api: &Api, event: Event) -> Result<ExitCode, Failure> {
        let kind = event.r#type;
        let mut event = event.with_id();
        event.r#type = "";
        if let Some(id) = &self.id {
            event.id.clone_from(id);
        }
        let answer = api.post(&["v1", "events", kind], JSON, event.body()).await;
        let answer = answer.map_err(|error| unkept(error, &event))?;
        let location = answer.header("location");
        let span = location.and_then(|it| it.rsplit('/').next());
        let is_replayed = answer.header("idempotent-replayed") == Some("true");
        let document = json!({
            "id": event.id, "timestamp": event.timestamp, "span": span, "replayed": is_replayed,
        });
        show(&document, || {
            let subject = printable(&event.target.to_string());
            let at = InWords(event.timestamp);
            let how = if is_replayed {
                "was kept before"
            } else {
                "is kept"
            };
            let span = span.map(|id| format!(" The span is {id}."));
            let span = span.unwrap_or_default();
            format!("The {kind} of {subject} at {at} {how}.{span}\n")
        })
    }
}

/// The failure of an event that may be kept all the same, unless the receiver refuses it for good.
fn unkept(error: ApiError, event: &Event) -> Failure {
    let is_half_kept = error.problem().is_some_and(Problem::has_stopped);
    if matches!(error.status(), Some(409 | 422)) && !is_half_kept {
        return Failure::Refused(error);
    }
    if is_half_kept || !error.is_of_input() {
        let (id, at) = (&event.id, event.timestamp);
        note(&format!(
            "to send the same event again: the same command with --id {id} --at {at}"
        ));
    }
    error.into()
}

pub(crate) async fn mapping(arguments: MappingArguments, api: &Api) -> Result<ExitCode, Failure> {
    let body = json!(arguments).to_string();
    let (is_new, how) = match api.post(&["v1", "mappings"], JSON, body).await {
        Ok(_) => (true, "is mapped"),
        Err(error) if error.problem().map(Problem::name) == Some("mapping-exists") => {
            (false, "was mapped before, and stays as it is")
        }
        Err(error) => return Err(error.into()),
    };
    show(&json!({ "mapping": arguments, "made": is_new }), || {
        let (resource, plan) = (&arguments.resource_id, &arguments.plan_id);
        format!("The plan {plan} of {resource} {how}.\n")
    })?;
    Ok(exit_code(is_new))
}

//! `suspended` lists causes; `resume`, `skip` and `resend` are actions; `audit` lists all actions.

use std::process::ExitCode;

use clap::Args;
use reqwest::Method;
use sampler_api::{Cause, List, Reason, Resumed, SkipRequest, Span, Usage};
use sampler_verify::words::counted;
use serde::Serialize;
use serde_json::Value;

use crate::api::{Api, Query, Request};
use crate::failure::Failure;
use crate::listing::{Common, Length, Period, add, print_list};
use crate::moment::FORMS;
use crate::output::{printable, warn};
use crate::resolve;
use crate::show::{As, Column, show_answer, table_of};
use crate::span::MAY_COUNT;

const CAUSES: [Column; 9] = [
    ("cause", "/cause", As::Text),
    ("status", "/status", As::Text),
    ("error", "/error", As::Text),
    ("resource", "/resource_id", As::Text),
    ("plan", "/plan_id", As::Text),
    ("spans", "/spans", As::Number),
    ("set aside", "/set_aside", As::Number),
    ("since", "/since", As::Time),
    ("probe at", "/probe_at", As::Time),
];

const ACTS: [Column; 7] = [
    ("at", "/at", As::Time),
    ("who", "/who", As::Text),
    ("act", "/act", As::Text),
    ("subject", "/subject", As::Text),
    ("outcome", "/outcome", As::Text),
    ("reason", "/reason", As::Text),
    ("id", "/id", As::Text),
];

/// Lists the causes of suspended spans, the cause of the most spans first
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sampler suspended
  sampler suspended --resource-id postgres
  sampler spans --cause 0b7c7f6e-3a06-5a7e-9d15-6d2f3b8a6a52    # the spans of a cause
  sampler resume --cause 0b7c7f6e-3a06-5a7e-9d15-6d2f3b8a6a52 --reason \"the plan is mapped now\"")]
pub(crate) struct SuspendedArguments {
    /// Only causes of this resource
    #[arg(long, value_name = "ID")]
    resource_id: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// Resumes suspended spans: those of a cause, or one
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
#[command(after_help = "\
Examples:
  sampler resume --cause 0b7c7f6e-3a06-5a7e-9d15-6d2f3b8a6a52 --reason \"the plan is mapped now\"
  sampler resume --span orders-db --reason \"the plan is mapped now\"")]
pub(crate) struct ResumeArguments {
    /// All spans of this cause, of `sampler suspended`
    #[arg(long, value_name = "CAUSE", group = "what")]
    cause: Option<String>,
    /// One span, or an instance that has one span
    #[arg(long, value_name = "SPAN|INSTANCE", group = "what")]
    span: Option<String>,
    #[command(flatten)]
    act: ActionArguments,
}

/// Skips the usage that the upstream refuses: it is not billed, unless it is sent again
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sampler skip orders-db ad1f2853-43e0-5cbf-b4f7-39fd0d67600c --reason \"billed by hand\"")]
pub(crate) struct SkipArguments {
    /// The span, or an instance that has one span
    #[arg(value_name = "SPAN|INSTANCE")]
    span: String,
    /// The usage that is skipped, as `sampler span` shows it
    #[arg(value_name = "USAGE")]
    usage: String,
    #[command(flatten)]
    act: ActionArguments,
}

/// Sends a usage again that was skipped or set aside
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sampler resend ad1f2853-43e0-5cbf-b4f7-39fd0d67600c --reason \"the plan exists now\"")]
pub(crate) struct ResendArguments {
    /// The usage, as `sampler span` shows it
    #[arg(value_name = "USAGE")]
    usage: String,
    #[command(flatten)]
    act: ActionArguments,
}

/// Lists the actions of operators, the newest first
#[derive(Debug, Args)]
#[command(after_help = format!("\
{FORMS}

Examples:
  sampler audit --from -7d
  sampler audit --who ann --span orders-db"))]
pub(crate) struct AuditArguments {
    /// Only what this user or client did
    #[arg(long, value_name = "NAME")]
    who: Option<String>,
    /// Only what was done to this span alone (not to its cause), or to the one of this instance
    #[arg(long, value_name = "SPAN|INSTANCE")]
    span: Option<String>,
    #[command(flatten)]
    period: Period,
    #[command(flatten)]
    length: Length,
    #[command(flatten)]
    common: Common,
}

/// The arguments of all actions.
#[derive(Debug, Args)]
pub(crate) struct ActionArguments {
    /// Why, for the audit trail: 1 to 1,000 characters
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) common: Common,
}

impl ActionArguments {
    fn body(&self) -> Reason {
        let reason = self.reason.clone();
        Reason { reason }
    }
}

pub(crate) async fn suspended(arguments: SuspendedArguments) -> Result<ExitCode, Failure> {
    let path = ["v1", "suspended"];
    let mut query = Query::new();
    add(&mut query, "resource_id", arguments.resource_id);
    let api = Api::new(&arguments.common.connection)?;
    let answer = api.call(&Request::get(&path).query(query)).await?;
    show_answer(&arguments.common, &answer, &path, |causes: &List<Value>| {
        let more: String = causes.items.iter().filter_map(more_line).collect();
        table_of(&causes.items, &CAUSES, "No spans are suspended.") + &more
    })
}

/// What is said below the table of a resource with more causes than are listed.
fn more_line(cause: &Value) -> Option<String> {
    let more = cause["more"].as_u64().filter(|more| *more > 0)?;
    let resource = printable(cause["resource_id"].as_str()?);
    Some(format!("{more} more of {resource}: see --resource-id\n"))
}

pub(crate) async fn resume(arguments: ResumeArguments) -> Result<ExitCode, Failure> {
    let act = &arguments.act;
    let api = Api::new(&act.common.connection)?;
    let body = act.body();
    if let Some(cause) = &arguments.cause {
        let path = ["v1", "suspended", cause, "resume"];
        let answer = api.call(&Request::act(Method::POST, &path, &body)).await?;
        return show_answer(&act.common, &answer, &path, |answer: &Resumed| {
            format!("Workers resume {}.\n", at_least(answer.resumed))
        });
    }
    let span = arguments.span.as_deref().unwrap_or_default();
    on_span(&api, span, "resume", &body, &act.common, |_| String::new()).await
}

/// `812 spans`, or `at least 100,000 spans`: no more are counted.
fn at_least(spans: u64) -> String {
    let bound = if spans >= Cause::COUNTED_MAX {
        "at least "
    } else {
        ""
    };
    format!("{bound}{}", counted(spans, "span"))
}

pub(crate) async fn skip(arguments: SkipArguments) -> Result<ExitCode, Failure> {
    let act = &arguments.act;
    let api = Api::new(&act.common.connection)?;
    let body = SkipRequest {
        reason: act.reason.clone(),
        usage_id: arguments.usage.clone(),
    };
    on_span(&api, &arguments.span, "skip", &body, &act.common, skipped).await
}

/// What follows a skip.
fn skipped(span: &Span) -> String {
    let doubt = if span.delivery.unanswered {
        format!("But {MAY_COUNT}. Ask before anybody bills it by hand.\n")
    } else {
        String::new()
    };
    format!(
        "A worker skips the usage five minutes after its last refusal, or once sampling is no longer \
         paused.\n{doubt}"
    )
}

pub(crate) async fn resend(arguments: ResendArguments) -> Result<ExitCode, Failure> {
    let act = &arguments.act;
    let api = Api::new(&act.common.connection)?;
    let path = ["v1", "usages", &arguments.usage, "resend"];
    let request = Request::act(Method::POST, &path, &act.body());
    let answer = api.call(&request).await?;
    show_answer(&act.common, &answer, &path, |_: &Usage| {
        "A worker sends the usage again.\n".to_owned()
    })
}

pub(crate) async fn audit(arguments: AuditArguments) -> Result<ExitCode, Failure> {
    let mut query = Query::new();
    arguments.period.add_to(&mut query);
    add(&mut query, "who", arguments.who.as_ref());
    add(&mut query, "span", span_of(&arguments).await?);
    let (common, length) = (&arguments.common, &arguments.length);
    print_list(
        common,
        &["v1", "audit"],
        &query,
        length,
        &ACTS,
        "No actions.",
    )
    .await
}

/// The span that is asked for. A removed span still has a trail.
async fn span_of(arguments: &AuditArguments) -> Result<Option<String>, Failure> {
    let Some(given) = &arguments.span else {
        return Ok(None);
    };
    let api = Api::new(&arguments.common.connection)?;
    match resolve::span(&api, given).await {
        Ok(found) => Ok(Some(found.id)),
        Err(Failure::NotFound(..)) => {
            warn(
                "no span and no instance has this name now; it is taken as the id of a removed span",
            );
            Ok(Some(given.clone()))
        }
        Err(failure) => Err(failure),
    }
}

/// Does something to a span as it is now: a change by somebody else in between makes it fail. `then` says
/// what follows.
async fn on_span(
    api: &Api,
    span: &str,
    act: &str,
    body: &impl Serialize,
    common: &Common,
    then: fn(&Span) -> String,
) -> Result<ExitCode, Failure> {
    let found = resolve::span(api, span).await?;
    let path = ["v1", "spans", &found.id, act];
    let request = Request::act(Method::POST, &path, body).if_match(found.answer.etag);
    let answer = api.call(&request).await?;
    show_answer(common, &answer, &path, |span: &Span| {
        let (id, state) = (printable(&span.id), printable(&span.state));
        format!(
            "The span {id} is {state}, sampled to {}.\n{}",
            span.sampled_to,
            then(span)
        )
    })
}

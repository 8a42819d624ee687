//! `resume`, `skip` and `resend`: what operators do about refused usages. `backlog`, and `control`: how much there is to
//! do, and how much is admitted.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use reqwest::Method;
use sampler_api::{Control, Resumed, Span, Timestamp};
use sampler_verify::moment::Millis;
use sampler_verify::words::counted;
use serde_json::{Value, json};

use crate::api::{Answer, Api, ApiError, Query};
use crate::failure::{Failure, words_of};
use crate::listing::Period;
use crate::moment::{FORMS, time};
use crate::output::{Progress, wants_json, warn};
use crate::show::{exit_code, facts, show};
use crate::span::{self, proof_in_words};

const CONTROL: [&str; 2] = ["v1", "control"];

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

/// Skips what the upstream refuses: it is not billed, unless it is sent again
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
#[command(after_help = format!("\
With --cause, spans that end before --until are skipped to their end. What was skipped when the command was
ended stays skipped, and the same command continues.
{FORMS}

Examples:
  sampler skip orders-db --reason \"billed by hand\"
  sampler skip orders-db --until 2026-11-01 --reason \"billed by hand\"
  sampler skip --cause 0b7c7f6e-3a06-5a7e-9d15-6d2f3b8a6a52 --until 2026-11-01 --reason \"billed by hand\""))]
pub(crate) struct SkipArguments {
    /// The span, or an instance that has one span
    #[arg(value_name = "SPAN|INSTANCE", group = "what")]
    span: Option<String>,
    /// All spans of this cause, of `sampler suspended`, one after the other
    #[arg(long, value_name = "CAUSE", group = "what")]
    cause: Option<String>,
    /// Up to this time, a boundary of the span's windows [default: the end of the refused usage]
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    until: Option<Millis>,
    #[command(flatten)]
    act: ActionArguments,
}

/// Sends again what was skipped, or a usage that the upstream has set aside
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
#[command(after_help = format!("\
{FORMS}

Examples:
  sampler resend orders-db --reason \"the plan is mapped now\"
  sampler resend orders-db --from 2026-11-01 --to 2026-11-02 --reason \"the plan is mapped now\"
  sampler resend --usage ad1f2853-43e0-5cbf-b4f7-39fd0d67600c --reason \"the plan exists now\""))]
pub(crate) struct ResendArguments {
    /// The span, or an instance that has one span
    #[arg(value_name = "SPAN|INSTANCE", group = "what")]
    span: Option<String>,
    /// A usage that was accepted, and is missing at the upstream
    #[arg(long, value_name = "USAGE", group = "what", conflicts_with_all = ["from", "to"])]
    usage: Option<String>,
    #[command(flatten)]
    period: Period,
    #[command(flatten)]
    act: ActionArguments,
}

/// Shows how much sampling is behind
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sampler backlog
  sampler backlog --json")]
pub(crate) struct BacklogArguments {}

/// Shows or sets how many starts are admitted, and whether sampling is paused
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sampler control
  sampler control set --rate 50 --reason \"the upstream is slow today\"")]
pub(crate) struct ControlArguments {
    #[command(subcommand)]
    command: Option<ControlCommand>,
}

#[derive(Debug, Subcommand)]
enum ControlCommand {
    Set(SetArguments),
}

/// Sets what is given, and leaves the rest as it is
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true))]
#[command(after_help = "\
Examples:
  sampler control set --paused true --reason \"maintenance of the upstream until 15:00\"
  sampler control set --rate 100 --resource postgres=50 --reason \"gentle start\"
  sampler control set --resource postgres --reason \"back to the common rate\"")]
struct SetArguments {
    /// The percentage of new starts that are admitted; 0 drains
    #[arg(long, value_name = "PERCENT", group = "change")]
    rate: Option<f64>,
    /// The same for one resource; the two rates multiply. Without a percentage, its own rate is removed
    #[arg(long, value_name = "ID[=PERCENT]", group = "change", value_parser = resource_rate)]
    resource: Vec<(String, Option<f64>)>,
    /// Whether sampling is paused
    #[arg(long, value_name = "BOOL", group = "change")]
    paused: Option<bool>,
    /// Whether the controller adjusts the rate
    #[arg(long, value_name = "BOOL", group = "change")]
    controller: Option<bool>,
    /// The time that the backlog may need, in seconds, for the controller
    #[arg(long, value_name = "SECONDS", group = "change")]
    target_seconds: Option<f64>,
    /// The proportional gain of the controller
    #[arg(long, value_name = "K", group = "change")]
    kp: Option<f64>,
    /// The integral gain of the controller
    #[arg(long, value_name = "K", group = "change")]
    ki: Option<f64>,
    /// The derivative gain of the controller
    #[arg(long, value_name = "K", group = "change")]
    kd: Option<f64>,
    #[command(flatten)]
    act: ActionArguments,
}

/// The arguments of all actions.
#[derive(Debug, Args)]
struct ActionArguments {
    /// Why, for the audit trail: 1 to 1,000 characters
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

impl ActionArguments {
    /// The reason, with the times that are given.
    fn body(&self, times: &[(&str, Option<Millis>)]) -> Value {
        let mut body = json!({ "reason": self.reason });
        for (name, time) in times {
            if let Some(time) = time {
                body[*name] = json!(time);
            }
        }
        body
    }
}

pub(crate) async fn resume(arguments: ResumeArguments, api: &Api) -> Result<ExitCode, Failure> {
    let body = arguments.act.body(&[]);
    let Some(cause) = &arguments.cause else {
        return on_span(api, arguments.span, "resume", &body).await;
    };
    let path = ["v1", "suspended", cause, "resume"];
    let answer = api.act(Method::POST, &path, &body, None).await?;
    let resumed: Resumed = answer.read()?;
    show(&resumed, || {
        format!("{} resumed.\n", counted(resumed.resumed, "span"))
    })
}

pub(crate) async fn resend(arguments: ResendArguments, api: &Api) -> Result<ExitCode, Failure> {
    let Period { from, to } = arguments.period;
    let body = arguments.act.body(&[("from", from), ("to", to)]);
    let Some(usage) = &arguments.usage else {
        return on_span(api, arguments.span, "resend", &body).await;
    };
    let path = ["v1", "unconfirmed", usage, "resend"];
    let answer = api.act(Method::POST, &path, &body, None).await?;
    show(&answer.read::<Value>()?, || {
        "A worker sends the usage again.\n".to_owned()
    })
}

pub(crate) async fn skip(arguments: SkipArguments, api: &Api) -> Result<ExitCode, Failure> {
    if let Some(cause) = &arguments.cause {
        return skip_all(api, cause, &arguments).await;
    }
    let body = arguments.act.body(&[("until", arguments.until)]);
    on_span(api, arguments.span, "skip", &body).await
}

/// Does something to a span, or to the one of an instance, and shows the span after that.
async fn on_span(
    api: &Api,
    given: Option<String>,
    act: &str,
    body: &Value,
) -> Result<ExitCode, Failure> {
    let found = span::one(api, &given.unwrap_or_default()).await?;
    let answer = act_on(api, &found, act, body).await?;
    let span: Span = answer.read()?;
    show(&answer.read::<Value>()?, || {
        let (id, state, to) = (&span.id, &span.state, span.sampled_to);
        let proof = proof_in_words(&span.proof);
        format!("The span {id} is {state}, sampled to {to}: {proof}.\n")
    })
}

/// Does something to a span as it was read: a change by somebody else since then makes it fail.
async fn act_on(api: &Api, read: &Answer, act: &str, body: &Value) -> Result<Answer, ApiError> {
    let Span { id, .. } = read.read()?;
    let path = ["v1", "spans", &id, act];
    api.act(Method::POST, &path, body, read.header("etag"))
        .await
}

/// Skips all spans of a cause, one after the other. A span that cannot be skipped is told, and the others follow.
async fn skip_all(api: &Api, cause: &str, arguments: &SkipArguments) -> Result<ExitCode, Failure> {
    // An unknown cause is a mistake.
    api.get(&["v1", "suspended", cause], &Query::new()).await?;
    let query = [("state", "suspended"), ("cause", cause)];
    let query: Query = query.map(|(name, value)| (name, value.to_owned())).into();
    let path = ["v1", "spans"];
    let (spans, _) = api.items::<Span>(&path, &query, usize::MAX).await?;
    let progress = Progress::to(Some(spans.len() as u64));
    let mut refused = Vec::new();
    for (done, span) in (0..).zip(&spans) {
        progress.show(done, "spans", "");
        let Err(error) = skip_one(api, span, arguments).await else {
            continue;
        };
        match (error.status(), error.problem()) {
            (Some(400 | 404 | 409 | 412 | 422), Some(problem)) => {
                refused.push(json!({ "span": span.id, "problem": problem }));
                if !wants_json() {
                    let words = words_of(problem);
                    warn(&format!("the span {} is not skipped: {words}", span.id));
                }
            }
            _ => return Err(error.into()),
        }
    }
    progress.finish();
    let skipped = spans.len() - refused.len();
    show(&json!({ "skipped": skipped, "refused": refused }), || {
        format!("{} skipped.\n", counted(skipped, "span"))
    })?;
    Ok(exit_code(refused.is_empty()))
}

/// Skips a span of a cause, but not beyond its end.
async fn skip_one(api: &Api, span: &Span, arguments: &SkipArguments) -> Result<(), ApiError> {
    let read = api.get(&["v1", "spans", &span.id], &Query::new()).await?;
    let end = read.read::<Span>()?.end.map(Timestamp::as_millis);
    let until = arguments.until;
    let until = until.map(|until| end.map_or(until, |end| until.min(end)));
    let body = arguments.act.body(&[("until", until)]);
    act_on(api, &read, "skip", &body).await?;
    Ok(())
}

pub(crate) async fn backlog(api: &Api) -> Result<ExitCode, Failure> {
    shown(&api.get(&["v1", "backlog"], &Query::new()).await?)
}

pub(crate) async fn control(arguments: ControlArguments, api: &Api) -> Result<ExitCode, Failure> {
    let now = api.get(&CONTROL, &Query::new()).await?;
    let Some(ControlCommand::Set(set)) = arguments.command else {
        return shown(&now);
    };
    let mut control: Control = now.read()?;
    set.change(&mut control);
    let body = control.with_reason(set.act.reason);
    let etag = now.header("etag");
    shown(&api.act(Method::PUT, &CONTROL, &body, etag).await?)
}

fn shown(answer: &Answer) -> Result<ExitCode, Failure> {
    let document: Value = answer.read()?;
    show(&document, || facts(&document))
}

impl SetArguments {
    fn change(&self, control: &mut Control) {
        set(&mut control.starts.rate, self.rate);
        set(&mut control.sampling.paused, self.paused);
        let controller = &mut control.controller;
        set(&mut controller.enabled, self.controller);
        set(&mut controller.target_seconds, self.target_seconds);
        set(&mut controller.kp, self.kp);
        set(&mut controller.ki, self.ki);
        set(&mut controller.kd, self.kd);
        for (resource, rate) in &self.resource {
            match rate {
                Some(rate) => control.starts.resources.insert(resource.clone(), *rate),
                None => control.starts.resources.remove(resource),
            };
        }
    }
}

fn set<T: Copy>(field: &mut T, value: Option<T>) {
    *field = value.unwrap_or(*field);
}

/// A resource may have the sign in its name.
fn resource_rate(text: &str) -> Result<(String, Option<f64>), String> {
    let Some((resource, rate)) = text.rsplit_once('=') else {
        return Ok((text.to_owned(), None));
    };
    let rate = rate.parse().map_err(|_| "it is not a percentage")?;
    Ok((resource.to_owned(), Some(rate)))
}

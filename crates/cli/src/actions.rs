//! `suspended` lists causes; `resume`, `skip` and `resend` are actions; `audit` lists all actions.

use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use reqwest::Method;
use sampler_api::{List, Problem, Reason, Resumed, Span, Timestamp, Unconfirmed};
use sampler_verify::moment::Millis;
use sampler_verify::words::counted;
use serde_json::{Value, json};

use crate::api::{Answer, Api, ApiError, Query, Request, words_of};
use crate::failure::Failure;
use crate::listing::{Common, Length, Period, add, print_list};
use crate::moment::{FORMS, time};
use crate::output::{print, printable, warn};
use crate::progress::Progress;
use crate::resolve;
use crate::show::{As, Column, length_in_words, print_json, show_answer, table_of};

const CAUSES: [Column; 7] = [
    ("cause", "/cause", As::Text),
    ("status", "/status", As::Text),
    ("error", "/error", As::Text),
    ("resource", "/resource_id", As::Text),
    ("plan", "/plan_id", As::Text),
    ("spans", "/spans", As::Number),
    ("since", "/since", As::Time),
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
  sampler skip --cause 0b7c7f6e-3a06-5a7e-9d15-6d2f3b8a6a52 --until 2026-11-01 --reason \"billed by hand\"

Exit codes: 0 all are skipped, 1 some are not, 2 the command line is wrong, or there is no such span or cause,
3 the API gives no answer."))]
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
        table_of(&causes.items, &CAUSES, "No spans are suspended.")
    })
}

pub(crate) async fn resume(arguments: ResumeArguments) -> Result<ExitCode, Failure> {
    let act = &arguments.act;
    let api = Api::new(&act.common.connection)?;
    let body = act.body();
    if let Some(cause) = &arguments.cause {
        let path = ["v1", "suspended", cause, "resume"];
        let answer = api.call(&Request::act(Method::POST, &path, &body)).await?;
        return show_answer(&act.common, &answer, &path, |answer: &Resumed| {
            format!("{} resumed.\n", counted(answer.resumed, "span"))
        });
    }
    let span = arguments.span.as_deref().unwrap_or_default();
    on_span(&api, span, "resume", &json!(body), &act.common).await
}

pub(crate) async fn skip(arguments: SkipArguments) -> Result<ExitCode, Failure> {
    let act = &arguments.act;
    let api = Api::new(&act.common.connection)?;
    if let Some(cause) = &arguments.cause {
        return skip_all(&api, cause, &arguments).await;
    }
    let mut body = json!(act.body());
    body.add("until", arguments.until);
    let span = arguments.span.as_deref().unwrap_or_default();
    on_span(&api, span, "skip", &body, &act.common).await
}

/// Why spans of a cause were not skipped.
#[derive(Default)]
struct Skipped {
    spans: u64,
    refused: Vec<(String, Problem)>,
}

/// Skips all spans of a cause, one after the other. A span that cannot be skipped is told, and the others follow.
async fn skip_all(api: &Api, cause: &str, arguments: &SkipArguments) -> Result<ExitCode, Failure> {
    api.single(&["v1", "suspended", cause]).await?;
    let query = vec![
        ("state", "suspended".to_owned()),
        ("cause", cause.to_owned()),
    ];
    let (spans, _) = api
        .items::<Span>(&["v1", "spans"], &query, usize::MAX)
        .await?;
    let mut progress = Progress::to(Some(spans.len() as u64));
    let mut skipped = Skipped::default();
    for (at, span) in (0..).zip(&spans) {
        progress.show(at, at, "spans", "");
        match skip_one(api, &span.id, arguments).await {
            Ok(()) => skipped.spans += 1,
            Err(error) => match error.problem().cloned() {
                Some(problem) if error.status().is_some_and(|status| status < 500) => {
                    skipped.refused.push((span.id.clone(), problem));
                }
                _ => return Err(error.into()),
            },
        }
    }
    progress.finish();
    skipped.tell(arguments.act.common.json)
}

async fn skip_one(api: &Api, id: &str, arguments: &SkipArguments) -> Result<(), ApiError> {
    let read = api.single(&["v1", "spans", id]).await?;
    let span: Span = read.read(&["v1", "spans", id])?;
    let end = span.end.map(Timestamp::as_millis);
    let until = arguments
        .until
        .map(|until| end.map_or(until, |end| until.min(end)));
    let mut body = json!(arguments.act.body());
    body.add("until", until);
    act_on(api, id, read.etag, "skip", &body).await?;
    Ok(())
}

impl Skipped {
    fn tell(&self, is_json: bool) -> Result<ExitCode, Failure> {
        if is_json {
            let refused = self.refused.iter();
            let refused =
                refused.map(|(span, problem)| json!({ "span": span, "problem": problem }));
            print_json(&json!({ "skipped": self.spans, "refused": refused.collect::<Value>() }))?;
        } else {
            for (span, problem) in &self.refused {
                warn(&format!(
                    "the span {} is not skipped: {}",
                    printable(span),
                    words_of(problem)
                ));
            }
            print(&format!("{} skipped.\n", counted(self.spans, "span")))?;
        }
        Ok(ExitCode::from(u8::from(!self.refused.is_empty())))
    }
}

pub(crate) async fn resend(arguments: ResendArguments) -> Result<ExitCode, Failure> {
    let act = &arguments.act;
    let api = Api::new(&act.common.connection)?;
    if let Some(usage) = &arguments.usage {
        let path = ["v1", "unconfirmed", usage, "resend"];
        let request = Request::act(Method::POST, &path, &act.body());
        let answer = api.call(&request).await?;
        return show_answer(&act.common, &answer, &path, |_: &Unconfirmed| {
            "A worker sends the usage again.\n".to_owned()
        });
    }
    let mut body = json!(act.body());
    body.add("from", arguments.period.from);
    body.add("to", arguments.period.to);
    let span = arguments.span.as_deref().unwrap_or_default();
    on_span(&api, span, "resend", &body, &act.common).await
}

/// Adds members to a body.
trait Members {
    /// Adds a time, if there is one.
    fn add(&mut self, name: &str, time: Option<Millis>);
}

impl Members for Value {
    fn add(&mut self, name: &str, time: Option<Millis>) {
        if let Some(time) = time {
            self[name] = json!(time);
        }
    }
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

/// Does something to a span as it is now: a change by somebody else in between makes it fail.
async fn on_span(
    api: &Api,
    span: &str,
    act: &str,
    body: &Value,
    common: &Common,
) -> Result<ExitCode, Failure> {
    let found = resolve::span(api, span).await?;
    let answer = act_on(api, &found.id, found.answer.etag, act, body).await?;
    show_answer(common, &answer, &["v1", "spans", &found.id, act], in_words)
}

async fn act_on(
    api: &Api,
    id: &str,
    etag: Option<String>,
    act: &str,
    body: &Value,
) -> Result<Answer, ApiError> {
    let path = ["v1", "spans", id, act];
    let request = Request::act(Method::POST, &path, body).if_match(etag);
    api.call(&request).await
}

/// The span after an action.
fn in_words(span: &Span) -> String {
    let (id, state) = (printable(&span.id), printable(&span.state));
    let mut words = format!(
        "The span {id} is {state}, sampled to {}.\n",
        span.sampled_to
    );
    let proof = &span.proof;
    if proof.skipped != 0 {
        let skipped = length_in_words(proof.skipped);
        let _ = writeln!(words, "Skipped, or to be sent again: {skipped}.");
    }
    if proof.unanswered != 0 {
        let unanswered = length_in_words(proof.unanswered);
        let _ = writeln!(
            words,
            "The upstream may count {unanswered} of that: a post had no answer. Ask before anybody bills it by \
             hand."
        );
    }
    words
}

//! `spans`, `usages`, `suspended` and `audit`: what the API lists, and the options that all lists share.

use std::num::NonZeroUsize;
use std::process::ExitCode;

use clap::Args;
use sampler_api::{List, Span};
use sampler_verify::moment::Millis;
use serde_json::{Value, json};

use crate::api::{Api, Query};
use crate::connection::Connection;
use crate::failure::Failure;
use crate::moment::{FORMS, time};
use crate::output::warn;
use crate::show::{show, table_of};
use crate::span;

const SPANS: &str = "id target start end state sampled_to proof/billed proof/unsampled";
const SUMS: &str = "window/start window/end group usages duration measures";
const CAUSES: &str = "cause status error resource_id plan_id spans since";
const ACTS: &str = "at who act subject outcome reason id";

/// The options of every command: the form of the output, and the address of the API.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Prints one JSON document instead of tables
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// How much of a list is wanted.
#[derive(Debug, Args)]
pub(crate) struct Length {
    /// How many at most
    #[arg(long, value_name = "N", default_value = "100")]
    limit: NonZeroUsize,
    /// The whole list
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

/// A period of time.
#[derive(Debug, Default, Args)]
pub(crate) struct Period {
    /// From this time on, as in `2026-11-20`, `yesterday`, `-2d`
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    pub(crate) from: Option<Millis>,
    /// Until this time, without it
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    pub(crate) to: Option<Millis>,
}

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Target")]
#[expect(clippy::struct_field_names, reason = "so the API calls them")]
pub(crate) struct TargetFilter {
    /// Of this organization
    #[arg(long, value_name = "ID")]
    organization_id: Option<String>,
    /// Of this space
    #[arg(long, value_name = "ID")]
    space_id: Option<String>,
    /// Of this consumer
    #[arg(long, value_name = "ID")]
    consumer_id: Option<String>,
    /// Of this resource
    #[arg(long, visible_alias = "resource", value_name = "ID")]
    resource_id: Option<String>,
    /// Of this plan
    #[arg(long, value_name = "ID")]
    plan_id: Option<String>,
    /// Of this instance
    #[arg(long, visible_alias = "instance", value_name = "ID")]
    resource_instance_id: Option<String>,
}

/// Lists spans, the newest start first
#[derive(Debug, Args)]
#[command(after_help = format!("\
One of --organization-id, --resource-id, --resource-instance-id, --state suspended and --excluded must be given.
BILLED and UNSAMPLED (not billed yet) are hours:minutes:seconds. --from and --to keep spans that overlap the time between them.
{FORMS}

Examples:
  sampler spans --resource-instance-id orders-db
  sampler spans --organization-id acme --state open
  sampler spans --excluded
  sampler spans --resource-id postgres --from 2026-11-01 --to 2026-12-01 --all --json"))]
pub(crate) struct SpansArguments {
    /// Only spans in this state
    #[arg(long, value_parser = ["open", "stopped", "complete", "suspended"])]
    state: Option<String>,
    /// Only spans that are suspended for this cause, of `sampler suspended`
    #[arg(long, value_name = "CAUSE")]
    cause: Option<String>,
    /// Only spans of which something is skipped
    #[arg(long)]
    excluded: bool,
    #[command(flatten)]
    period: Period,
    #[command(flatten)]
    length: Length,
    #[command(flatten)]
    target: TargetFilter,
}

/// Sums up what was billed, by window and group
#[derive(Debug, Args)]
#[command(after_help = format!("\
One of --organization-id, --resource-id and --resource-instance-id must be given, and --from and --to
for windows other than all. DURATION is hours:minutes:seconds. An amount is quantity times duration in
ms; where the operator has named the unit of a measure, it is shown by the hour, too. {FORMS}

Examples:
  sampler usages --organization-id acme --group-by resource_id,plan_id
  sampler usages --resource-instance-id orders-db --window day --from -7d --to today"))]
pub(crate) struct UsagesArguments {
    /// A sum for each of these windows
    #[arg(long, value_parser = ["hour", "day", "month", "all"], default_value = "all")]
    window: String,
    /// A sum for each value of these ids, as in `resource_id,plan_id`
    #[arg(long, value_name = "IDS")]
    group_by: Option<String>,
    /// Only usages that the upstream had accepted by then: the figures of an earlier invoice
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    accepted_to: Option<Millis>,
    #[command(flatten)]
    period: Period,
    #[command(flatten)]
    length: Length,
    #[command(flatten)]
    target: TargetFilter,
}

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
}

impl Period {
    pub(crate) fn add_to(&self, query: &mut Query) {
        add(query, "from", self.from);
        add(query, "to", self.to);
    }
}

impl TargetFilter {
    /// The names of the ids, and those that were given.
    pub(crate) fn ids(&self) -> [(&'static str, Option<&String>); 6] {
        [
            ("organization_id", self.organization_id.as_ref()),
            ("space_id", self.space_id.as_ref()),
            ("consumer_id", self.consumer_id.as_ref()),
            ("resource_id", self.resource_id.as_ref()),
            ("plan_id", self.plan_id.as_ref()),
            ("resource_instance_id", self.resource_instance_id.as_ref()),
        ]
    }

    pub(crate) fn add_to(&self, query: &mut Query) {
        for (name, id) in self.ids() {
            add(query, name, id);
        }
    }
}

/// Adds a parameter, if it has a value.
pub(crate) fn add(query: &mut Query, name: &'static str, value: Option<impl ToString>) {
    query.extend(value.map(|value| (name, value.to_string())));
}

/// Reads a list and prints it: these columns for people, or that there is nothing.
async fn print_list(
    api: &Api,
    list: &str,
    query: &Query,
    length: &Length,
    (columns, nothing): (&str, &str),
) -> Result<ExitCode, Failure> {
    let most = if length.all {
        usize::MAX
    } else {
        length.limit.get()
    };
    let (items, is_more) = api.items::<Value>(&["v1", list], query, most).await?;
    let shown = show(&json!({ "items": items }), || {
        table_of(&items, columns, nothing)
    });
    if is_more {
        let count = items.len();
        warn(&format!(
            "these are the first {count}; --limit or --all shows more"
        ));
    }
    shown
}

pub(crate) async fn spans(arguments: SpansArguments, api: &Api) -> Result<ExitCode, Failure> {
    let mut query = Query::new();
    arguments.target.add_to(&mut query);
    // A cause is one of suspended spans.
    let of_cause = arguments.cause.as_ref().map(|_| "suspended");
    add(&mut query, "state", arguments.state.as_deref().or(of_cause));
    add(&mut query, "cause", arguments.cause);
    add(&mut query, "excluded", arguments.excluded.then_some(true));
    arguments.period.add_to(&mut query);
    let shown = (SPANS, "No spans.");
    print_list(api, "spans", &query, &arguments.length, shown).await
}

pub(crate) async fn usages(arguments: UsagesArguments, api: &Api) -> Result<ExitCode, Failure> {
    let mut query = Query::new();
    arguments.target.add_to(&mut query);
    arguments.period.add_to(&mut query);
    add(&mut query, "accepted_to", arguments.accepted_to);
    add(&mut query, "window", Some(arguments.window));
    add(&mut query, "group_by", arguments.group_by);
    let shown = (SUMS, "No usages.");
    print_list(api, "usages", &query, &arguments.length, shown).await
}

pub(crate) async fn suspended(
    arguments: SuspendedArguments,
    api: &Api,
) -> Result<ExitCode, Failure> {
    let mut query = Query::new();
    add(&mut query, "resource_id", arguments.resource_id);
    let causes = api.get(&["v1", "suspended"], &query).await?;
    let causes: List<Value> = causes.read()?;
    show(&causes, || {
        table_of(&causes.items, CAUSES, "No spans are suspended.")
    })
}

pub(crate) async fn audit(arguments: AuditArguments, api: &Api) -> Result<ExitCode, Failure> {
    let mut query = Query::new();
    arguments.period.add_to(&mut query);
    add(&mut query, "who", arguments.who);
    if let Some(given) = arguments.span {
        let span = match span::one(api, &given).await {
            // A removed span still has a trail.
            Err(Failure::Api(error)) if error.is_of_nothing() => given,
            found => found?.read::<Span>()?.id,
        };
        add(&mut query, "span", Some(span));
    }
    let shown = (ACTS, "No actions.");
    print_list(api, "audit", &query, &arguments.length, shown).await
}

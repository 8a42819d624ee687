//! `spans`: a list of spans.

use std::process::ExitCode;

use clap::Args;

use crate::api::Query;
use crate::failure::Failure;
use crate::listing::{Common, Length, Period, TargetFilter, add, print_list};
use crate::moment::FORMS;
use crate::show::{As, Column};

const COLUMNS: [Column; 8] = [
    ("span", "/id", As::Text),
    ("target", "/target", As::Target),
    ("start", "/start", As::Time),
    ("end", "/end", As::Time),
    ("state", "/state", As::Text),
    ("sampled to", "/sampled_to", As::Time),
    ("billed", "/proof/billed", As::Length),
    ("not billed yet", "/proof/unsampled", As::Length),
];

/// Lists spans, the newest start first
#[derive(Debug, Args)]
#[command(after_help = format!("\
One of --organization-id, --resource-id, --resource-instance-id, --state suspended and --excluded must be given.
BILLED and NOT BILLED YET are hours:minutes:seconds. --from and --to keep spans that overlap the time between them.
{FORMS}

Examples:
  sampler spans --resource-instance-id orders-db
  sampler spans --organization-id acme --state open
  sampler spans --excluded
  sampler spans --resource-id postgres --from 2026-11-01 --to 2026-12-01 --all --json"))]
pub(crate) struct Arguments {
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
    common: Common,
    #[command(flatten)]
    target: TargetFilter,
}

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let mut query = Query::new();
    arguments.target.add_to(&mut query);
    // A cause is one of suspended spans.
    let of_cause = arguments.cause.as_ref().map(|_| "suspended");
    add(&mut query, "state", arguments.state.as_deref().or(of_cause));
    add(&mut query, "cause", arguments.cause.as_ref());
    add(&mut query, "excluded", arguments.excluded.then_some(true));
    arguments.period.add_to(&mut query);
    let (common, length) = (&arguments.common, &arguments.length);
    print_list(
        common,
        &["v1", "spans"],
        &query,
        length,
        &COLUMNS,
        "No spans.",
    )
    .await
}

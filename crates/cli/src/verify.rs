//! `verify`: whether each millisecond of the provider's usages is billed once.

mod reading;
mod text;

use std::process::ExitCode;

use clap::Args;
use sampler_verify::events::Event;
use sampler_verify::moment::{Millis, parse_length};
use sampler_verify::words::counted;
use sampler_verify::{History, Policy};
use serde_json::json;

use crate::api::Api;
use crate::failure::Failure;
use crate::file::FileArguments;
use crate::listing::{Common, Period, TargetFilter};
use crate::moment::FORMS;
use crate::output::print;
use crate::show::print_json;

/// The end of the text of `--help`.
const AFTER_HELP: &str = "\
Reads all spans of the resources in the file, and the usages of each span, and compares them with
the events. Shares no code with the programs that bill, and changes nothing. What does not fit comes
first.

Examples:
  sampler verify events.ndjson --granularity hour
  sampler verify events.ndjson --organization-id acme --from 2026-11-01 --to 2026-12-01
  sampler verify events.ndjson --instance orders-db
  sampler verify some.csv --measures memory --known-only --all

Exit codes: 0 everything fits, 1 something does not fit, 2 the command line or the file is wrong,
3 the API cannot be read.";

/// Works out from your own events whether each millisecond was billed once
#[derive(Debug, Args)]
#[command(after_help = format!("{FORMS}\n\n{AFTER_HELP}"))]
pub(crate) struct Arguments {
    #[command(flatten)]
    file: FileArguments,
    /// Also shows the spans that fit
    #[arg(long)]
    all: bool,
    /// Also fails for what is only worth knowing, such as sampling that is behind
    #[arg(long)]
    strict: bool,
    /// Checks windows of this granularity instead of months
    #[arg(long, value_parser = ["minute", "hour", "day", "month"])]
    granularity: Option<String>,
    /// How long sampling may take before it is behind, and clocks may differ
    #[arg(long, value_name = "LENGTH", default_value = "10m", value_parser = parse_length)]
    allowance: Millis,
    /// How long the ledger keeps usages. Younger usages must be there
    #[arg(long, value_name = "LENGTH", default_value = "32d", value_parser = parse_length)]
    kept: Millis,
    /// How many spans are read at a time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    concurrency: u8,
    #[command(flatten)]
    scope: Scope,
    #[command(flatten)]
    common: Common,
}

/// Which spans and events are compared.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Scope")]
struct Scope {
    #[command(flatten)]
    target: TargetFilter,
    /// Only instances that the file has events of: spans of others are left out
    #[arg(long)]
    known_only: bool,
    #[command(flatten)]
    period: Period,
}

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let now = arguments.file.now();
    let api = Api::new(&arguments.common.connection)?;
    let history = history(arguments.file.open()?.read()?, &arguments.scope)?;
    let granularity = serde_json::from_value(json!(arguments.granularity));
    let policy = Policy {
        now,
        granularity: granularity.expect("only its names are values of the option"),
        allowance: arguments.allowance,
        kept: arguments.kept,
    };
    let run = reading::Run {
        api: &api,
        policy,
        at_once: usize::from(arguments.concurrency),
    };
    let (scope, strict) = (&arguments.scope, arguments.strict);
    let report = run.report(history, scope, strict).await?;
    if arguments.common.json {
        print_json(&report)?;
    } else {
        print(&text::of(&report, arguments.all))?;
    }
    Ok(ExitCode::from(u8::from(!report.fits)))
}

/// The usages that follow from the events in scope.
fn history(events: Vec<Event>, scope: &Scope) -> Result<History, Failure> {
    let all = events.len();
    let events = events
        .into_iter()
        .filter(|event| scope.holds(&event.target));
    let events: Vec<Event> = events.collect();
    if events.is_empty() {
        let reason = format!("of {} in the file none is in scope", counted(all, "event"));
        return Err(Failure::Input(reason));
    }
    Ok(History::of(events))
}

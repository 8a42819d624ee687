//! `verify`: whether each millisecond of the provider's usages is billed once.

mod reading;
mod text;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use sampler_verify::events::{self, Event, FileTimes};
use sampler_verify::moment::{Millis, parse_length};
use sampler_verify::words::counted;
use sampler_verify::{Granularity, History, Policy, Report};
use serde_json::Value;

use crate::api::Api;
use crate::clock;
use crate::columns::{ColumnArguments, Format};
use crate::failure::Failure;
use crate::listing::Common;
use crate::moment::{FORMS, time};
use crate::output::print;
use crate::show::print_json;
use crate::terminal::width;

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
    /// All your events, as `sampler events send` reads them. `-` is standard input
    #[arg(value_name = "EVENTS")]
    events: PathBuf,
    /// The format, if the file name does not show it
    #[arg(long, value_enum)]
    format: Option<Format>,
    #[command(flatten)]
    columns: ColumnArguments,
    /// Also shows the spans that fit
    #[arg(long)]
    all: bool,
    /// Also fails for what is only worth knowing, such as sampling that is behind
    #[arg(long)]
    strict: bool,
    /// Checks windows of this granularity instead of months
    #[arg(long, value_parser = granularity())]
    granularity: Option<Granularity>,
    /// How long sampling may take before it is behind, and clocks may differ
    #[arg(long, value_name = "LENGTH", default_value = "10m", value_parser = parse_length)]
    allowance: Millis,
    /// How long the ledger keeps usages. Younger usages must be there
    #[arg(long, value_name = "LENGTH", default_value = "32d", value_parser = parse_length)]
    kept: Millis,
    /// The present time, for `day` and `at` in the file
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    now: Option<Millis>,
    /// Added to all timestamps of the file, but not to those of `CloudEvents`
    #[arg(long, value_name = "LENGTH", default_value = "0s", value_parser = parse_length)]
    #[arg(allow_hyphen_values = true)]
    offset: Millis,
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
    /// Only this organization. Without any of these ids, all resources in the file
    #[arg(long, value_name = "ID")]
    organization_id: Option<String>,
    /// Only this space
    #[arg(long, value_name = "ID")]
    space_id: Option<String>,
    /// Only this consumer
    #[arg(long, value_name = "ID")]
    consumer_id: Option<String>,
    /// Only this resource
    #[arg(long, visible_alias = "resource", value_name = "ID")]
    resource_id: Option<String>,
    /// Only this plan
    #[arg(long, value_name = "ID")]
    plan_id: Option<String>,
    /// Only this instance
    #[arg(long, visible_alias = "instance", value_name = "ID")]
    resource_instance_id: Option<String>,
    /// Only instances that the file has events of: spans of others are left out
    #[arg(long)]
    known_only: bool,
    /// Only spans that end after this time
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    from: Option<Millis>,
    /// Only spans that start before this time
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    to: Option<Millis>,
}

fn granularity() -> impl TypedValueParser<Value = Granularity> {
    PossibleValuesParser::new(["minute", "hour", "day", "month"])
        .try_map(|name| serde_json::from_value(Value::String(name)))
}

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let now = arguments.now.unwrap_or_else(clock::now);
    let api = Api::new(&arguments.common.connection)?;
    let history = arguments.history(now)?;
    let policy = Policy {
        now,
        granularity: arguments.granularity,
        allowance: arguments.allowance,
        kept: arguments.kept,
    };
    let report = Report::new(history.contradictions);
    let spans_at_once = usize::from(arguments.concurrency);
    let run = reading::Run::new(&api, policy, spans_at_once, history.used, report);
    let report = run.read(&arguments.scope).await?.finish(arguments.strict);
    if arguments.common.json {
        print_json(&report)?;
    } else {
        print(&text::of(&report, arguments.all, width()))?;
    }
    Ok(ExitCode::from(u8::from(!report.fits)))
}

impl Arguments {
    /// The usages that follow from the events in scope.
    fn history(&self, now: Millis) -> Result<History, Failure> {
        let events = self.read_events(now).map_err(Failure::Input)?;
        let all = events.len();
        let events: Vec<Event> = events
            .into_iter()
            .filter(|event| self.scope.holds(&event.target))
            .collect();
        if events.is_empty() {
            let reason = format!("of {} in the file none is in scope", counted(all, "event"));
            return Err(Failure::Input(reason));
        }
        Ok(History::of(events))
    }

    fn read_events(&self, now: Millis) -> Result<Vec<Event>, String> {
        let name = self.events.display().to_string();
        let format = Format::of(self.format, &name)?;
        let input: Box<dyn Read> = if self.events == Path::new("-") {
            Box::new(io::stdin())
        } else {
            let file = File::open(&self.events);
            Box::new(file.map_err(|error| format!("{name}: {error}"))?)
        };
        let reading = FileTimes {
            now,
            offset: self.offset,
        };
        events::read(input, format, &self.columns.named(), reading)
            .map_err(|error| format!("{name}: {error}"))
    }
}

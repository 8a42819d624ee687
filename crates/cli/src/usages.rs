//! `usages`: sums of what was billed.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use sampler_verify::moment::{Millis, parse_moment};
use serde_json::Value;

use crate::api::Query;
use crate::failure::Failure;
use crate::listing::{Common, Length, Period, TargetFilter, add, print_list};
use crate::output::printable;
use crate::show::{integer, length, measures, moment, text};

/// The bounds of all time, as the API writes them: from 1970 to the year 10000.
const FIRST: Millis = 0;
const LAST: Millis = 253_402_300_800_000;

/// Sums up what was billed, by window and group
#[derive(Debug, Args)]
#[command(after_help = "\
One of --organization-id, --resource-id and --resource-instance-id must be given, and --from and --to
for windows other than all. DURATION is
hours:minutes:seconds. An amount is quantity times duration in ms.")]
pub(crate) struct Arguments {
    /// A sum for each of these windows
    #[arg(long, value_enum, default_value = "all")]
    window: Window,
    /// A sum for each value of these ids, as in `resource_id,plan_id`
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    group_by: Vec<String>,
    /// The ledger as it was at this moment, in ms or RFC 3339
    #[arg(long, value_name = "MOMENT", value_parser = parse_moment)]
    as_of: Option<Millis>,
    #[command(flatten)]
    period: Period,
    #[command(flatten)]
    length: Length,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    target: TargetFilter,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Window {
    Hour,
    Day,
    Month,
    All,
}

impl Window {
    fn name(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Month => "month",
            Self::All => "all",
        }
    }
}

/// Runs the command.
pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let mut query = Query::new();
    arguments.target.add_to(&mut query);
    arguments.period.add_to(&mut query);
    add(&mut query, "window", Some(arguments.window.name()));
    let groups = &arguments.group_by;
    add(
        &mut query,
        "group_by",
        (!groups.is_empty()).then(|| groups.join(",")),
    );
    add(&mut query, "as_of", arguments.as_of);
    let header = ["from", "to", "group", "usages", "duration", "amounts"];
    let columns = (header, &[0, 1, 2, 5][..]);
    print_list(
        &arguments.common,
        &["v1", "usages"],
        &query,
        &arguments.length,
        columns,
        row,
    )
    .await
}

fn row(sum: &Value) -> [String; 6] {
    [
        bound(sum, "/window/start"),
        bound(sum, "/window/end"),
        group(sum),
        text(sum, "/usages"),
        length(sum, "/duration"),
        measures(sum, "/measures", "/amount"),
    ]
}

/// A bound of a window; the first and the last moment that there are bound nothing.
fn bound(sum: &Value, pointer: &str) -> String {
    match integer(sum, pointer) {
        Some(FIRST) => "beginning".to_owned(),
        Some(LAST) => "no end".to_owned(),
        _ => moment(sum, pointer),
    }
}

fn group(sum: &Value) -> String {
    let ids = sum["group"].as_object().into_iter().flatten();
    let ids = ids.map(|(_, id)| printable(id.as_str().unwrap_or("-")));
    let ids: Vec<String> = ids.collect();
    ids.join("/")
}

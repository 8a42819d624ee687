//! `usages`: sums of what was billed.

use std::collections::BTreeSet;
use std::process::ExitCode;

use clap::Args;
use sampler_api::{Amount, Sum};
use sampler_verify::moment::{InWords, Millis};
use serde::Deserialize;
use serde_json::Value;

use crate::api::Query;
use crate::failure::Failure;
use crate::listing::{Common, Length, Period, TargetFilter, add, print_list_above};
use crate::moment::{FORMS, time};
use crate::output::printable;
use crate::show::{As, Column, length_in_words, named, text};

/// The bounds of all time, as the API writes them: from 1970 to the year 10000.
const FIRST: Millis = 0;
const LAST: Millis = 253_402_300_800_000;

const COLUMNS: [Column; 6] = [
    ("from", "/window/start", As::Words(bound)),
    ("to", "/window/end", As::Words(bound)),
    ("group", "/group", As::Words(group)),
    ("usages", "/usages", As::Number),
    ("duration", "", As::Words(duration)),
    ("amounts", "/measures", As::Words(amounts)),
];

/// Sums up what was billed, by window and group
#[derive(Debug, Args)]
#[command(after_help = format!("\
One of --organization-id, --resource-id and --resource-instance-id must be given, and --from and --to
for windows other than all. DURATION is hours:minutes:seconds. An amount is quantity times duration in
ms; where the operator has named the unit of a measure, it is shown by the hour, too. {FORMS}

Examples:
  sampler usages --organization-id acme --group-by resource_id,plan_id
  sampler usages --resource-instance-id orders-db --window day --from -7d --to today"))]
pub(crate) struct Arguments {
    /// A sum for each of these windows
    #[arg(long, value_parser = ["hour", "day", "month", "all"], default_value = "all")]
    window: String,
    /// A sum for each value of these ids, as in `resource_id,plan_id`
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    group_by: Vec<String>,
    /// Only usages that the upstream had accepted by then: the figures of an earlier invoice
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    accepted_to: Option<Millis>,
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
    arguments.period.add_to(&mut query);
    add(&mut query, "accepted_to", arguments.accepted_to);
    add(&mut query, "window", Some(&arguments.window));
    let groups = &arguments.group_by;
    let groups = (!groups.is_empty()).then(|| groups.join(","));
    add(&mut query, "group_by", groups);
    let (common, length, path) = (&arguments.common, &arguments.length, ["v1", "usages"]);
    print_list_above(
        common,
        &path,
        &query,
        length,
        &COLUMNS,
        "No usages.",
        formulas,
    )
    .await
}

/// A bound of a window; the first and the last time that there are bound nothing.
fn bound(at: &Value) -> String {
    match at.as_i64() {
        Some(FIRST) => "beginning".to_owned(),
        Some(LAST) => "no end".to_owned(),
        Some(at) => InWords(at).to_string(),
        None => text(None::<u8>),
    }
}

/// The duration, in words where it is a whole number.
fn duration(sum: &Value) -> String {
    let whole = Sum::deserialize(sum).ok().and_then(|sum| sum.millis());
    whole.map_or_else(|| text(sum.get("duration")), length_in_words)
}

fn amounts(measures: &Value) -> String {
    let measures = Vec::<Amount>::deserialize(measures).unwrap_or_default();
    named(measures.iter().map(|it| (it.measure.as_str(), amount(it))))
}

/// The amount as it is billed, and the exact one behind it where it has a unit.
fn amount(amount: &Amount) -> String {
    let exact = text(amount.amount.as_ref());
    let (Some(hourly), Some(value)) = (amount.hourly(), amount.by_the_hour()) else {
        return exact;
    };
    let unit = amount.unit.as_deref().unwrap_or_default();
    format!("{value} {} ({exact} {unit}·ms)", hourly.name)
}

/// How the amounts by the hour follow from the exact ones, each once.
fn formulas(sums: &[Value]) -> String {
    let sums = sums.iter().filter_map(|sum| Sum::deserialize(sum).ok());
    let all: BTreeSet<String> = sums
        .flat_map(|sum| sum.measures)
        .filter_map(|amount| Some(printable(&amount.hourly()?.formula)))
        .collect();
    all.into_iter().map(|formula| formula + "\n").collect()
}

fn group(ids: &Value) -> String {
    let ids = ids.as_object().into_iter().flat_map(|ids| ids.values());
    let ids = ids.map(|id| printable(id.as_str().unwrap_or("-")));
    ids.collect::<Vec<_>>().join("/")
}

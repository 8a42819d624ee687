//! `usages`: sums of what was billed.

use std::collections::BTreeSet;
use std::process::ExitCode;

use clap::Args;
use sampler_api::{Amount, Sum};
use sampler_verify::moment::{InWords, Millis};

use crate::api::Query;
use crate::failure::Failure;
use crate::listing::{Columns, Common, Length, Period, TargetFilter, add, print_list_above};
use crate::moment::FORMS;
use crate::output::printable;
use crate::show::{length_in_words, named, text};

/// The bounds of all time, as the API writes them: from 1970 to the year 10000.
const FIRST: Millis = 0;
const LAST: Millis = 253_402_300_800_000;

/// Sums up what was billed, by window and group
#[derive(Debug, Args)]
#[command(after_help = format!("\
One of --organization-id, --resource-id and --resource-instance-id must be given, and --from and --to
for windows other than all. DURATION is hours:minutes:seconds. An amount is quantity times duration in
ms; where the operator has named the unit of a measure, it is shown by the hour, too. {FORMS}

Examples:
  sampler usages --organization-id acme --group-by resource_id,plan_id
  sampler usages --resource-instance-id orders-db --window day --from -7d --to today
  sampler usages --organization-id acme --from 2026-11-01 --to 2026-12-01"))]
pub(crate) struct Arguments {
    /// A sum for each of these windows
    #[arg(long, value_parser = ["hour", "day", "month", "all"], default_value = "all")]
    window: String,
    /// A sum for each value of these ids, as in `resource_id,plan_id`
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    group_by: Vec<String>,
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
    add(&mut query, "window", Some(&arguments.window));
    let groups = &arguments.group_by;
    add(
        &mut query,
        "group_by",
        (!groups.is_empty()).then(|| groups.join(",")),
    );
    let columns = Columns {
        header: ["from", "to", "group", "usages", "duration", "amounts"],
        left: &[0, 1, 2, 5],
        nothing: "No usages.",
    };
    print_list_above(
        &arguments.common,
        &["v1", "usages"],
        &query,
        &arguments.length,
        columns,
        row,
        formulas,
    )
    .await
}

fn row(sum: &Sum) -> [String; 6] {
    [
        bound(sum.window.start.as_millis()),
        bound(sum.window.end.as_millis()),
        group(sum),
        sum.usages.to_string(),
        duration(sum),
        named(
            sum.measures
                .iter()
                .map(|it| (it.measure.as_str(), amount(it))),
        ),
    ]
}

/// A bound of a window; the first and the last time that there are bound nothing.
fn bound(at: Millis) -> String {
    match at {
        FIRST => "beginning".to_owned(),
        LAST => "no end".to_owned(),
        at => InWords(at).to_string(),
    }
}

/// The duration, in words where it is a whole number.
fn duration(sum: &Sum) -> String {
    let whole = sum.millis().map(length_in_words);
    whole.unwrap_or_else(|| text(sum.duration.as_ref()))
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
fn formulas(sums: &[Sum]) -> String {
    let amounts = sums.iter().flat_map(|sum| &sum.measures);
    let all: BTreeSet<String> = amounts
        .filter_map(Amount::hourly)
        .map(|hourly| printable(&hourly.formula))
        .collect();
    all.into_iter().map(|formula| formula + "\n").collect()
}

fn group(sum: &Sum) -> String {
    let ids = sum
        .group
        .values()
        .map(|id| printable(id.as_str().unwrap_or("-")));
    ids.collect::<Vec<_>>().join("/")
}

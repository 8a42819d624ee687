//! The options and the output that all lists share.

use std::process::ExitCode;

use clap::Args;
use sampler_verify::moment::Millis;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::api::{Api, Query};
use crate::connection::Connection;
use crate::failure::Failure;
use crate::moment::time;
use crate::output::{print, warn};
use crate::show::print_json;
use crate::table::table;

/// The options of every list: the form of the output, and the address of the API.
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
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// The whole list
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

/// A period of time.
#[derive(Debug, Args)]
pub(crate) struct Period {
    /// From this time on, as in `2026-11-20`, `yesterday`, `-2d`
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    from: Option<Millis>,
    /// Until this time, without it
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    to: Option<Millis>,
}

#[derive(Debug, Args)]
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
    #[arg(long, value_name = "ID")]
    resource_id: Option<String>,
    /// Of this plan
    #[arg(long, value_name = "ID")]
    plan_id: Option<String>,
    /// Of this instance
    #[arg(long, value_name = "ID")]
    resource_instance_id: Option<String>,
}

impl<const N: usize> Columns<'_, N> {
    /// The rows as a table, or that there are none.
    pub(crate) fn text(self, rows: impl ExactSizeIterator<Item = [String; N]>) -> String {
        match rows.len() {
            0 => format!("{}\n", self.nothing),
            _ => format!("{}\n", table(self.header, rows, self.left)),
        }
    }
}

impl Length {
    fn most(&self) -> usize {
        if self.all {
            return usize::MAX;
        }
        usize::try_from(self.limit).unwrap_or(usize::MAX)
    }
}

impl Period {
    pub(crate) fn add_to(&self, query: &mut Query) {
        add(query, "from", self.from);
        add(query, "to", self.to);
    }
}

impl TargetFilter {
    pub(crate) fn add_to(&self, query: &mut Query) {
        add(query, "organization_id", self.organization_id.as_ref());
        add(query, "space_id", self.space_id.as_ref());
        add(query, "consumer_id", self.consumer_id.as_ref());
        add(query, "resource_id", self.resource_id.as_ref());
        add(query, "plan_id", self.plan_id.as_ref());
        add(
            query,
            "resource_instance_id",
            self.resource_instance_id.as_ref(),
        );
    }
}

/// Adds a parameter, if it has a value.
pub(crate) fn add(query: &mut Query, name: &'static str, value: Option<impl ToString>) {
    query.extend(value.map(|value| (name, value.to_string())));
}

/// A list as people see it.
pub(crate) struct Columns<'a, const N: usize> {
    pub(crate) header: [&'a str; N],
    /// The columns that are aligned to the left.
    pub(crate) left: &'a [usize],
    /// What is said where there is nothing, such as "No spans."
    pub(crate) nothing: &'a str,
}

/// Reads a list and prints it: a row for each item.
pub(crate) async fn print_list<T: DeserializeOwned, const N: usize>(
    common: &Common,
    path: &[&str],
    query: &Query,
    length: &Length,
    columns: Columns<'_, N>,
    row: impl Fn(&T) -> [String; N],
) -> Result<ExitCode, Failure> {
    print_list_above(common, path, query, length, columns, row, |_| String::new()).await
}

/// The same, and what is said of all items below the table.
pub(crate) async fn print_list_above<T: DeserializeOwned, const N: usize>(
    common: &Common,
    path: &[&str],
    query: &Query,
    length: &Length,
    columns: Columns<'_, N>,
    row: impl Fn(&T) -> [String; N],
    below: impl Fn(&[T]) -> String,
) -> Result<ExitCode, Failure> {
    let api = Api::new(&common.connection)?;
    let most = length.most();
    let (count, is_more) = if common.json {
        let (items, is_more) = api.items::<Value>(path, query, most).await?;
        print_json(&json!({ "items": items }))?;
        (items.len(), is_more)
    } else {
        let (items, is_more) = api.items::<T>(path, query, most).await?;
        let text = columns.text(items.iter().map(row));
        print(&(text + &below(&items)))?;
        (items.len(), is_more)
    };
    if is_more {
        warn(&format!(
            "these are the first {count}; --limit or --all shows more"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

//! The options and the output that all lists share.

use std::num::NonZeroUsize;
use std::process::ExitCode;

use clap::Args;
use sampler_verify::moment::Millis;
use serde_json::{Value, json};

use crate::api::{Api, Query};
use crate::connection::Connection;
use crate::failure::Failure;
use crate::moment::time;
use crate::output::warn;
use crate::show::show;

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

/// Reads a list and prints it, in words as `shown` says.
pub(crate) async fn print_list(
    api: &Api,
    path: &[&str],
    query: &Query,
    length: &Length,
    shown: impl Fn(&[Value]) -> String,
) -> Result<ExitCode, Failure> {
    let most = if length.all {
        usize::MAX
    } else {
        length.limit.get()
    };
    let (items, is_more) = api.items(path, query, most).await?;
    show(&json!({ "items": items }), || shown(&items))?;
    if is_more {
        let count = items.len();
        warn(&format!(
            "these are the first {count}; --limit or --all shows more"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

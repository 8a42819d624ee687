//! `instances`: the running receivers and workers.

use std::process::ExitCode;

use clap::Args;
use sampler_api::{Instance, List};
use serde_json::Value;

use crate::api::Api;
use crate::failure::Failure;
use crate::listing::{Columns, Common};
use crate::output::{print, printable};
use crate::show::{length_in_words, print_json, text};

const PATH: [&str; 2] = ["v1", "instances"];

/// Lists the receivers and workers that run, and the state of each
#[derive(Debug, Args)]
#[command(after_help = "\
SHARE is how many of the 64 partitions a worker has. SLACK is how far back a receiver takes events, in
hours:minutes:seconds. UPSTREAM is where a worker posts usages.

Examples:
  sampler instances
  sampler instances --json

Exit codes: 0 all are up, 1 one is not, 2 the command line is wrong, 3 the API gives no answer.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
}

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let api = Api::new(&arguments.common.connection)?;
    let answer = api.single(&PATH).await?;
    let List { items }: List<Instance> = answer.read(&PATH)?;
    if arguments.common.json {
        print_json(&answer.read::<Value>(&PATH)?)?;
    } else {
        let columns = Columns {
            header: [
                "program", "number", "state", "version", "started", "seen", "share", "slack",
                "upstream", "remarks",
            ],
            left: &[0, 2, 3, 4, 5, 8, 9],
            nothing: "No instances.",
        };
        print(&columns.text(items.iter().map(row)))?;
    }
    let are_up = items.iter().all(|it| it.state.name() == "up");
    Ok(ExitCode::from(u8::from(!are_up)))
}

fn row(instance: &Instance) -> [String; 10] {
    [
        printable(&instance.program),
        text(instance.index.as_ref()),
        instance.state.name().to_owned(),
        text(instance.version.as_ref()),
        text(instance.started_at),
        instance.seen_at.to_string(),
        text(instance.partitions),
        text(instance.slack.map(length_in_words)),
        text(instance.upstream.as_ref()),
        remarks(instance),
    ]
}

/// What does not work, what a person should look at, and why a worker pauses.
fn remarks(instance: &Instance) -> String {
    let named = [
        ("fails", &instance.failing),
        ("warns", &instance.warnings),
        ("paused by", &instance.paused_by),
    ];
    let remarks = named
        .into_iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(what, names)| format!("{what} {}", printable(&names.join(", "))));
    remarks.collect::<Vec<_>>().join("; ")
}

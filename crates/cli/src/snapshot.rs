//! `snapshot`: compares what really runs with the spans, and mends the difference.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::api::{Api, Request};
use crate::events::{FileEvent, Sender};
use crate::failure::Failure;
use crate::listing::Common;
use crate::output::{print, warn};
use crate::show::{moment, print_json, target, text};
use crate::table::table;

const PATH: [&str; 2] = ["v1", "snapshots"];
/// How long the receiver may take for hundreds of thousands of instances.
const ANSWER_LIMIT: Duration = Duration::from_mins(10);
/// The longest snapshot, in bytes.
const LEN_MAX: u64 = 512 << 20;
/// How many events are sent at once.
const BATCH: usize = 500;
/// The members of the answer that are lists, and what an item of each means.
const LISTS: [(&str, &str); 3] = [
    ("open_without_instance", "runs no more"),
    ("instance_without_span", "was not started"),
    ("differs", "has changed"),
];

/// Compares what really runs with the spans
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: SnapshotCommand,
}

#[derive(Debug, Subcommand)]
enum SnapshotCommand {
    Diff(DiffArguments),
    Apply(ApplyArguments),
}

/// Shows what differs; changes nothing
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 nothing differs, 1 something differs, 2 the command line or the file is wrong, 3 the API gives
no answer.")]
struct DiffArguments {
    /// A snapshot: JSON with `resource_id`, `at` and `instances`, or NDJSON with the head as first line
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    common: Common,
}

/// Sends the events that mend what differs
#[derive(Debug, Args)]
#[command(after_help = "\
Each event has an id that follows from what it says: applying a snapshot twice is safe. What has changed
since is refused.

Exit codes: 0 all events are kept, or nothing differs, 1 some were refused, or there are more than --most,
2 the command line or the file is wrong, 3 the API gives no answer.")]
struct ApplyArguments {
    /// A snapshot: JSON with `resource_id`, `at` and `instances`, or NDJSON with the head as first line
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Sends nothing if more events would be sent: a snapshot that lacks instances would stop them
    #[arg(long, value_name = "N", default_value_t = 100)]
    most: usize,
    #[command(flatten)]
    common: Common,
}

/// Runs the command.
pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    match arguments.command {
        SnapshotCommand::Diff(arguments) => diff(&arguments).await,
        SnapshotCommand::Apply(arguments) => apply(&arguments).await,
    }
}

async fn diff(arguments: &DiffArguments) -> Result<ExitCode, Failure> {
    let api = Api::new(&arguments.common.connection)?;
    let difference = ask(&api, &arguments.file).await?;
    if arguments.common.json {
        print_json(&difference)?;
    } else {
        print(&words(&difference))?;
    }
    Ok(ExitCode::from(u8::from(
        items(&difference).next().is_some(),
    )))
}

async fn apply(arguments: &ApplyArguments) -> Result<ExitCode, Failure> {
    let api = Api::new(&arguments.common.connection)?;
    let difference = ask(&api, &arguments.file).await?;
    let events: Vec<FileEvent> = items(&difference).zip(1..).map(file_event).collect();
    let (count, most) = (events.len(), arguments.most);
    if count > most {
        warn(&format!(
            "nothing is sent: {count} events are more than --most {most}; `sampler snapshot diff` shows them"
        ));
        return Ok(ExitCode::FAILURE);
    }
    let mut sender = Sender::unjournaled(&api, BATCH);
    sender.send_events(events).await?;
    let report = sender.finish()?;
    if arguments.common.json {
        print_json(&json!({ "difference": difference, "report": report.document() }))?;
    } else {
        print(&format!("{}{}", words(&difference), report.words()))?;
    }
    Ok(ExitCode::from(u8::from(!report.is_good())))
}

async fn ask(api: &Api, file: &Path) -> Result<Value, Failure> {
    let (media_type, bytes) = read(file)?;
    let request = Request::post(&PATH)
        .limit(ANSWER_LIMIT)
        .body(media_type, bytes);
    Ok(api.call(&request).await?.read(&PATH)?)
}

fn read(path: &Path) -> Result<(&'static str, Vec<u8>), Failure> {
    let name = path.display();
    let wrong = |error: io::Error| Failure::Input(format!("{name}: {error}"));
    let extension = path.extension().and_then(|extension| extension.to_str());
    let media_type = match extension {
        Some("json") => "application/json",
        Some("ndjson" | "jsonl") => "application/x-ndjson",
        _ => {
            let what = format!("{name}: a snapshot is a .json or .ndjson file");
            return Err(Failure::Input(what));
        }
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(wrong)?;
    file.take(LEN_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(wrong)?;
    if bytes.len() as u64 > LEN_MAX {
        return Err(wrong(io::Error::other("the snapshot is too long")));
    }
    Ok((media_type, bytes))
}

/// The instances that differ, each with the meaning of its list.
fn items(difference: &Value) -> impl Iterator<Item = (&'static str, &Value)> {
    LISTS.into_iter().flat_map(|(list, meaning)| {
        let items = difference[list].as_array().into_iter().flatten();
        items.map(move |item| (meaning, item))
    })
}

/// The event that mends a difference; its line is that of the table.
fn file_event(((_, item), line): ((&'static str, &Value), u64)) -> FileEvent {
    FileEvent {
        line,
        is_cloud_event: false,
        body: item["proposal"].to_string(),
    }
}

fn words(difference: &Value) -> String {
    let (at, checked) = (moment(difference, "/at"), text(difference, "/checked"));
    let rows: Vec<[String; 5]> = items(difference)
        .zip(1..)
        .map(|((meaning, item), line)| {
            let event = text(item, "/proposal/type");
            let moment = moment(item, "/proposal/timestamp");
            let what = format!("{event} at {moment}");
            let target = target(item, "/proposal");
            [
                line.to_string(),
                target,
                meaning.to_owned(),
                what,
                text(item, "/span"),
            ]
        })
        .collect();
    if rows.is_empty() {
        return format!("Nothing differs: {checked} instances at {at}.\n");
    }
    let count = rows.len();
    let header = ["line", "target", "", "event", "span"];
    let table = table(header, rows.into_iter(), &[1, 2, 3, 4]);
    format!("{table}\n\n{count} differences among {checked} instances at {at}.\n")
}

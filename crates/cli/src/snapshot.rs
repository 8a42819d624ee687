//! `snapshot`: compares what really runs with the spans, and mends the difference.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use sampler_api::Event;
use sampler_verify::moment::{InWords, Millis};
use sampler_verify::words::{counted, form};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::api::{Answer, Api, Request};
use crate::events::{FileEvent, Sender};
use crate::failure::Failure;
use crate::listing::Common;
use crate::output::{print, print_json_text, printable, warn};
use crate::show::text;
use crate::table::table;

const PATH: [&str; 2] = ["v1", "snapshots"];
/// How long it may take for hundreds of thousands of instances: a receiver gives 10 minutes to the body,
/// to the comparison, and to the answer.
const ANSWER_LIMIT: Duration = Duration::from_mins(30);
/// The longest snapshot, in bytes.
const LEN_MAX: u64 = 512 << 20;
/// How many events are sent at once.
const BATCH: usize = 500;
/// The longest answer, in bytes: each difference names its target once or twice, and an event.
const ANSWER_LEN_MAX: usize = 1 << 30;
const ROWS_SHOWN: usize = 10_000;

/// The answer. The events that it proposes stay as they are written: their ids follow from what they
/// say, and a number that is read and written again may have become another.
#[derive(Debug, Deserialize)]
struct Difference<'a> {
    at: Millis,
    checked: u64,
    /// There are more differences than are named.
    #[serde(default)]
    more: bool,
    #[serde(borrow, default)]
    open_without_instance: Vec<Item<'a>>,
    #[serde(borrow, default)]
    instance_without_span: Vec<Item<'a>>,
    #[serde(borrow, default)]
    differs: Vec<Item<'a>>,
}

/// An instance that differs.
#[derive(Debug, Deserialize)]
struct Item<'a> {
    span: Option<String>,
    #[serde(borrow)]
    proposal: &'a RawValue,
}

/// Compares what really runs with the spans
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sampler snapshot diff now.ndjson
  sampler snapshot apply now.ndjson")]
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
Examples:
  sampler snapshot diff now.ndjson
  sampler snapshot diff now.json --json

Exit codes: 0 nothing differs, 1 something differs, 2 the command line or the file is wrong, 3 the API gives
no answer.")]
struct DiffArguments {
    /// A snapshot: NDJSON with the head as first line, or up to 16 MB of JSON with `resource_id`, `at`
    /// and `instances`
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

Examples:
  sampler snapshot apply now.ndjson
  sampler snapshot apply now.ndjson --most 5000

Exit codes: 0 all events are kept, or nothing differs, 1 some were refused, there are more than --most, or
the receiver did not name all differences: apply it again, 2 the command line or the file is wrong, 3 the
API gives no answer.")]
struct ApplyArguments {
    /// A snapshot: NDJSON with the head as first line, or up to 16 MB of JSON with `resource_id`, `at`
    /// and `instances`
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Sends nothing if more events would be sent: a snapshot that lacks instances would stop them
    #[arg(long, value_name = "N", default_value_t = 100)]
    most: usize,
    #[command(flatten)]
    common: Common,
}

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    match arguments.command {
        SnapshotCommand::Diff(arguments) => diff(&arguments).await,
        SnapshotCommand::Apply(arguments) => apply(&arguments).await,
    }
}

async fn diff(arguments: &DiffArguments) -> Result<ExitCode, Failure> {
    let api = Api::new(&arguments.common.connection)?;
    let answer = ask(&api, &arguments.file).await?;
    let difference: Difference<'_> = answer.read(&PATH)?;
    if arguments.common.json {
        let document: &RawValue = answer.read(&PATH)?;
        print_json_text(document.get())?;
    } else {
        print(&difference.words())?;
    }
    if difference.more {
        warn("there are more differences than the receiver names in one answer");
    }
    Ok(ExitCode::from(u8::from(difference.count() > 0)))
}

async fn apply(arguments: &ApplyArguments) -> Result<ExitCode, Failure> {
    let api = Api::new(&arguments.common.connection)?;
    let answer = ask(&api, &arguments.file).await?;
    let difference: Difference<'_> = answer.read(&PATH)?;
    let (count, most) = (difference.count(), arguments.most);
    if count > most {
        warn(&format!(
            "nothing is sent: {} {} more than --most {most}; see `sampler snapshot diff`",
            counted(count, "event"),
            form(count, "is", "are"),
        ));
        return Ok(ExitCode::FAILURE);
    }
    let mut sender = Sender::unjournaled(&api, BATCH, count as u64);
    let events = difference.items().zip(1..).map(file_event);
    sender.send_events(events).await?;
    let report = sender.finish()?;
    if arguments.common.json {
        let (document, report): (&RawValue, _) = (answer.read(&PATH)?, report.document());
        print_json_text(&format!(
            "{{\"difference\":{document},\"report\":{report}}}"
        ))?;
    } else {
        print(&format!("{}{}", difference.words(), report.words()))?;
    }
    if difference.more {
        warn("the receiver did not name all differences: apply it again");
    }
    let is_all = report.is_good() && !difference.more;
    Ok(ExitCode::from(u8::from(!is_all)))
}

async fn ask(api: &Api, file: &Path) -> Result<Answer, Failure> {
    let (media_type, bytes) = read(file)?;
    let request = Request::post(&PATH)
        .limit(ANSWER_LIMIT)
        .answer_len_max(ANSWER_LEN_MAX)
        .body(media_type, bytes);
    Ok(api.call(&request).await?)
}

fn read(path: &Path) -> Result<(&'static str, Vec<u8>), Failure> {
    let extension = path.extension().and_then(|extension| extension.to_str());
    let media_type = match extension {
        Some("json") => "application/json",
        Some("ndjson" | "jsonl") => "application/x-ndjson",
        _ => {
            let what = "a snapshot is a .json or .ndjson file";
            return Err(Failure::of_file(path, &what));
        }
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| Failure::of_file(path, &error))?;
    file.take(LEN_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::of_file(path, &error))?;
    if bytes.len() as u64 > LEN_MAX {
        return Err(Failure::of_file(path, &"the snapshot is too long"));
    }
    Ok((media_type, bytes))
}

impl<'a> Difference<'a> {
    /// The instances that differ, each with the meaning of its list.
    fn items(&self) -> impl Iterator<Item = (&'static str, &Item<'a>)> {
        let lists = [
            ("no longer runs", &self.open_without_instance),
            ("was not started", &self.instance_without_span),
            ("has changed", &self.differs),
        ]
        .into_iter();
        lists.flat_map(|(meaning, items)| items.iter().map(move |item| (meaning, item)))
    }

    fn count(&self) -> usize {
        self.items().count()
    }

    fn words(&self) -> String {
        let at = InWords(self.at);
        let (count, checked) = (self.count(), self.checked);
        if count == 0 {
            return format!(
                "Nothing differs: {} at {at}.\n",
                counted(checked, "instance")
            );
        }
        let rows = self
            .items()
            .zip(1..)
            .take(ROWS_SHOWN)
            .map(|((meaning, item), line)| item.row(meaning, line));
        let header = ["line", "target", "", "event", "span"];
        let table = table(header, rows, &[1, 2, 3, 4]);
        let rest = match count.saturating_sub(ROWS_SHOWN) {
            0 => String::new(),
            rest => format!("\n... and {rest} more; --json shows all"),
        };
        format!(
            "{table}{rest}\n\n{} among {} at {at}.\n",
            counted(count, "difference"),
            counted(checked, "instance"),
        )
    }
}

impl Item<'_> {
    fn row(&self, meaning: &str, line: u64) -> [String; 5] {
        // Only for people: the event is sent as it is written.
        let event: Option<Event> = serde_json::from_str(self.proposal.get()).ok();
        let (subject, what) = event.map_or_else(Default::default, |event| {
            let ids = [event.resource_id, event.plan_id, event.resource_instance_id]
                .map(|id| printable(&id))
                .join("/");
            (
                ids,
                format!("{} at {}", event.r#type.name(), event.timestamp),
            )
        });
        [
            line.to_string(),
            subject,
            meaning.to_owned(),
            what,
            text(self.span.as_ref()),
        ]
    }
}

/// The event that mends a difference; its line is that of the table.
fn file_event(((_, item), line): ((&'static str, &Item<'_>), u64)) -> FileEvent {
    FileEvent {
        line,
        is_cloud_event: false,
        body: item.proposal.get().to_owned(),
    }
}

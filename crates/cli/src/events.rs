//! `events`: sends a file of events, or shows what the upstream would get.

mod preview;
mod send;

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use indicatif::HumanCount;
use sampler_verify::events::{self, EventKind, Format, json_in_words};
use sampler_verify::words::{counted, form};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::signal::ctrl_c;

use crate::api::Api;
use crate::event::{Event, Measured};
use crate::failure::Failure;
use crate::file::{EventFile, FileArguments};
use crate::output::{Progress, tell, wants_json};
use crate::show::{exit_code, show};
pub(crate) use send::{Refusal, Sender};

/// How many wrong lines are named.
const WRONG_MAX: usize = 50;
/// What shells expect of a program that Ctrl-C has ended.
const EXIT_INTERRUPTED: u8 = 130;

/// Sends events, or shows what the upstream would get
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sampler events preview events.ndjson
  sampler events send events.ndjson")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: EventsCommand,
}

#[derive(Debug, Subcommand)]
enum EventsCommand {
    Send(SendArguments),
    Preview(preview::Arguments),
}

/// Sends all events of a file, in batches, and says which were refused
#[derive(Debug, Args)]
#[command(after_help = "\
Events of one target are sent in the order of the file. Each has an id, by which the receiver recognises a
repeat: sending a file again is safe, whatever became of the command before. The rows of a CSV have ids that
follow from what they say.

Examples:
  sampler events send events.ndjson
  sampler events send spans.csv --measures memory,storage --ignore note
  jq -c .usage[] dump.json | sampler events send - --format ndjson")]
struct SendArguments {
    #[command(flatten)]
    file: FileArguments,
    /// How many events are sent at once
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u16).range(1..=1000))]
    batch: u16,
}

/// An event, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileEvent {
    /// Its line in the file, from 1.
    pub(crate) line: u64,
    pub(crate) is_cloud_event: bool,
    /// A JSON object.
    pub(crate) body: String,
}

/// What a line must say before it is sent; the receiver reads the rest.
#[derive(Deserialize)]
struct Known {
    id: Option<String>,
    specversion: Option<IgnoredAny>,
}

pub(crate) async fn run(
    arguments: Arguments,
    api: impl FnOnce() -> Result<Api, Failure>,
) -> Result<ExitCode, Failure> {
    let arguments = match arguments.command {
        EventsCommand::Send(arguments) => arguments,
        EventsCommand::Preview(arguments) => return preview::run(arguments),
    };
    let api = api()?;
    let name = arguments.file.file.display().to_string();
    let events = read(&arguments.file.open()?)?;
    let progress = Progress::to(Some(events.len() as u64));
    let mut sender = Sender::new(&api, usize::from(arguments.batch), progress);
    tokio::select! {
        sent = sender.send_events(events) => sent?,
        _ = ctrl_c() => return Ok(tell_interrupted(&name, sender.done())),
    }
    let report = sender.finish();
    show(&report, || report.words())?;
    Ok(exit_code(report.is_good()))
}

/// Says how to continue after Ctrl-C, which may come at any time without harm.
fn tell_interrupted(name: &str, done: u64) -> ExitCode {
    let (events, are) = (counted(HumanCount(done), "event"), form(done, "is", "are"));
    let message = format!(
        "interrupted: {events} of {name} {are} done; the same command continues: what is kept is recognised"
    );
    if io::stderr().is_terminal() && !wants_json() {
        // Below what a terminal shows of the progress.
        eprintln!();
    }
    let document = json!({ "message": message, "exit_code": EXIT_INTERRUPTED });
    tell("error", &message, &document);
    ExitCode::from(EXIT_INTERRUPTED)
}

/// The events of a file, in its order. Whatever is wrong in it is told before anything is sent.
fn read(file: &EventFile) -> Result<Vec<FileEvent>, Failure> {
    if file.format == Format::Csv {
        return Ok(file.read()?.iter().map(event_of_row).collect());
    }
    let (mut events, mut wrong) = (Vec::new(), Vec::new());
    for (line, text) in (1..).zip(file.bytes.split(|byte| *byte == b'\n')) {
        let text = String::from_utf8_lossy(text);
        let text = text.trim_start_matches('\u{feff}').trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        match event_of(line, text) {
            Ok(event) => events.push(event),
            Err(_) if wrong.len() == WRONG_MAX => {
                wrong.push("and more".to_owned());
                break;
            }
            Err(what) => wrong.push(format!("line {line}: {what}")),
        }
    }
    if events.is_empty() && wrong.is_empty() {
        wrong.push("there are no events in it".to_owned());
    }
    if wrong.is_empty() {
        return Ok(events);
    }
    Err(file.wrong(&wrong.join("\n")))
}

/// The event of an object, which is sent as it is written.
fn event_of(line: u64, text: &str) -> Result<FileEvent, String> {
    if text.contains(char::REPLACEMENT_CHARACTER) {
        return Err("it is not UTF-8".to_owned());
    }
    if !text.starts_with('{') {
        return Err("an event is a JSON object".to_owned());
    }
    let known: Known = serde_json::from_str(text).map_err(|error| json_in_words(&error))?;
    if known.id.is_none_or(|id| id.is_empty()) {
        return Err("the event has no \"id\", by which a repeat is recognised".to_owned());
    }
    Ok(FileEvent {
        line,
        is_cloud_event: known.specversion.is_some(),
        body: text.to_owned(),
    })
}

/// A row of a table has no id: that of its events follows from what it says.
fn event_of_row(row: &events::Event) -> FileEvent {
    let (target, at) = (row.target.clone(), row.moment);
    let event = match &row.kind {
        EventKind::Start(measures) => {
            let measures = measures.iter().cloned().map(Measured::from);
            Event::start(target, at, measures.collect())
        }
        EventKind::Stop => Event::new("stop", target, at),
    };
    FileEvent {
        line: row.line,
        is_cloud_event: false,
        body: event.with_id().body(),
    }
}

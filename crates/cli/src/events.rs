//! `events`: sends a file of events, or shows what the upstream would get.

mod input;
mod preview;
mod send;

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use indicatif::HumanCount;
use sampler_verify::words::{counted, form};
use serde_json::json;
use tokio::signal::ctrl_c;

use crate::api::Api;
use crate::failure::Failure;
use crate::file::FileArguments;
use crate::output::{tell, wants_json};
use crate::show::show;
pub(crate) use input::FileEvent;
pub(crate) use send::Sender;

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
    let events = input::events(&arguments.file.open()?)?;
    let mut sender = Sender::new(&api, usize::from(arguments.batch), events.len() as u64);
    tokio::select! {
        sent = sender.send_events(events) => sent?,
        _ = ctrl_c() => return Ok(tell_interrupted(&name, sender.done())),
    }
    let report = sender.finish();
    show(&report, || report.words())?;
    Ok(ExitCode::from(u8::from(!report.is_good())))
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

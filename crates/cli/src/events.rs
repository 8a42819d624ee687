//! `events`: sends a file of events, or shows what the upstream would get.

mod input;
mod outcome;
mod preview;
mod report;
mod send;

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::{Args, Subcommand};
use indicatif::HumanCount;
use sampler_verify::words::{counted, form};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::api::Api;
use crate::failure::Failure;
use crate::file::{EventFile, FileArguments};
use crate::listing::Common;
use crate::output::{print, tell_interruption};
use crate::show::print_json;
pub(crate) use input::{FileEvent, id_of_text};
pub(crate) use report::in_one_line;
pub(crate) use send::Sender;

/// The exit code of a program that a signal ends begins here.
const EXIT_SIGNAL: u8 = 128;

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
  jq -c .usage[] dump.json | sampler events send - --format ndjson

Exit codes: 0 all events are kept, 1 some were refused, 2 the command line or the file is wrong and nothing
was sent, 3 the API gives no answer, 4 the file or the output failed midway, 130 it was interrupted (Ctrl-C).")]
struct SendArguments {
    #[command(flatten)]
    file: FileArguments,
    /// How many events are sent at once
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u16).range(1..=1000))]
    batch: u16,
    #[command(flatten)]
    common: Common,
}

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    match arguments.command {
        EventsCommand::Send(arguments) => run_send(arguments).await,
        EventsCommand::Preview(arguments) => preview::run(arguments),
    }
}

async fn run_send(arguments: SendArguments) -> Result<ExitCode, Failure> {
    let api = Api::new(&arguments.common.connection)?;
    let name = arguments.file.file.display().to_string();
    let file = arguments.file.open()?;
    let total = input::check(&file)?;
    let mut sender = Sender::new(&api, usize::from(arguments.batch), total);
    let done = sender.done();
    let sent = tokio::select! {
        sent = send(&mut sender, &file) => sent,
        code = interrupted(&name, &done) => return code,
    };
    let report = sender.finish();
    sent?;
    if arguments.common.json {
        print_json(&report.document())?;
    } else {
        print(&report.words())?;
    }
    Ok(ExitCode::from(u8::from(!report.is_good())))
}

async fn send(sender: &mut Sender<'_>, file: &EventFile) -> Result<(), Failure> {
    for event in input::events(file)? {
        // It was right when it was checked.
        let event =
            event.map_err(|what| Failure::Interrupted(format!("the file has changed: {what}")))?;
        sender.add(event).await?;
    }
    sender.flush().await
}

/// Ends when the user or the system ends the command, which may happen at any time without harm. Says how to
/// continue.
async fn interrupted(name: &str, done: &AtomicU64) -> Result<ExitCode, Failure> {
    let listen = |kind| signal(kind).map_err(|error| Failure::Input(error.to_string()));
    let mut interrupts = listen(SignalKind::interrupt())?;
    let mut terminations = listen(SignalKind::terminate())?;
    let kind = tokio::select! {
        _ = interrupts.recv() => SignalKind::interrupt(),
        _ = terminations.recv() => SignalKind::terminate(),
    };
    let code = u8::try_from(kind.as_raw_value()).map_or(EXIT_SIGNAL, |number| EXIT_SIGNAL + number);
    let events = done.load(Ordering::SeqCst);
    let message = format!(
        "interrupted: {} of {name} {} done; the same command continues: what is kept is recognised",
        counted(HumanCount(events), "event"),
        form(events, "is", "are"),
    );
    tell_interruption(&message, &json!({ "message": message, "exit_code": code }));
    Ok(ExitCode::from(code))
}

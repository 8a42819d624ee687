//! `events`: sends a file of events.

mod file_event;
mod input;
mod interruption;
mod journal;
mod outcome;
mod report;
mod send;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use indicatif::HumanCount;
use sampler_verify::moment::{Millis, parse_length};
use sampler_verify::words::counted;

use crate::api::Api;
use crate::clock;
use crate::columns::{ColumnArguments, Format};
use crate::failure::Failure;
use crate::listing::Common;
use crate::moment::time;
use crate::output::{note, print};
use crate::show::print_json;
pub(crate) use file_event::{FileEvent, id_of_text};
use input::Input;
use journal::{Begun, Journal};
pub(crate) use report::Why;
pub(crate) use send::Sender;

/// Sends events
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sampler events send events.ndjson")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: EventsCommand,
}

#[derive(Debug, Subcommand)]
enum EventsCommand {
    Send(SendArguments),
}

/// Sends all events of a file, in batches, and says which were refused
#[derive(Debug, Args)]
#[command(after_help = "\
Events of one target are sent in the order of the file. An event without an id gets one that follows from
what it says, so sending a file twice is safe: a repeat changes nothing. Where `day` or `at` count from now,
that holds only with the same --now: otherwise they are other events, at other times.

While it is sent, FILE.sampler-journal says how far. If sending is interrupted, or the receiver cannot be
reached, the same command continues from there. The file is removed at the end.

Examples:
  sampler events send events.ndjson
  sampler events send spans.csv --measures memory,storage --ignore note
  jq -c .usage[] dump.json | sampler events send - --format ndjson

Exit codes: 0 all events are kept, 1 some were refused, 2 the command line or the file is wrong and nothing
was sent, 3 the API gives no answer, 4 the file, the journal or the output failed midway, 130 it was
interrupted (Ctrl-C).")]
struct SendArguments {
    #[command(flatten)]
    file: FileArguments,
    /// How many events are sent at once
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u16).range(1..=1000))]
    batch: u16,
    /// Starts over, whatever an interrupted command has left
    #[arg(long)]
    restart: bool,
    /// Writes no journal: an interrupted command starts over
    #[arg(long)]
    no_journal: bool,
    #[command(flatten)]
    common: Common,
}

/// A file of events.
#[derive(Debug, Args)]
struct FileArguments {
    /// NDJSON or CSV as in examples/README.md, or `CloudEvents` as NDJSON or a list. `-` is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The format, if the file name does not show it
    #[arg(long, value_enum)]
    format: Option<Format>,
    #[command(flatten)]
    columns: ColumnArguments,
    /// The present time, for `day` and `at` in the file
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    now: Option<Millis>,
    /// Added to all timestamps of the file, but not to those of `CloudEvents`
    #[arg(long, value_name = "LENGTH", default_value = "0s", value_parser = parse_length)]
    #[arg(allow_hyphen_values = true)]
    offset: Millis,
}

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    match arguments.command {
        EventsCommand::Send(arguments) => run_send(arguments).await,
    }
}

async fn run_send(arguments: SendArguments) -> Result<ExitCode, Failure> {
    let api = Api::new(&arguments.common.connection)?;
    let file = &arguments.file;
    let now = file.now.unwrap_or_else(clock::now);
    let mut input = Input::open(file, now)?;
    let journal = if arguments.no_journal || file.is_stdin() {
        Journal::none(now)
    } else {
        let begun = Begun::new(file, now, api.base(), input.measures());
        Journal::open(&file.file, &begun, arguments.restart)?
    };
    if let Some(given) = file.now.filter(|given| *given != journal.now()) {
        let (path, before) = (file.file.display(), journal.now());
        return Err(Failure::Input(format!(
            "{path} was begun with --now {before}, and not {given}: without --now the command continues \
             from there; --restart sends all from the beginning"
        )));
    }
    // A day counts from the time at which the command was given first.
    input.count_from(journal.now());
    let done = journal.done.events;
    if done > 0 {
        let (name, done) = (input.name(), counted(HumanCount(done), "event"));
        note(&format!("{name} continues behind the {done} sent before"));
    }
    let mut sender = Sender::new(&api, journal, usize::from(arguments.batch), input.length());
    sender.is_now_given = file.now.is_some();
    interruption::tell_how_to_go_on(input.name().to_owned(), sender.done());
    if let Err(failure) = sender.send(input).await {
        sender.forget_what_was_not_begun();
        return Err(failure);
    }
    let report = sender.finish()?;
    if arguments.common.json {
        print_json(&report.document())?;
    } else {
        print(&report.words())?;
    }
    Ok(ExitCode::from(u8::from(!report.is_good())))
}

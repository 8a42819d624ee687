//! The program `sampler`, for people at a terminal and for their scripts.

mod actions;
mod api;
mod clock;
mod connection;
mod control;
mod event;
mod events;
mod failure;
mod feed;
mod file;
mod listing;
mod mapping;
mod moment;
mod output;
mod progress;
mod resolve;
mod show;
mod snapshot;
mod span;
mod spans;
mod table;
mod token;
mod usages;
mod verify;

use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::{Shell, generate};
use tokio::runtime::Builder;

use failure::Failure;

const EXIT_USAGE: u8 = 2;

/// Works with Sampler from a terminal.
#[derive(Debug, Parser)]
#[command(name = "sampler", version, arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  sampler spans --organization-id acme --from yesterday
  sampler span orders-db
  sampler events send events.ndjson
  sampler verify events.ndjson

`sampler COMMAND --help` has examples of each command.")]
struct Cli {
    // Global options: their position does not matter, and the command has their values.
    #[command(flatten)]
    _common: listing::Common,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Spans(spans::Arguments),
    Span(span::Arguments),
    Usages(usages::Arguments),
    Suspended(actions::SuspendedArguments),
    Resume(actions::ResumeArguments),
    Skip(actions::SkipArguments),
    Resend(actions::ResendArguments),
    Audit(actions::AuditArguments),
    Backlog(control::BacklogArguments),
    Control(Box<control::ControlArguments>),
    Start(Box<event::StartArguments>),
    Stop(event::StopArguments),
    Update(Box<event::UpdateArguments>),
    Mapping(mapping::Arguments),
    Events(events::Arguments),
    Snapshot(snapshot::Arguments),
    Feed(Box<feed::Arguments>),
    Verify(verify::Arguments),
    Completions(CompletionsArguments),
}

/// Prints the script with which a shell completes commands and options
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  source <(sampler completions bash)
  sampler completions fish > ~/.config/fish/completions/sampler.fish")]
struct CompletionsArguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

fn completions(arguments: &CompletionsArguments) -> Result<ExitCode, Failure> {
    let mut text = Vec::new();
    generate(arguments.shell, &mut command(), "sampler", &mut text);
    output::print_as_is(&[&String::from_utf8_lossy(&text)])?;
    Ok(ExitCode::SUCCESS)
}

/// The command line as clap describes it, for documents that are made from it.
pub fn command() -> clap::Command {
    Cli::command()
}

pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return end_unparsed(&error),
    };
    let runtime = Builder::new_current_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(run(cli.command)),
        Err(error) => Err(Failure::Input(error.to_string())),
    };
    result.unwrap_or_else(|failure| {
        output::tell("error", &failure.to_string(), &failure.document());
        ExitCode::from(failure.exit_code())
    })
}

/// Prints the help that was asked for, or what is wrong with the command line.
fn end_unparsed(error: &clap::Error) -> ExitCode {
    if error.use_stderr() && output::wants_json() {
        output::tell_usage(&error.to_string(), EXIT_USAGE);
        return ExitCode::from(EXIT_USAGE);
    }
    let text = error.to_string();
    if error.use_stderr() && output::has_invisible(&text) {
        output::tell_usage(&text, EXIT_USAGE);
        return ExitCode::from(EXIT_USAGE);
    }
    error.exit()
}

async fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Spans(arguments) => spans::run(arguments).await,
        Command::Span(arguments) => span::run(arguments).await,
        Command::Usages(arguments) => usages::run(arguments).await,
        Command::Suspended(arguments) => actions::suspended(arguments).await,
        Command::Resume(arguments) => actions::resume(arguments).await,
        Command::Skip(arguments) => actions::skip(arguments).await,
        Command::Resend(arguments) => actions::resend(arguments).await,
        Command::Audit(arguments) => actions::audit(arguments).await,
        Command::Backlog(arguments) => control::backlog(arguments).await,
        Command::Control(arguments) => control::control(*arguments).await,
        Command::Start(arguments) => event::start(*arguments).await,
        Command::Stop(arguments) => event::stop(arguments).await,
        Command::Update(arguments) => event::update(*arguments).await,
        Command::Mapping(arguments) => mapping::run(arguments).await,
        Command::Events(arguments) => events::run(arguments).await,
        Command::Snapshot(arguments) => snapshot::run(arguments).await,
        Command::Feed(arguments) => feed::run(*arguments).await,
        Command::Verify(arguments) => verify::run(arguments).await,
        Command::Completions(arguments) => completions(&arguments),
    }
}

//! The program `sampler`, for people at a terminal and for their scripts.

mod actions;
mod api;
mod connection;
mod event;
mod events;
mod failure;
mod feed;
mod file;
mod listing;
mod moment;
mod output;
mod show;
mod snapshot;
mod span;
mod verify;

use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::{Shell, generate};

use api::Api;
use failure::Failure;

/// Works with Sampler from a terminal.
#[derive(Debug, Parser)]
#[command(name = "sampler", version, arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  sampler spans --organization-id acme --from yesterday
  sampler span orders-db
  sampler events send events.ndjson
  sampler verify events.ndjson

`sampler COMMAND --help` has examples of each command.

Exit codes: 0 done, or yes, 1 no: events were refused, something differs or does not fit, 2 the command line,
the file or a parameter is wrong, and nothing was changed, 3 the API gives no answer, or refuses the command,
4 the file or the output failed, 130 interrupted (Ctrl-C).")]
struct Cli {
    // Global options: their position does not matter.
    #[command(flatten)]
    common: listing::Common,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Spans(listing::SpansArguments),
    Span(span::Arguments),
    Usages(listing::UsagesArguments),
    Suspended(listing::SuspendedArguments),
    Resume(actions::ResumeArguments),
    Skip(actions::SkipArguments),
    Resend(actions::ResendArguments),
    Audit(listing::AuditArguments),
    Backlog(actions::BacklogArguments),
    Control(Box<actions::ControlArguments>),
    Start(Box<event::StartArguments>),
    Stop(event::StopArguments),
    Update(Box<event::UpdateArguments>),
    Mapping(event::MappingArguments),
    Events(events::Arguments),
    Snapshot(snapshot::Arguments),
    Feed(Box<feed::Arguments>),
    Verify(Box<verify::Arguments>),
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
    output::print_as_is(&String::from_utf8_lossy(&text))?;
    Ok(ExitCode::SUCCESS)
}

/// The command line as clap describes it, for documents that are made from it.
pub fn command() -> clap::Command {
    Cli::command()
}

pub fn main() -> ExitCode {
    let result = match Cli::try_parse() {
        Ok(cli) => run(cli),
        Err(error) => Err(unparsed(&error)),
    };
    result.unwrap_or_else(|failure| {
        output::tell("error", &failure.to_string(), &failure.document());
        ExitCode::from(failure.exit_code())
    })
}

/// What is wrong with the command line. The help that was asked for, and mistakes that a terminal may show as they
/// are, are printed by clap, which ends the program.
fn unparsed(error: &clap::Error) -> Failure {
    let text = error.to_string();
    if !error.use_stderr() || !(output::wants_json() || output::has_invisible(&text)) {
        error.exit();
    }
    let text = text.trim();
    Failure::Input(text.strip_prefix("error: ").unwrap_or(text).to_owned())
}

#[tokio::main(flavor = "current_thread")]
async fn run(Cli { common, command }: Cli) -> Result<ExitCode, Failure> {
    let api = || Api::new(&common.connection);
    match command {
        Command::Spans(arguments) => listing::spans(arguments, &api()?).await,
        Command::Span(arguments) => span::run(arguments, &api()?).await,
        Command::Usages(arguments) => listing::usages(arguments, &api()?).await,
        Command::Suspended(arguments) => listing::suspended(arguments, &api()?).await,
        Command::Resume(arguments) => actions::resume(arguments, &api()?).await,
        Command::Skip(arguments) => actions::skip(arguments, &api()?).await,
        Command::Resend(arguments) => actions::resend(arguments, &api()?).await,
        Command::Audit(arguments) => listing::audit(arguments, &api()?).await,
        Command::Backlog(_) => actions::backlog(&api()?).await,
        Command::Control(arguments) => actions::control(*arguments, &api()?).await,
        Command::Start(arguments) => event::start(*arguments, &api()?).await,
        Command::Stop(arguments) => event::stop(arguments, &api()?).await,
        Command::Update(arguments) => event::update(*arguments, &api()?).await,
        Command::Mapping(arguments) => event::mapping(arguments, &api()?).await,
        Command::Events(arguments) => events::run(arguments, api).await,
        Command::Snapshot(arguments) => snapshot::run(arguments, &api()?).await,
        Command::Feed(arguments) => feed::run(*arguments).await,
        Command::Verify(arguments) => verify::run(*arguments).await,
        Command::Completions(arguments) => completions(&arguments),
    }
}

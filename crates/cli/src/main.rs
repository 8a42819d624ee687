//! The program `sampler`, for people at a terminal and for their scripts.

mod api;
mod clock;
mod connection;
mod failure;
mod output;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tokio::runtime::Builder;

use failure::Failure;

/// Works with Sampler from a terminal.
#[derive(Debug, Parser)]
#[command(name = "sampler", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Verify(verify::Arguments),
}

fn main() -> ExitCode {
    // A wrong command line ends here, with the exit code 2.
    let cli = Cli::parse();
    let runtime = Builder::new_current_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(run(cli.command)),
        Err(error) => Err(Failure::Input(error.to_string())),
    };
    result.unwrap_or_else(|failure| {
        eprintln!("error: {failure}");
        ExitCode::from(failure.exit_code())
    })
}

async fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Verify(arguments) => verify::run(arguments).await,
    }
}

//! The project's own commands: `cargo xtask <command>`.

mod checks;
mod docs;
mod package;
mod runs;
mod tools;
mod up;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about, version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Starts the whole of Sampler on this machine and replays events.
    Up(up::Arguments),
    /// Runs all tests, with one MongoDB for all of them.
    Test {
        /// Passed on to the test runner: names of tests, for example.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        filters: Vec<String>,
    },
    /// Runs what the continuous integration runs.
    Ci,
    /// Goes through all states of the model.
    Model {
        /// Scenarios: `window`, `"start=0 acts=2 lost"`. Without any: all.
        scenarios: Vec<String>,
    },
    /// Runs the simulation: seeds of everything that can go wrong, in virtual time.
    Sim {
        /// Passed on to it: `--seeds N --from S`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Measures the programs as a release builds them; `bench --help` says what can be chosen.
    #[command(disable_help_flag = true)]
    Bench {
        /// Passed on to it: `--quick`, `--only worker`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Runs chaos: real processes under load, and everything that can fail on one machine.
    #[command(disable_help_flag = true)]
    Chaos {
        /// Passed on to it: `--minutes M --seed S`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Builds what `cf push` takes, for each app of the manifest.
    Package {
        /// Also where the list of known weaknesses cannot be fetched. Not for a release.
        #[arg(long)]
        unchecked: bool,
    },
    /// Writes the documents that are made from the programs.
    Docs {
        /// Changes nothing, and fails where a document is not up to date.
        #[arg(long)]
        check: bool,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Up(arguments) => up::run(arguments).await,
        Command::Test { filters } => checks::test(&filters).await,
        Command::Ci => checks::ci().await,
        Command::Model { scenarios } => runs::run_fast("sampler-model", &scenarios),
        Command::Sim { arguments } => runs::run_fast("sampler-simulation", &arguments),
        Command::Bench { arguments } => runs::run_bench(&arguments),
        Command::Chaos { arguments } => runs::run_chaos(&arguments),
        Command::Package { unchecked } => package::package(unchecked),
        Command::Docs { check } => docs::run(check),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

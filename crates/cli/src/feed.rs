//! `feed`: turns a platform's own record of what runs into events for the receiver.

mod follow;
mod gap;
mod mapping;
mod outside;
mod platform;
mod report;
#[cfg(test)]
#[path = "../tests/feed/simulation.rs"]
mod simulation;
mod state;
mod store;
mod translate;
mod usage_event;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use sampler_verify::moment::{Millis, parse_length};
use tokio::signal::unix::{SignalKind, signal};

use crate::api::Api;
use crate::failure::Failure;
use crate::listing::Common;
use crate::show::exit_code;
use follow::{Feed, How};
use mapping::Mapping;
use platform::Live;
use report::Report;
use store::Store;
use usage_event::Record;

/// Turns a platform's own record of what runs into events
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sampler feed cloud-foundry --once --dry-run --cf-api https://api.example.com --cf-client-id usage")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: FeedCommand,
}

#[derive(Debug, Subcommand)]
enum FeedCommand {
    CloudFoundry(CloudFoundryArguments),
}

/// Meters all service instances, processes and tasks of a Cloud Foundry
#[derive(Debug, Args)]
#[command(after_help = "\
Reads the usage events of the platform and sends what follows from them, until it is stopped. Killed at any
time, the same command continues without loss, and nothing is billed twice. The platform's client needs the
scope cloud_controller.global_auditor; SAMPLER_CF_CLIENT_SECRET holds its secret. docs/feed.md says what is
metered as what.

What the receiver refuses for good is appended to refused.ndjson beside the state. A start or an end that
nobody recorded is a line of the log, and again at the end, with its bounds.

Examples:
  sampler feed cloud-foundry --cf-api https://api.example.com --cf-client-id usage \\
      --url https://sampler.example.com --state /var/lib/sampler/feed.json
  sampler feed cloud-foundry --once --only apps --state feed.json

Exit codes: 0 stopped, or all events are kept, 1 with --once: some were refused, 2 the command line, the
mapping or the state is wrong and nothing was sent, 3 one of the two APIs gives no answer, 4 the state or the
output failed midway.")]
struct CloudFoundryArguments {
    /// The client of the platform
    #[arg(long, env = "SAMPLER_CF_CLIENT_ID", value_name = "ID")]
    cf_client_id: String,
    /// The file that says how far the record is read, and what runs
    #[arg(long, env = "SAMPLER_FEED_STATE", value_name = "FILE")]
    state: PathBuf,
    /// Reads one of the two records
    #[arg(long, value_enum, value_name = "RECORD")]
    only: Option<Record>,
    /// Other names for resources and plans (TOML)
    #[arg(long, env = "SAMPLER_FEED_MAPPING", value_name = "FILE")]
    mapping: Option<PathBuf>,
    /// Younger events are not read yet: the platform may still insert others before them
    #[arg(long, value_name = "LENGTH", default_value = "5m", value_parser = parse_length)]
    min_age: Millis,
    /// Serves metrics at `/metrics` on this port
    #[arg(long, env = "SAMPLER_FEED_METRICS_PORT", value_name = "PORT")]
    metrics_port: Option<u16>,
    /// Ends when it has caught up
    #[arg(long)]
    once: bool,
    /// Ends when it has caught up, and prints the events instead of sending them
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    common: Common,
}

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    match arguments.command {
        FeedCommand::CloudFoundry(arguments) => cloud_foundry(arguments).await,
    }
}

async fn cloud_foundry(arguments: CloudFoundryArguments) -> Result<ExitCode, Failure> {
    let input = |what: &str| Failure::Input(what.to_owned());
    let mapping = arguments.mapping.as_deref().map(Mapping::read);
    let mapping = mapping.transpose()?.unwrap_or_default();
    if arguments.min_age < 0 {
        return Err(input("--min-age is not negative"));
    }
    let mut connection = arguments.common.connection;
    let cf_api = connection.platform()?;
    let cf_api = cf_api.ok_or_else(|| input("--cf-api is the address of the platform"))?;
    let receiver = Api::new(&connection)?;
    let live = Live::new(cf_api.clone(), &arguments.cf_client_id, mapping, receiver)?;
    let store = Store::open(&arguments.state, &cf_api, arguments.dry_run)?;
    let report = Report::default();
    if let Some(port) = arguments.metrics_port {
        let address = report.serve(port).await?;
        eprintln!("metrics on {address}");
    }
    let both = Record::value_variants().to_vec();
    let how = How {
        records: arguments.only.map_or(both, |record| vec![record]),
        min_age: arguments.min_age,
        is_once: arguments.once || arguments.dry_run,
        is_dry: arguments.dry_run,
    };
    let mut feed = Feed::new(how, live, store, report);
    let ended = run_until_stopped(&mut feed).await;
    feed.store.save_answers()?;
    let has_caught_up = ended?;
    if arguments.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    feed.tell_all()?;
    if arguments.once && !has_caught_up {
        let what = "stopped before it has caught up; the same command continues";
        return Err(Failure::Interrupted(what.to_owned()));
    }
    Ok(exit_code(!arguments.once || feed.report.is_good()))
}

/// Returns whether it ended by itself. It can be stopped anywhere, as it can be killed anywhere.
async fn run_until_stopped(feed: &mut Feed<Live>) -> Result<bool, Failure> {
    let signals = [SignalKind::terminate(), SignalKind::interrupt()].map(signal);
    let [terminate, interrupt] = signals.map(|it| it.map_err(|it| Failure::Input(it.to_string())));
    let (mut terminate, mut interrupt) = (terminate?, interrupt?);
    tokio::select! {
        result = feed.run() => result.map(|()| true),
        _ = terminate.recv() => Ok(false),
        _ = interrupt.recv() => Ok(false),
    }
}

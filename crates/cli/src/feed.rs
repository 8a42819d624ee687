//! `feed`: turns a platform's own record of what runs into events for the receiver.

mod follow;
mod gap;
mod lists;
mod mapping;
mod platform;
mod receiver;
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

use clap::{Args, Subcommand};
use sampler_verify::moment::{Millis, parse_length};
use tokio::signal::unix::{SignalKind, signal};

use crate::api::Api;
use crate::failure::Failure;
use crate::listing::Common;
use follow::{Feed, How};
use mapping::Mapping;
use platform::Platform;
use receiver::Live;
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
scope cloud_controller.global_auditor; SAMPLER_CF_CLIENT_SECRET or a file holds its secret. docs/feed.md says
what is metered as what.

What the receiver refuses for good is appended to refused.ndjson beside the state. A start or an end that
nobody recorded is a line of the log, and again at the end, with its bounds.

Examples:
  sampler feed cloud-foundry --cf-api https://api.example.com --cf-client-id usage \\
      --url https://sampler.example.com --state /var/lib/sampler/feed.json
  sampler feed cloud-foundry --once --apps --state feed.json

Exit codes: 0 stopped, or all events are kept, 1 with --once: some were refused, 2 the command line, the
mapping or the state is wrong and nothing was sent, 3 one of the two APIs gives no answer, 4 the state or the
output failed midway.")]
#[expect(clippy::struct_excessive_bools, reason = "each is an option")]
struct CloudFoundryArguments {
    /// The client of the platform
    #[arg(
        long,
        env = "SAMPLER_CF_CLIENT_ID",
        hide_env_values = true,
        value_name = "ID"
    )]
    cf_client_id: Option<String>,
    /// A file with the secret of the client; otherwise `SAMPLER_CF_CLIENT_SECRET` holds the secret
    #[arg(
        long,
        env = "SAMPLER_CF_CLIENT_SECRET_FILE",
        hide_env_values = true,
        value_name = "FILE"
    )]
    cf_client_secret_file: Option<PathBuf>,
    /// The file that says how far the record is read, and what runs
    #[arg(
        long,
        env = "SAMPLER_FEED_STATE",
        hide_env_values = true,
        value_name = "FILE"
    )]
    state: PathBuf,
    /// Only apps: their processes and tasks
    #[arg(long)]
    apps: bool,
    /// Only managed service instances
    #[arg(long)]
    services: bool,
    /// Other names for resources and plans (TOML)
    #[arg(
        long,
        env = "SAMPLER_FEED_MAPPING",
        hide_env_values = true,
        value_name = "FILE"
    )]
    mapping: Option<PathBuf>,
    /// Younger events are not read yet: the platform may still insert others before them
    #[arg(long, value_name = "LENGTH", default_value = "5m", value_parser = parse_length)]
    min_age: Millis,
    /// Serves metrics at `/metrics` on this port
    #[arg(
        long,
        env = "SAMPLER_FEED_METRICS_PORT",
        hide_env_values = true,
        value_name = "PORT"
    )]
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
    let api = Api::new(&connection)?;
    let (client, secret) = (arguments.cf_client_id, arguments.cf_client_secret_file);
    let platform = Platform::new(cf_api.clone(), client, secret.as_deref(), mapping)?;
    let store = Store::open(&arguments.state, &cf_api, arguments.dry_run)?;
    let report = Report::default();
    if let Some(port) = arguments.metrics_port {
        let address = report.serve(port).await?;
        eprintln!("metrics on {address}");
    }
    // Both lists, unless one is named.
    let both = arguments.apps == arguments.services;
    let lists = [
        (Record::Services, arguments.services),
        (Record::Apps, arguments.apps),
    ];
    let wanted = lists.into_iter().filter(|(_, is_named)| both || *is_named);
    let how = How {
        records: wanted.map(|(record, _)| record).collect(),
        min_age: arguments.min_age,
        is_once: arguments.once || arguments.dry_run,
        is_dry: arguments.dry_run,
    };
    let mut feed = Feed::new(how, Live { platform, api }, store, report);
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
    let is_bad = arguments.once && !feed.report.is_good();
    Ok(ExitCode::from(u8::from(is_bad)))
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

//! `pictures`: those of the console in the README, made from the real pages.

use std::fs;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use sampler_testkit::browser::visit;
use sampler_testkit::{now_millis, target_dir, workspace_dir};
use serde_json::json;

use super::cli::Cli;
use super::events::Events;
use super::system::{ExtendedLimits, System};
use super::{Arguments, read_events, replay, showcase};

/// What is taken, in `target/console` and in `docs/images`.
const NAMES: [&str; 2] = ["console-timeline", "console-overview"];

/// The same as for `up`, without a fixed port.
#[derive(Parser)]
struct Defaults {
    #[command(flatten)]
    arguments: Arguments,
}

/// Starts everything, and takes the pictures.
pub(crate) async fn run() -> Result<()> {
    let arguments = Defaults::try_parse_from(["up", "--port=0"])?.arguments;
    let events = read_events(&arguments, now_millis())?.context("the example")?;
    let system = System::start(&arguments, &ExtendedLimits::default()).await?;
    let taken = take(&system, events).await;
    system.stop().await?;
    taken
}

async fn take(system: &System, events: Events) -> Result<()> {
    let cli = Cli::new(&system.receiver.base_url(), &events).await?;
    replay(system, &cli, &events).await?;
    let late = showcase::begin(system).await?;
    showcase::fall_behind(system).await?;
    let known = json!({ "base": system.receiver.base_url(), "span": late });
    let is_taken = visit("pictures", &known).await?;
    ensure!(is_taken, "pictures need a browser");
    for name in NAMES {
        let file = format!("{name}.png");
        let from = target_dir().join("console").join(&file);
        let to = workspace_dir().join("docs/images").join(&file);
        fs::copy(&from, &to).with_context(|| format!("copying {}", from.display()))?;
    }
    Ok(())
}

//! The stand-in for Abacus as a program of its own, for `compose.yaml`.
//!
//! `HOST` (0.0.0.0) and `PORT` (9080) say where it listens. SIGTERM and Ctrl-C end it.

use anyhow::{Context, Result, bail};
use sampler_testkit::abacus::{Options, StandInAbacus};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

const HELP: &str = "\
Takes usages and mappings as Abacus does, and forgets them when it ends. For trying Sampler out.

Usage: sampler-stand-in

Environment:
  HOST  The address to listen on [default: 0.0.0.0]
  PORT  The port to listen on [default: 9080]

SIGTERM and Ctrl-C end it.";

#[tokio::main]
async fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        None => serve().await,
        Some("--help" | "-h") => {
            println!("{HELP}");
            Ok(())
        }
        Some(other) => bail!("{other} is not an option; see --help"),
    }
}

async fn serve() -> Result<()> {
    let host = std::env::var("HOST").unwrap_or_else(|_| "0.0.0.0".to_owned());
    let port = std::env::var("PORT").unwrap_or_else(|_| "9080".to_owned());
    let port: u16 = port.parse().context("PORT is not a port")?;
    let listener = TcpListener::bind((host.as_str(), port)).await;
    let listener = listener.with_context(|| format!("listening on {host}:{port}"))?;
    let stand_in = StandInAbacus::start_on(listener, Options::default())?;
    println!("the stand-in for Abacus listens on {}", stand_in.base_url());
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
    tokio::select! {
        _ = terminate.recv() => Ok(()),
        ended = tokio::signal::ctrl_c() => ended.context("Ctrl-C"),
    }
}

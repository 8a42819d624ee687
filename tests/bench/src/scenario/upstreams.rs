//! Whether the worker is as fast with a receiver of CloudEvents as with Abacus.

use std::time::Duration;

use anyhow::{Context, Result};

use super::least_disturbed;
use super::ledger::middle;
use super::worker::rate_of;
use super::workers::Upstream;
use crate::data::Sampled;
use crate::mongo::Server;
use crate::programs::WorkerProgram;
use crate::report::{Section, of_upstreams};
use crate::scale::Scale;

/// Runs both by turns.
pub(crate) async fn run(server: &Server, scale: &Scale) -> Result<Section> {
    let mut rounds = Vec::new();
    for _ in 0..scale.rounds {
        let events = workers(server, scale, Upstream::CloudEvents).await?;
        let abacus = workers(server, scale, Upstream::Abacus).await?;
        rounds.push([events, abacus]);
    }
    Ok(of_upstreams(&middle(rounds).context("no round")?))
}

async fn workers(server: &Server, scale: &Scale, upstream: Upstream) -> Result<Sampled> {
    let most = scale.workers.iter().copied().max().unwrap_or(1);
    eprintln!("  {upstream:?}, {most} workers");
    let once = || async {
        let spans = server.spans().await?;
        let program = (WorkerProgram::Released, upstream);
        let timing = scale.worker_timing;
        let rate = rate_of(server, &spans, program, (most, Duration::ZERO), timing).await?;
        spans.drop().await?;
        Ok(rate)
    };
    least_disturbed(scale.again, once, |rate: &Sampled| rate.others_share).await
}

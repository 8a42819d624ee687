//! What the ledger costs: the worker with and without it.

use std::time::Duration;

use anyhow::{Context, Result};

use super::least_disturbed;
use super::midnight::through;
use super::worker::rate_of;
use super::workers::Upstream;
use crate::data::Sampled;
use crate::mongo::Server;
use crate::programs::WorkerProgram;
use crate::report::{Section, of_ledger};
use crate::scale::Scale;

/// Runs everything.
pub(crate) async fn run(server: &Server, scale: &Scale) -> Result<Section> {
    let (mut rates, mut midnights) = (Vec::new(), Vec::new());
    for _ in 0..scale.rounds {
        let with = workers(server, scale, WorkerProgram::WithLedger).await?;
        let without = workers(server, scale, WorkerProgram::WithoutLedger).await?;
        rates.push([with, without]);
        midnights.push(midnight(server, scale.ledger_midnight).await?);
    }
    let rates = middle(rates).context("no round of workers")?;
    let midnight = middle(midnights).context("no midnight")?;
    Ok(of_ledger(&rates, &midnight))
}

/// A midnight with the ledger, and without.
async fn midnight(server: &Server, count: u64) -> Result<[Sampled; 2]> {
    eprintln!("  a midnight of {count} spans, with and without");
    let (with, _) = through(server, count, WorkerProgram::WithLedger).await?;
    let (without, _) = through(server, count, WorkerProgram::WithoutLedger).await?;
    Ok([with, without])
}

/// The round whose ratio of the first to the second is in the middle: the machine's speed changes more
/// between rounds than within one.
pub(crate) fn middle(mut rounds: Vec<[Sampled; 2]>) -> Option<[Sampled; 2]> {
    let ratio = |[one, other]: &[Sampled; 2]| one.per_second / other.per_second;
    rounds.sort_by(|one, other| ratio(one).total_cmp(&ratio(other)));
    let middle = rounds.len().checked_sub(1)? / 2;
    Some(rounds.swap_remove(middle))
}

async fn workers(server: &Server, scale: &Scale, program: WorkerProgram) -> Result<Sampled> {
    let most = scale.workers.iter().copied().max().unwrap_or(1);
    eprintln!("  {program:?}, {most} workers");
    let once = || async {
        let spans = server.spans().await?;
        let timing = scale.worker_timing;
        let program = (program, Upstream::Abacus);
        let rate = rate_of(server, &spans, program, (most, Duration::ZERO), timing).await?;
        spans.drop().await?;
        Ok(rate)
    };
    least_disturbed(scale.again, once, |rate: &Sampled| rate.others_share).await
}

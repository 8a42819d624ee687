//! A quiet client with single events beside others who send as much as there can be: single events over
//! many connections, or batches over a few.

use std::time::{Duration, Instant};

use anyhow::Result;
use sampler_testkit::build::Kind;
use sampler_testkit::now_millis;
use tokio::time::interval;

use super::events::{EventRun, System, rounds};
use crate::event::{Feed, Requests, Times};
use crate::histogram::Histogram;
use crate::load::{Sender, Sending, Span, Timing, on_own_thread};
use crate::mongo::Server;
use crate::process::peak_memory_mb;
use crate::programs::{self, Build};
use crate::report::{Section, of_batches, of_fairness};
use crate::scale::Scale;

/// Connections over which batches are sent, and over which single events are, unless fewer are measured.
const BATCH_CONNECTIONS: usize = 4;
const SINGLE_CONNECTIONS: usize = 256;
/// The resource of the quiet client, and its first event: no number of the others'.
const QUIET: &str = "quiet-database";
const QUIET_FIRST: u64 = 5_000_000;
/// Between two of its events, and over how many connections it sends them: so many that the next event
/// finds one free, unless an answer takes more than 400 ms. With fewer, events would wait in the client,
/// and count as late.
const QUIET_PAUSE: Duration = Duration::from_millis(10);
const QUIET_CONNECTIONS: u16 = 40;
/// How often the database is asked for nothing meanwhile.
const PING_PAUSE: Duration = Duration::from_millis(10);

/// One run of a quiet client beside others.
#[derive(Clone, Debug)]
pub(crate) struct QuietRun {
    /// Over how many connections the others send.
    pub(crate) connections: usize,
    /// Events of all that were kept each second.
    pub(crate) kept_per_second: f64,
    /// How many of the others' events were kept, per cent.
    pub(crate) others_kept_share: f64,
    /// How many of the quiet client's events were kept, per cent.
    pub(crate) kept_share: f64,
    /// Half of those took no longer than this, ms.
    pub(crate) p50_ms: f64,
    /// 99 of 100 of those.
    pub(crate) p99_ms: f64,
    /// 99 of 100 pings of the database took no longer meanwhile, ms.
    pub(crate) ping_p99_ms: f64,
    /// The most memory that the receiver had at a time, MB.
    pub(crate) memory_mb: f64,
}

/// Beside a flood of single events, over its connections.
pub(crate) async fn fairness(server: &Server, scale: &Scale) -> Result<Section> {
    let mut runs = Vec::new();
    for connections in scale.flood.iter().copied() {
        runs.push(quiet(server, scale.timing, (connections, None)).await?);
    }
    Ok(of_fairness(&runs))
}

/// Batches beside single events; and the quiet client alone and beside batches by turns.
pub(crate) async fn batches(server: &Server, scale: &Scale) -> Result<Section> {
    let single = SINGLE_CONNECTIONS.min(scale.connections.iter().copied().max().unwrap_or(1));
    let run = |system, connections| EventRun {
        system,
        kind: Kind::Start,
        connections,
    };
    let side_by_side = [
        run(System::Batched(scale.batch), BATCH_CONNECTIONS),
        run(System::Sampler, single),
    ];
    let rates = rounds(server, scale, &side_by_side).await?;
    let mut runs = Vec::new();
    for connections in [0, BATCH_CONNECTIONS, 0, BATCH_CONNECTIONS] {
        runs.push(quiet(server, scale.timing, (connections, Some(scale.batch))).await?);
    }
    Ok(of_batches(&rates, &runs))
}

async fn quiet(
    server: &Server,
    timing: Timing,
    (connections, batch): (usize, Option<usize>),
) -> Result<QuietRun> {
    let spans = server.spans().await?;
    let program = programs::receiver(Build::Own, &spans.uri).await?;
    server.settle().await?;
    let requests = Requests::new(program.address(), Times::beginning(now_millis()));
    let load = move || async move {
        let others = Sender::open(connections, batch, requests.clone()).await?;
        let requests = requests.of_resource(QUIET);
        let quiet = Sender::open(QUIET_CONNECTIONS.into(), None, requests).await?;
        let feed = |first| Feed::new(Kind::Start, first, QUIET_FIRST);
        let span = Span::beginning_now(timing);
        let others = Sending::begin(others, feed(0), span, None);
        let pause = QUIET_PAUSE * QUIET_CONNECTIONS.into();
        let quiet = Sending::begin(quiet, feed(QUIET_FIRST), span, Some(pause));
        Ok((others.end().await?, quiet.end().await?))
    };
    let (sent, pings) = tokio::join!(on_own_thread(load), pings(server, timing));
    let (others, quiet) = sent?;
    let run = QuietRun {
        connections,
        kept_per_second: (others.kept + quiet.kept) as f64 / timing.measured.as_secs_f64(),
        others_kept_share: others.kept_share(),
        kept_share: quiet.kept_share(),
        p50_ms: quiet.latencies.millis_at(0.5),
        p99_ms: quiet.latencies.millis_at(0.99),
        ping_p99_ms: pings?.millis_at(0.99),
        memory_mb: peak_memory_mb(program.pid())?,
    };
    eprintln!("    {run:?}");
    program.kill()?;
    spans.drop().await?;
    Ok(run)
}

/// How long the database takes for the least that it can be asked: what all wait for the processors.
async fn pings(server: &Server, timing: Timing) -> Result<Histogram> {
    let mut latencies = Histogram::default();
    let mut ticks = interval(PING_PAUSE);
    let from = Instant::now() + timing.warm_up;
    let until = from + timing.measured;
    while Instant::now() < until {
        ticks.tick().await;
        let began = Instant::now();
        server.ping().await?;
        if began >= from {
            latencies.record(began.elapsed());
        }
    }
    Ok(latencies)
}

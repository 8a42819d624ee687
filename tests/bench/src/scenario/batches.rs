//! Batches over a few connections, beside single events over many; and a quiet client with single
//! events, alone and while others send batches without pause.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use futures_util::future::join_all;
use sampler_testkit::now_millis;
use tokio::time::interval;

use super::events::{EventRun, rounds};
use super::fairness::{QUIET, QUIET_CONNECTIONS, QUIET_FIRST, send_some, sum};
use crate::data::{QuietRun, System};
use crate::event::{Event, Feed, Mix, Requests, Times};
use crate::histogram::Histogram;
use crate::load::http::BatchSender;
use crate::load::{Sender, Timing, on_own_thread};
use crate::mongo::Server;
use crate::programs;
use crate::report::{Section, of_batches};
use crate::scale::Scale;

/// Connections over which batches are sent, and over which single events are, unless fewer are measured.
const CONNECTIONS: usize = 4;
const SINGLE_CONNECTIONS: usize = 256;

/// How often the database is asked for nothing meanwhile.
const PING_PAUSE: Duration = Duration::from_millis(10);

/// Runs everything.
pub(crate) async fn run(server: &Server, scale: &Scale) -> Result<Section> {
    let single = SINGLE_CONNECTIONS.min(scale.most_connections());
    let run = |system, connections| EventRun {
        system,
        mix: Mix::Starts,
        connections,
        batch: scale.batch,
        timing: scale.timing,
    };
    let side_by_side = [
        run(System::Batched, CONNECTIONS),
        run(System::Sampler, single),
    ];
    let rates = rounds(server, scale, &side_by_side).await?;
    let mut quiet = Vec::new();
    for connections in [0, CONNECTIONS, 0, CONNECTIONS] {
        quiet.push(quiet_client(server, scale, connections).await?);
    }
    Ok(of_batches(&rates, &quiet))
}

/// A quiet client while others send batches over so many connections.
async fn quiet_client(server: &Server, scale: &Scale, connections: usize) -> Result<QuietRun> {
    let spans = server.spans().await?;
    let program = programs::receiver(&spans.uri).await?;
    server.settle().await?;
    let address = program.address().to_owned();
    let (batch, timing) = (scale.batch, scale.timing);
    let load = move || async move { load(&address, (connections, batch), timing).await };
    let (run, pings) = tokio::join!(on_own_thread(load), pings(server, timing));
    let run = QuietRun {
        ping_p99_ms: pings?.millis_at(0.99),
        ..run?
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

async fn load(
    address: &str,
    (connections, batch): (usize, usize),
    timing: Timing,
) -> Result<QuietRun> {
    let times = Times::beginning(now_millis());
    let feed = Arc::new(Feed::new(Mix::Starts, 0, 0, 0).at_most(QUIET_FIRST));
    let requests = Arc::new(Requests::of_resource(address, QUIET));
    let senders = BatchSender::open(address, connections, batch, times).await?;
    let from = Instant::now() + timing.warm_up;
    let until = from + timing.measured;
    let batches = senders
        .into_iter()
        .map(|sender| tokio::spawn(send_batches(sender, Arc::clone(&feed), (from, until))));
    let batches: Vec<_> = batches.collect();
    let mut quiet = Vec::new();
    for client in 0..QUIET_CONNECTIONS {
        let requests = Arc::clone(&requests);
        let address = address.to_owned();
        quiet.push(tokio::spawn(async move {
            send_some(&address, client, requests, times, (from, until)).await
        }));
    }
    let mut kept = 0;
    for sent in join_all(batches).await {
        kept += sent??;
    }
    let quiet = sum(join_all(quiet).await)?;
    Ok(QuietRun {
        batches: connections,
        kept_per_second: kept as f64 / timing.measured.as_secs_f64(),
        kept_share: quiet.kept_share(),
        p50_ms: quiet.latencies.millis_at(0.5),
        p99_ms: quiet.latencies.millis_at(0.99),
        ping_p99_ms: 0.0,
    })
}

/// One batch after the other; says how many events were kept while it was measured.
async fn send_batches(
    mut sender: BatchSender,
    feed: Arc<Feed>,
    (from, until): (Instant, Instant),
) -> Result<u64> {
    let mut kept = 0;
    while Instant::now() < until {
        let next = std::iter::from_fn(|| feed.next());
        let events: Vec<Event> = next.take(sender.batch()).collect();
        if events.is_empty() {
            break;
        }
        sender.send(&events).await?;
        let now = Instant::now();
        if from <= now && now < until {
            kept += events.len() as u64;
        }
    }
    Ok(kept)
}

//! A client that floods the receiver, and a quiet one beside it: what is kept in all, and how the
//! quiet one fares, over the load.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use futures_util::future::join_all;
use sampler_testkit::build::Kind;
use sampler_testkit::now_millis;
use tokio::time::interval;

use crate::data::FairnessRun;
use crate::event::{Feed, Mix, Requests, Times};
use crate::histogram::Histogram;
use crate::load::http::Connection;
use crate::load::{Timing, on_own_thread};
use crate::mongo::Server;
use crate::process::peak_memory_mb;
use crate::programs;
use crate::report::{Section, of_fairness};
use crate::scale::Scale;

/// The resource of the quiet client, and its first event: no number of the flood's.
pub(super) const QUIET: &str = "quiet-database";
pub(super) const QUIET_FIRST: u64 = 5_000_000;
/// Between two of its events, and over how many connections it sends them: so many that the next event
/// finds one free, unless an answer takes more than 400 ms. With fewer, events would wait in the client,
/// and count as late.
const QUIET_PAUSE: Duration = Duration::from_millis(10);
pub(super) const QUIET_CONNECTIONS: u64 = 40;
const CREATED: u16 = 201;
/// What stands for the answer to an event whose connection was closed.
const NO_ANSWER: u16 = 0;

/// What became of a client's events.
#[derive(Debug, Default)]
pub(super) struct Sent {
    created: u64,
    all: u64,
    unanswered: u64,
    pub(super) latencies: Histogram,
}

/// Runs everything.
pub(crate) async fn run(server: &Server, scale: &Scale) -> Result<Section> {
    let mut runs = Vec::new();
    for connections in scale.flood.iter().copied() {
        runs.push(one(server, connections, scale.timing).await?);
    }
    Ok(of_fairness(&runs))
}

async fn one(server: &Server, connections: u64, timing: Timing) -> Result<FairnessRun> {
    let spans = server.spans().await?;
    let program = programs::receiver(&spans.uri).await?;
    server.settle().await?;
    let address = program.address().to_owned();
    let (flood, quiet) =
        on_own_thread(move || async move { load(&address, connections, timing).await }).await?;
    let seconds = timing.measured.as_secs_f64();
    let run = FairnessRun {
        connections,
        kept_per_second: (flood.created + quiet.created) as f64 / seconds,
        quiet_kept_share: quiet.kept_share(),
        quiet_p50_ms: quiet.latencies.millis_at(0.5),
        quiet_p99_ms: quiet.latencies.millis_at(0.99),
        flood_kept_share: flood.kept_share(),
        memory_mb: peak_memory_mb(program.pid())?,
    };
    eprintln!(
        "    {run:?}; closed: {} of the flood, {} of the quiet client",
        flood.unanswered, quiet.unanswered
    );
    program.kill()?;
    spans.drop().await?;
    Ok(run)
}

async fn load(address: &str, connections: u64, timing: Timing) -> Result<(Sent, Sent)> {
    let times = Times::beginning(now_millis());
    let feed = Arc::new(Feed::new(Mix::Starts, 0, 0, 0).at_most(QUIET_FIRST));
    let flood_requests = Arc::new(Requests::new(address));
    let quiet_requests = Arc::new(Requests::of_resource(address, QUIET));
    let mut flood = Vec::new();
    for _ in 0..connections {
        flood.push(Connection::open(address).await?);
    }
    let from = Instant::now() + timing.warm_up;
    let until = from + timing.measured;
    let flood = flood.into_iter().map(|connection| {
        let (feed, requests) = (Arc::clone(&feed), Arc::clone(&flood_requests));
        let connection = (connection, address.to_owned());
        tokio::spawn(send_all(connection, feed, requests, times, (from, until)))
    });
    let flood: Vec<_> = flood.collect();
    let mut quiet = Vec::new();
    for client in 0..QUIET_CONNECTIONS {
        let requests = Arc::clone(&quiet_requests);
        let address = address.to_owned();
        quiet.push(tokio::spawn(async move {
            send_some(&address, client, requests, times, (from, until)).await
        }));
    }
    Ok((sum(join_all(flood).await)?, sum(join_all(quiet).await)?))
}

/// One event after the other, whatever they are answered.
async fn send_all(
    (mut connection, address): (Connection, String),
    feed: Arc<Feed>,
    requests: Arc<Requests>,
    times: Times,
    (from, until): (Instant, Instant),
) -> Result<Sent> {
    let mut sent = Sent::default();
    while Instant::now() < until
        && let Some(event) = feed.next()
    {
        let request = requests.of(event.kind).filled(&times.values(event.number));
        let began = Instant::now();
        let status = exchange(&mut connection, &address, &request).await?;
        sent.note(status, began, (from, until));
    }
    Ok(sent)
}

/// Sends an event. One whose connection is closed is not kept, and the next one gets a new connection.
async fn exchange(connection: &mut Connection, address: &str, request: &[u8]) -> Result<u16> {
    let Ok(status) = connection.exchange(request).await else {
        *connection = Connection::open(address).await?;
        return Ok(NO_ANSWER);
    };
    Ok(status)
}

/// One event each time that the pause is over. One that is turned away is not sent again.
pub(super) async fn send_some(
    address: &str,
    client: u64,
    requests: Arc<Requests>,
    times: Times,
    (from, until): (Instant, Instant),
) -> Result<Sent> {
    let pause = QUIET_PAUSE * u32::try_from(QUIET_CONNECTIONS).unwrap_or(1);
    let (mut sent, mut ticks) = (Sent::default(), interval(pause));
    let mut connection = Connection::open(address).await?;
    let mut number = QUIET_FIRST + client;
    while Instant::now() < until {
        let began = ticks.tick().await.into_std();
        let request = requests.of(Kind::Start).filled(&times.values(number));
        number += QUIET_CONNECTIONS;
        let status = exchange(&mut connection, address, &request).await?;
        sent.note(status, began, (from, until));
    }
    Ok(sent)
}

impl Sent {
    /// How many events were kept, per cent.
    pub(super) fn kept_share(&self) -> f64 {
        100.0 * self.created as f64 / self.all.max(1) as f64
    }

    fn note(&mut self, status: u16, began: Instant, (from, until): (Instant, Instant)) {
        let now = Instant::now();
        if now < from || now >= until {
            return;
        }
        self.all += 1;
        self.unanswered += u64::from(status == NO_ANSWER);
        if status == CREATED {
            self.created += 1;
            self.latencies.record(now - began);
        }
    }
}

pub(super) fn sum(parts: Vec<Result<Result<Sent>, tokio::task::JoinError>>) -> Result<Sent> {
    let mut all = Sent::default();
    for part in parts {
        let part = part??;
        all.created += part.created;
        all.all += part.all;
        all.unanswered += part.unanswered;
        all.latencies.merge(&part.latencies);
    }
    Ok(all)
}

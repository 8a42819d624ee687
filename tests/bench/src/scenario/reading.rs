//! Clients that ask for the dearest sums without pause, and one that starts as much as it can: what
//! they leave it of its rate, and of its latencies.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bson::{Document, doc};
use futures_util::future::join_all;
use sampler_testkit::build::Kind;
use sampler_testkit::now_millis;
use tokio::time::sleep;

use crate::data::{Reading, ReadingRun, tenths, thousandths};
use crate::event::{Feed, Mix, Requests, Times};
use crate::histogram::Histogram;
use crate::load::http::Connection;
use crate::load::{Timing, on_own_thread};
use crate::mongo::{Server, Spans};
use crate::programs;
use crate::scale::Scale;

/// Connections over which events are started.
const CONNECTIONS: usize = 64;
/// Clients that ask for sums.
const READERS: usize = 8;
/// How long one that is turned away waits: no longer than it must.
const PAUSE: Duration = Duration::from_millis(10);
/// Instances of the resource whose usages are added up.
const INSTANCES: i64 = 1_000;
const HOUR: i64 = 3_600_000;

const OK: u16 = 200;
const CREATED: u16 = 201;
const OVERLOADED: u16 = 503;

/// What became of requests of one kind.
#[derive(Debug, Default)]
struct Sent {
    served: u64,
    turned_away: u64,
    latencies: Histogram,
}

/// Runs everything.
pub(crate) async fn run(server: &Server, scale: &Scale) -> Result<Reading> {
    let mut runs = Vec::new();
    for readers in [0, READERS, 0, READERS] {
        runs.push(one(server, scale, readers).await?);
    }
    Ok(Reading {
        usages: scale.ledger,
        runs,
    })
}

async fn one(server: &Server, scale: &Scale, readers: usize) -> Result<ReadingRun> {
    let spans = server.spans().await?;
    fill(&spans, scale.ledger).await?;
    let program = programs::limited_receiver(&spans.uri, None).await?;
    server.settle().await?;
    let (address, timing) = (program.address().to_owned(), scale.timing);
    let (starts, sums) =
        on_own_thread(move || async move { load(&address, readers, timing).await }).await?;
    let seconds = timing.measured.as_secs_f64();
    let run = ReadingRun {
        readers: readers as u64,
        starts_per_second: tenths(starts.served as f64 / seconds),
        p50_ms: thousandths(starts.latencies.millis_at(0.5)),
        p99_ms: thousandths(starts.latencies.millis_at(0.99)),
        sums_per_second: thousandths(sums.served as f64 / seconds),
        sum_p50_ms: thousandths(sums.latencies.millis_at(0.5)),
        turned_away_per_second: tenths(sums.turned_away as f64 / seconds),
    };
    eprintln!("    {run:?}");
    program.kill()?;
    spans.drop().await?;
    Ok(run)
}

/// Accepted usages of an hour each, of one resource.
async fn fill(spans: &Spans, usages: i64) -> Result<()> {
    let number = |modulus: i64| doc! { "$toString": { "$mod": ["$n", modulus] } };
    let hour =
        doc! { "$multiply": [{ "$toLong": { "$floor": { "$divide": ["$n", INSTANCES] } } }, HOUR] };
    let pipeline: Vec<Document> = vec![
        doc! { "$documents": [{ "_": 0 }] },
        doc! { "$project": { "n": { "$range": [0, i32::try_from(usages).context("too many")?] } } },
        doc! { "$unwind": "$n" },
        doc! { "$project": {
            "_id": { "$concat": ["6fb11d3c-0000-5000-8000-", { "$toString": "$n" }] },
            "span": number(INSTANCES),
            "partition": { "$mod": ["$n", 64] },
            "version": { "$toLong": "$n" },
            "target": {
                "organization_id": "43a8d88a-2ae4-4ab4-8b9c-1c1f2b6f3b0e",
                "space_id": "78f79e6a-7e0b-4d0e-9b0d-0b7a1d8d3c11",
                "consumer_id": { "$concat": ["a1e7d724-4d5b-4a53-93f3-", number(INSTANCES)] },
                "resource_id": "summed", "plan_id": number(3),
                "resource_instance_id": { "$concat": ["982c6024-4f5c-48e8-a64b-", number(INSTANCES)] },
            },
            "measured_usage": { "$literal": [{ "measure": "memory", "quantity": 512_i64 }] },
            "timestamp": { "$add": [now_millis() - 400 * 24 * HOUR, hour] },
            "duration": { "$literal": HOUR },
            "state": "accepted",
            "attempts": { "$literal": 1_i64 },
            "location": "https://abacus.example/v1/metering/collected/usage/t/0001523",
            "lifetime": { "$literal": 93 * 24 * HOUR },
        } },
        doc! { "$merge": { "into": "spans_usages" } },
    ];
    let filled = spans.aggregate(pipeline).await;
    filled.context("filling the ledger")
}

async fn load(address: &str, readers: usize, timing: Timing) -> Result<(Sent, Sent)> {
    let from = Instant::now() + timing.warm_up;
    let until = from + timing.measured;
    let times = Times::beginning(now_millis());
    let feed = Arc::new(Feed::new(Mix::Starts, 0, 0, 0));
    let requests = Arc::new(Requests::new(address));
    let mut starts = Vec::new();
    for _ in 0..CONNECTIONS {
        let connection = Connection::open(address).await?;
        let (feed, requests) = (Arc::clone(&feed), Arc::clone(&requests));
        starts.push(tokio::spawn(start(
            connection,
            feed,
            requests,
            times,
            (from, until),
        )));
    }
    let mut sums = Vec::new();
    for _ in 0..readers {
        let connection = Connection::open(address).await?;
        sums.push(tokio::spawn(ask(
            connection,
            address.to_owned(),
            (from, until),
        )));
    }
    Ok((all(join_all(starts).await)?, all(join_all(sums).await)?))
}

async fn start(
    mut connection: Connection,
    feed: Arc<Feed>,
    requests: Arc<Requests>,
    times: Times,
    span: (Instant, Instant),
) -> Result<Sent> {
    let mut sent = Sent::default();
    while Instant::now() < span.1
        && let Some((_, event)) = feed.next()
    {
        let request = requests.of(Kind::Start).filled(&times.values(event.number));
        let began = Instant::now();
        let status = connection.exchange(&request).await?;
        ensure!(status == CREATED, "a start was answered {status}");
        sent.note(true, began, span);
    }
    Ok(sent)
}

/// All usages of the resource, told apart by instance: nothing that can be asked for costs more.
async fn ask(
    mut connection: Connection,
    address: String,
    span: (Instant, Instant),
) -> Result<Sent> {
    let request = format!(
        "GET /v1/usages?resource_id=summed&group_by=resource_instance_id&limit=10 HTTP/1.1\r\n\
         host: {address}\r\n\r\n"
    );
    let mut sent = Sent::default();
    while Instant::now() < span.1 {
        let began = Instant::now();
        let status = connection.exchange(request.as_bytes()).await?;
        ensure!(
            [OK, OVERLOADED].contains(&status),
            "a sum was answered {status}"
        );
        sent.note(status == OK, began, span);
        if status == OVERLOADED {
            sleep(PAUSE).await;
        }
    }
    Ok(sent)
}

impl Sent {
    fn note(&mut self, is_served: bool, began: Instant, (from, until): (Instant, Instant)) {
        let now = Instant::now();
        if now < from || now >= until {
            return;
        }
        if is_served {
            self.served += 1;
            self.latencies.record(now - began);
        } else {
            self.turned_away += 1;
        }
    }
}

fn all(parts: Vec<Result<Result<Sent>, tokio::task::JoinError>>) -> Result<Sent> {
    let mut all = Sent::default();
    for part in parts {
        let part = part??;
        all.served += part.served;
        all.turned_away += part.turned_away;
        all.latencies.merge(&part.latencies);
    }
    Ok(all)
}

//! What is measured. Everything goes through the programs themselves: what they write, and the indexes
//! that they make, are those of their commits. So nothing is loaded past them.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use clap::ValueEnum;
use sampler_testkit::abacus::{Keep, Options, StandInAbacus};
use sampler_testkit::build::Kind;
use sampler_testkit::{Program, now_millis};

use crate::event::{DAY, Feed, Requests};
use crate::load::{Outcome, Sender, beside, fill, measure, on_own_thread};
use crate::mongo::Server;
use crate::process::{Watched, peak_memory_mb};
use crate::programs::Build;
use crate::report::Figures;

/// Connections of single events, and of batches.
const CONNECTIONS: usize = 256;
const BATCH_CONNECTIONS: usize = 4;
/// Events of a batch.
const BATCH: usize = 500;
/// Connections of a client that floods the receiver.
const FLOOD_CONNECTIONS: usize = 3_000;
/// How long it does.
const FLOOD: Duration = Duration::from_secs(3);
/// The first event of a quiet client: no number of others'.
const QUIET_FIRST: u64 = 500_000_000;
/// How many days spans are behind.
const DAYS: i64 = 10;
/// Spans that are due at midnight began so long before the end of a month.
const BEFORE_MIDNIGHT: i64 = 2 * DAY;
/// How long spans last, in ms.
const LENGTH: i64 = 3_600_000;
/// How often the count is read, and how long nothing may happen.
const POLL: Duration = Duration::from_millis(5);
const STALL: Duration = Duration::from_mins(1);

/// The parts that can be run alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Starts, their stops, and starts in batches.
    Events,
    /// A client that floods the receiver, and a quiet one beside it.
    Fairness,
    /// Spans that are days behind.
    Intervals,
    /// All open spans due at once.
    Midnight,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Starts, as many stops, and as many starts in batches.
    events: u64,
    /// Spans that are days behind.
    behind: u64,
    /// Spans that are due at midnight.
    midnight: u64,
}

impl Sizes {
    pub(crate) const USUAL: Self = Self {
        events: 60_000,
        behind: 5_000,
        midnight: 50_000,
    };
    pub(crate) const QUICK: Self = Self {
        events: 30_000,
        behind: 2_000,
        midnight: 20_000,
    };
    pub(crate) const SMOKE: Self = Self {
        events: 1_000,
        behind: 50,
        midnight: 500,
    };
}

impl Part {
    /// Measures one build.
    pub(crate) async fn run(self, server: &Server, sizes: &Sizes, build: Build) -> Result<Figures> {
        match self {
            Self::Events => events(server, sizes.events, build).await,
            Self::Fairness => fairness(server, build).await,
            Self::Intervals => intervals(server, sizes.behind, build).await,
            Self::Midnight => midnight(server, sizes.midnight, build).await,
        }
    }
}

async fn events(server: &Server, count: u64, build: Build) -> Result<Figures> {
    let uri = server.new_database();
    let program = build.receiver(&uri, "day").await?;
    let requests = Requests::new(program.address(), now_millis() - 3 * LENGTH, LENGTH);
    let sent = async |senders: (usize, Option<usize>), feed| {
        server.settle().await?;
        let (requests, watched) = (requests.clone(), watched(server, &program));
        on_own_thread(move || async move {
            let senders = Sender::open(senders, requests).await?;
            measure(senders, feed, watched).await
        })
        .await
    };
    let single = (CONNECTIONS, None);
    let begun: Outcome = sent(single, Feed::new(Kind::Start, 0, count)).await?;
    let ends = sent(single, Feed::new(Kind::Stop, 0, count)).await?;
    let batched = (BATCH_CONNECTIONS, Some(BATCH));
    let together = sent(batched, Feed::new(Kind::Start, count, count)).await?;
    let memory = peak_memory_mb(program.pid())?;
    program.kill()?;
    Ok(vec![
        ("Starts a second", begun.per_second()),
        ("p99 of a start, ms", begun.latencies.millis_at(0.99)),
        ("MongoDB for a start, µs", begun.server_us()),
        ("Receiver for a start, µs", begun.program_us()),
        ("Stops a second", ends.per_second()),
        ("p99 of a stop, ms", ends.latencies.millis_at(0.99)),
        ("MongoDB for a stop, µs", ends.server_us()),
        ("Receiver for a stop, µs", ends.program_us()),
        ("Starts in batches a second", together.per_second()),
        ("MongoDB for one of them, µs", together.server_us()),
        ("Receiver for one of them, µs", together.program_us()),
        ("Memory of the receiver, MB", memory),
    ])
}

/// One client sends starts over many connections, each the next one when the last one is answered, also
/// where it is refused; a quiet one sends a hundred a second.
async fn fairness(server: &Server, build: Build) -> Result<Figures> {
    let uri = server.new_database();
    let program = build.receiver(&uri, "day").await?;
    let requests = Requests::new(program.address(), now_millis() - 3 * LENGTH, LENGTH);
    let quiet = requests.clone().of_resource("quiet-database");
    let feeds = [0, QUIET_FIRST].map(|first| Feed::new(Kind::Start, first, QUIET_FIRST));
    let load = move || async move {
        let flood = Sender::open((FLOOD_CONNECTIONS, None), requests).await?;
        beside(flood, quiet, feeds, FLOOD).await
    };
    let (flood, quiet) = on_own_thread(load).await?;
    let memory = peak_memory_mb(program.pid())?;
    program.kill()?;
    let kept = (flood.kept + quiet.kept) as f64 / FLOOD.as_secs_f64();
    Ok(vec![
        ("Starts a second in a flood", kept),
        ("Kept of a quiet client beside it, %", quiet.kept_share()),
        (
            "p99 of the quiet client, ms",
            quiet.latencies.millis_at(0.99),
        ),
        ("Memory of the receiver in a flood, MB", memory),
    ])
}

/// Spans that are days behind, sampled by days.
async fn intervals(server: &Server, count: u64, build: Build) -> Result<Figures> {
    let first = (now_millis().div_euclid(DAY) - DAYS) * DAY;
    let sampling = Sampling {
        dimension: "day",
        first,
        spans: count,
        usages: count * DAYS.unsigned_abs(),
    };
    let sampled = sampling.run(server, build).await?;
    Ok(vec![
        ("Intervals a second", sampled.per_second),
        ("MongoDB for an interval, µs", sampled.server_us),
        ("Worker for an interval, µs", sampled.worker_us),
        ("Memory of the worker, MB", sampled.memory_mb),
    ])
}

/// Spans by months, which are all due since the first of this month: one interval of each.
async fn midnight(server: &Server, count: u64, build: Build) -> Result<Figures> {
    let sampling = Sampling {
        dimension: "month",
        first: first_of_month(now_millis()) - BEFORE_MIDNIGHT,
        spans: count,
        usages: count,
    };
    let sampled = sampling.run(server, build).await?;
    Ok(vec![
        ("Intervals a second at midnight", sampled.per_second),
        ("MongoDB for one of them, µs", sampled.server_us),
        ("Worker for one of them, µs", sampled.worker_us),
    ])
}

/// Work for a worker.
struct Sampling {
    dimension: &'static str,
    /// When the first span starts.
    first: i64,
    spans: u64,
    /// How many usages there are to post.
    usages: u64,
}

struct Sampled {
    per_second: f64,
    server_us: f64,
    worker_us: f64,
    memory_mb: f64,
}

impl Sampling {
    /// Starts the spans, and then measures a worker from the first usage until nine of ten are posted: the
    /// last spans would not keep it busy.
    async fn run(&self, server: &Server, build: Build) -> Result<Sampled> {
        let uri = server.new_database();
        let receiver = build.receiver(&uri, self.dimension).await?;
        let requests = Requests::new(receiver.address(), self.first, LENGTH);
        let senders = Sender::open((BATCH_CONNECTIONS, Some(BATCH)), requests).await?;
        fill(senders, Feed::new(Kind::Start, 0, self.spans)).await?;
        receiver.kill()?;
        server.settle().await?;
        let options = Options {
            keep: Keep::Count,
            ..Options::default()
        };
        let abacus = StandInAbacus::start(options).await?;
        let worker = build
            .worker(&uri, self.dimension, &abacus.base_url())
            .await?;
        let watched = watched(server, &worker);
        until_posted(&abacus, &worker, 1).await?;
        let (before, posted) = (watched.read()?, abacus.counted_count());
        until_posted(&abacus, &worker, self.usages * 9 / 10).await?;
        let usages = abacus.counted_count().saturating_sub(posted).max(1) as f64;
        let spent = watched.since(&before)?;
        let sampled = Sampled {
            per_second: usages / spent.seconds,
            server_us: spent.server * 1e6 / usages,
            worker_us: spent.program * 1e6 / usages,
            memory_mb: peak_memory_mb(worker.pid())?,
        };
        worker.kill()?;
        Ok(sampled)
    }
}

async fn until_posted(abacus: &StandInAbacus, worker: &Program, wanted: u64) -> Result<()> {
    let (mut before, mut moved) = (0, Instant::now());
    loop {
        let posted = abacus.counted_count();
        if posted >= wanted {
            return Ok(());
        }
        if posted > before {
            (before, moved) = (posted, Instant::now());
        }
        ensure!(moved.elapsed() < STALL, "{posted} of {wanted} usages");
        if let Some(code) = worker.exit_code() {
            bail!("the worker has ended with code {code}; see target/bench");
        }
        tokio::time::sleep(POLL).await;
    }
}

fn watched(server: &Server, program: &Program) -> Watched {
    Watched {
        server: server.pid,
        program: program.pid(),
    }
}

/// The first moment of this month (UTC).
fn first_of_month(now: i64) -> i64 {
    let day = chrono::DateTime::from_timestamp_millis(now).unwrap_or_default();
    let days = i64::from(chrono::Datelike::day0(&day));
    (now.div_euclid(DAY) - days) * DAY
}

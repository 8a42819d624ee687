//! Load: many senders at once, each with one thing in flight, and the next one as soon as there is an
//! answer, or at its next tick.

mod http;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures_util::future::join_all;
use tokio::time::interval;

use http::Connection;

use crate::event::{Event, Feed, Requests};
use crate::histogram::Histogram;
use crate::process::{Spent, Watched};

/// Over how many connections a quiet client sends: so many that its next event finds one free, unless an
/// answer takes more than 400 ms. With fewer, events would wait in the client, and count as late.
const QUIET_CONNECTIONS: usize = 40;
/// Between two events of one of these connections.
const QUIET_PAUSE: Duration = Duration::from_millis(400);
/// What an event that is kept is answered.
const CREATED: u16 = 201;
/// What a batch is answered.
const OK: u16 = 200;

/// What came of a run.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    events: u64,
    /// How long answers took.
    pub(crate) latencies: Histogram,
    spent: Spent,
}

impl Outcome {
    pub(crate) fn per_second(&self) -> f64 {
        self.events as f64 / self.spent.seconds
    }

    /// Processor time of the database server for each event, µs.
    pub(crate) fn server_us(&self) -> f64 {
        self.each(self.spent.server)
    }

    /// Of the program that took it.
    pub(crate) fn program_us(&self) -> f64 {
        self.each(self.spent.program)
    }

    fn each(&self, seconds: f64) -> f64 {
        seconds * 1e6 / self.events.max(1) as f64
    }
}

/// What senders saw.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// Events that were sent, and those of them that were kept.
    all: u64,
    pub(crate) kept: u64,
    /// How long the answers to those took.
    pub(crate) latencies: Histogram,
    /// The answer to one that was not kept.
    refusal: Option<String>,
}

impl Record {
    /// How many events were kept, per cent.
    pub(crate) fn kept_share(&self) -> f64 {
        100.0 * self.kept as f64 / self.all.max(1) as f64
    }

    fn note(&mut self, events: usize, is_kept: bool, latency: Duration) {
        self.all += events as u64;
        if is_kept {
            self.kept += events as u64;
            self.latencies.record(latency);
        }
    }

    /// A refusal spoils a run: what would be measured is another thing than events that are kept.
    fn require_all_kept(self) -> Result<Self> {
        match &self.refusal {
            Some(answer) => bail!("an event was not kept:\n{answer}"),
            None => Ok(self),
        }
    }
}

/// Sends events over one connection.
#[derive(Debug)]
pub(crate) struct Sender {
    connection: Connection,
    requests: Arc<Requests>,
    /// How many starts it sends at once; single events where it does not.
    batch: Option<usize>,
}

impl Sender {
    /// This many senders, each with its own connection.
    pub(crate) async fn open(
        (count, batch): (usize, Option<usize>),
        requests: Requests,
    ) -> Result<Vec<Self>> {
        let requests = Arc::new(requests);
        let mut senders = Vec::with_capacity(count);
        for _ in 0..count {
            senders.push(Self {
                connection: Connection::open(&requests.address).await?,
                requests: Arc::clone(&requests),
                batch,
            });
        }
        Ok(senders)
    }

    /// Sends an event or a batch. The error is what came instead of the answer that all is kept.
    async fn send(&mut self, events: &[Event]) -> Result<(), String> {
        let request = match self.batch {
            Some(_) => self.requests.batch(events),
            None => self.requests.single(events[0]),
        };
        match self.connection.exchange(request.as_bytes()).await {
            Ok(status) if self.is_kept(status, events.len()) => Ok(()),
            Ok(_) => Err(self.connection.last_answer()),
            Err(error) => {
                if let Ok(connection) = Connection::open(&self.requests.address).await {
                    self.connection = connection;
                }
                Err(format!("{error:#}"))
            }
        }
    }

    fn is_kept(&self, status: u16, events: usize) -> bool {
        let all = || format!(r#"{{"accepted":{events},"replayed":0,"#);
        match self.batch {
            Some(_) => status == OK && self.connection.last_answer().contains(&all()),
            None => status == CREATED,
        }
    }
}

/// Has each sender send one event or batch after the other until nothing is left, or the time is over.
/// With a pause, each waits for its next tick before.
async fn send_all(
    senders: Vec<Sender>,
    feed: Feed,
    until: Option<Instant>,
    pause: Option<Duration>,
) -> Result<Record> {
    let feed = Arc::new(feed);
    let start = |sender| {
        let feed = Arc::clone(&feed);
        tokio::spawn(async move { drive(sender, &feed, until, pause).await })
    };
    let mut sum = Record::default();
    for record in join_all(senders.into_iter().map(start)).await {
        let record = record.context("a sender has ended early")?;
        sum.all += record.all;
        sum.kept += record.kept;
        sum.latencies.merge(&record.latencies);
        sum.refusal = sum.refusal.or(record.refusal);
    }
    Ok(sum)
}

async fn drive(
    mut sender: Sender,
    feed: &Feed,
    until: Option<Instant>,
    pause: Option<Duration>,
) -> Record {
    let mut record = Record::default();
    let mut ticks = pause.map(interval);
    let batch = sender.batch.unwrap_or(1);
    loop {
        let sent_at = match &mut ticks {
            Some(ticks) => ticks.tick().await.into_std(),
            None => Instant::now(),
        };
        let events: Vec<Event> = std::iter::from_fn(|| feed.next()).take(batch).collect();
        if events.is_empty() || until.is_some_and(|until| sent_at >= until) {
            return record;
        }
        let sent = sender.send(&events).await;
        record.note(events.len(), sent.is_ok(), sent_at.elapsed());
        record.refusal = record.refusal.or(sent.err());
    }
}

/// Has events sent, all of which must be kept, and measures what that costs.
pub(crate) async fn measure(senders: Vec<Sender>, feed: Feed, watched: Watched) -> Result<Outcome> {
    let before = watched.read()?;
    let record = send_all(senders, feed, None, None).await?;
    let spent = watched.since(&before)?;
    let record = record.require_all_kept()?;
    Ok(Outcome {
        events: record.kept,
        latencies: record.latencies,
        spent,
    })
}

/// Has everything sent, and measures nothing.
pub(crate) async fn fill(senders: Vec<Sender>, feed: Feed) -> Result<()> {
    let record = send_all(senders, feed, None, None).await?;
    record.require_all_kept().map(drop)
}

/// A flood for so long, and a quiet client beside it that sends a hundred events a second.
pub(crate) async fn beside(
    flood: Vec<Sender>,
    quiet: Requests,
    [feed, quiet_feed]: [Feed; 2],
    length: Duration,
) -> Result<(Record, Record)> {
    let quiet = Sender::open((QUIET_CONNECTIONS, None), quiet).await?;
    let until = Some(Instant::now() + length);
    let flood = send_all(flood, feed, until, None);
    let quiet = send_all(quiet, quiet_feed, until, Some(QUIET_PAUSE));
    let (flood, quiet) = tokio::join!(flood, quiet);
    Ok((flood?, quiet?))
}

/// Runs something on a thread of its own with a runtime of one thread: the cheapest way to keep
/// many connections busy.
pub(crate) async fn on_own_thread<T, F>(make: impl FnOnce() -> F + Send + 'static) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T>>,
{
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.context("a runtime")?.block_on(make())
    };
    tokio::task::spawn_blocking(run)
        .await
        .context("the thread of the load has ended early")?
}

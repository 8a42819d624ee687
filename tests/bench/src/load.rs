//! Load: many senders at once, each with one thing in flight, and the next one as soon as there is an
//! answer, or at its next tick.

mod http;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures_util::future::{JoinAll, join_all};
use tokio::task::JoinHandle;
use tokio::time::interval;

use http::Connection;

use crate::event::{Event, Feed, Requests};
use crate::histogram::Histogram;
use crate::process::{Reading, Spent, WatchedProcesses};

/// What an event that is kept is answered.
const CREATED: u16 = 201;
/// What a batch is answered.
const OK: u16 = 200;

/// How long to run: first without counting, then with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// Until connections are made and caches are warm.
    pub(crate) warm_up: Duration,
    pub(crate) measured: Duration,
}

impl Timing {
    /// Both in ms.
    pub(crate) const fn millis(warm_up: u64, measured: u64) -> Self {
        Self {
            warm_up: Duration::from_millis(warm_up),
            measured: Duration::from_millis(measured),
        }
    }
}

/// The moments between which answers count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    from: Instant,
    until: Instant,
}

impl Span {
    pub(crate) fn beginning_now(timing: Timing) -> Self {
        let from = Instant::now() + timing.warm_up;
        let until = from + timing.measured;
        Self { from, until }
    }

    fn holds(&self, moment: Instant) -> bool {
        self.from <= moment && moment < self.until
    }
}

/// What came of a run.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// Events that were kept while it was measured.
    pub(crate) events: u64,
    /// How long it was measured.
    pub(crate) seconds: f64,
    /// How long answers took.
    pub(crate) latencies: Histogram,
    /// What it cost.
    pub(crate) spent: Spent,
}

impl Outcome {
    pub(crate) fn per_second(&self) -> f64 {
        self.events as f64 / self.seconds
    }

    /// Processor time of the database server for each event, µs.
    pub(crate) fn server_us(&self) -> f64 {
        self.each(self.spent.server)
    }

    /// Of the program that took it.
    pub(crate) fn program_us(&self) -> f64 {
        self.each(self.spent.programs)
    }

    fn each(&self, seconds: f64) -> f64 {
        seconds * 1e6 / self.events.max(1) as f64
    }

    /// How much of the machine others had, who have nothing to do with this, per cent.
    pub(crate) fn others_share(&self) -> f64 {
        self.spent.share(self.spent.others)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.0} a second, p99 {:.2} ms; others {:.0} %",
            self.per_second(),
            self.latencies.millis_at(0.99),
            self.others_share(),
        )
    }
}

/// What senders saw.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// Events that were sent, and those of them that were kept, while it was measured.
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
        count: usize,
        batch: Option<usize>,
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

/// Senders at work.
pub(crate) struct Sending(JoinAll<JoinHandle<Record>>);

impl Sending {
    /// Has each sender send one event or batch after the other until the span ends, or nothing is left.
    /// With a pause, each waits for its next tick before.
    pub(crate) fn begin(
        senders: Vec<Sender>,
        feed: Feed,
        span: Span,
        pause: Option<Duration>,
    ) -> Self {
        let feed = Arc::new(feed);
        let start = |sender| {
            let feed = Arc::clone(&feed);
            tokio::spawn(async move { drive(sender, &feed, span, pause).await })
        };
        Self(join_all(senders.into_iter().map(start)))
    }

    /// What all of them saw.
    pub(crate) async fn end(self) -> Result<Record> {
        let mut sum = Record::default();
        for record in self.0.await {
            let record = record.context("a sender has ended early")?;
            sum.all += record.all;
            sum.kept += record.kept;
            sum.latencies.merge(&record.latencies);
            sum.refusal = sum.refusal.or(record.refusal);
        }
        Ok(sum)
    }
}

async fn drive(mut sender: Sender, feed: &Feed, span: Span, pause: Option<Duration>) -> Record {
    let mut record = Record::default();
    let mut ticks = pause.map(interval);
    let batch = sender.batch.unwrap_or(1);
    loop {
        let sent_at = match &mut ticks {
            Some(ticks) => ticks.tick().await.into_std(),
            None => Instant::now(),
        };
        if sent_at >= span.until {
            return record;
        }
        let events: Vec<Event> = std::iter::from_fn(|| feed.next()).take(batch).collect();
        if events.is_empty() {
            return record;
        }
        let sent = sender.send(&events).await;
        let answered_at = Instant::now();
        if span.holds(answered_at) {
            record.note(events.len(), sent.is_ok(), answered_at - sent_at);
        }
        record.refusal = record.refusal.or(sent.err());
    }
}

/// Has events sent, all of which must be kept, and measures what that costs.
pub(crate) async fn measure(
    senders: Vec<Sender>,
    feed: Feed,
    timing: Timing,
    watch: WatchedProcesses,
) -> Result<Outcome> {
    let span = Span::beginning_now(timing);
    let mut sending = std::pin::pin!(Sending::begin(senders, feed, span, None).end());
    let mut early = tokio::select! {
        record = &mut sending => Some(record),
        () = tokio::time::sleep_until(span.from.into()) => None,
    };
    let before = Reading::take(&watch)?;
    if early.is_none() {
        early = tokio::select! {
            record = &mut sending => Some(record),
            () = tokio::time::sleep_until(span.until.into()) => None,
        };
    }
    let spent = Reading::take(&watch)?.since(&before);
    let record = match early {
        Some(record) => record,
        None => sending.await,
    };
    let record = record?.require_all_kept()?;
    ensure!(
        spent.seconds > 0.1 && record.kept > 0,
        "too little was sent to be measured"
    );
    Ok(Outcome {
        events: record.kept,
        seconds: spent.seconds,
        latencies: record.latencies,
        spent,
    })
}

/// Has everything sent, and measures nothing.
pub(crate) async fn fill(senders: Vec<Sender>, feed: Feed) -> Result<()> {
    let span = Span::beginning_now(Timing::millis(0, 600_000));
    let sending = Sending::begin(senders, feed, span, None);
    sending.end().await?.require_all_kept().map(drop)
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

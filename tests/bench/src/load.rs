//! Load: many senders at once, each with one thing in flight, and the next one as soon as there is an
//! answer.

pub(crate) mod closed;
pub(crate) mod http;

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures_util::future::join_all;
use tokio::task::JoinHandle;

use crate::event::Event;
use crate::histogram::Histogram;
use crate::process::{Reading, Spent, WatchedProcesses};

/// Who sends events, one send at a time.
pub(crate) trait Sender: Send + 'static {
    /// How many events it sends at once, at the most.
    fn batch(&self) -> usize {
        1
    }

    /// Sends events; says when they are kept.
    fn send(&mut self, events: &[Event]) -> impl Future<Output = Result<()>> + Send;
}

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

/// What came of a run.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// Events that were answered while it was measured.
    pub(crate) events: u64,
    /// How long it was measured.
    pub(crate) seconds: f64,
    /// How long answers took.
    pub(crate) latencies: Histogram,
    /// What it cost.
    pub(crate) spent: Spent,
}

/// What one sender saw.
#[derive(Debug, Default)]
struct Record {
    events: u64,
    latencies: Histogram,
    refused: Option<anyhow::Error>,
}

/// The moments between which answers count.
#[derive(Clone, Copy, Debug)]
struct Span {
    from: Instant,
    until: Instant,
}

impl Span {
    fn beginning_now(timing: Timing) -> Self {
        let from = Instant::now() + timing.warm_up;
        let until = from + timing.measured;
        Self { from, until }
    }

    fn holds(&self, moment: Instant) -> bool {
        self.from <= moment && moment < self.until
    }
}

impl Record {
    fn note(&mut self, events: u64, latency: Duration) {
        self.events += events;
        self.latencies.record(latency);
    }
}

/// Reads the meters at the beginning and the end of the span, then collects what the senders saw.
/// A refusal spoils a run: what would be measured is another thing than events that are kept.
async fn observe(
    tasks: Vec<JoinHandle<Record>>,
    watch: WatchedProcesses,
    span: Span,
) -> Result<Outcome> {
    let mut all = join_all(tasks);
    let begin = tokio::time::sleep_until(span.from.into());
    let mut early = tokio::select! {
        records = &mut all => Some(records),
        () = begin => None,
    };
    let before = Reading::take(&watch)?;
    if early.is_none() {
        early = tokio::select! {
            records = &mut all => Some(records),
            () = tokio::time::sleep_until(span.until.into()) => None,
        };
    }
    let after = Reading::take(&watch)?;
    let records = match early {
        Some(records) => records,
        None => all.await,
    };
    let mut sum = Record::default();
    for record in records {
        let record = record.context("a sender has ended early")?;
        if let Some(error) = record.refused {
            return Err(error.context("an event was not kept"));
        }
        sum.events += record.events;
        sum.latencies.merge(&record.latencies);
    }
    let spent = after.since(&before);
    ensure!(
        spent.seconds > 0.1 && sum.latencies.total() > 0,
        "too little was sent to be measured"
    );
    Ok(Outcome {
        events: sum.events,
        seconds: spent.seconds,
        latencies: sum.latencies,
        spent,
    })
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

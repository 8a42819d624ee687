//! What everything costs when there are many spans.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures_util::StreamExt;
use sampler_domain::Timestamp;
use sampler_domain::partition::PARTITIONS;
use sampler_store::{DueQuery, Work};
use sampler_testkit::now_millis;

use super::events::EventRun;
use super::worker::rate;
use crate::data::{Growth, Poll, System, thousandths};
use crate::event::{DAY, Mix, Times};
use crate::histogram::Histogram;
use crate::mongo::{Server, Spans};
use crate::scale::Scale;
use crate::template::Values;

/// Three of ten spans are open, the others complete and kept for their ids.
const OPEN_OF_TEN: u64 = 3;
/// How many polls for work are measured, and how many spans each asks for.
const POLLS: (usize, usize) = (300, 100);
/// More targets than any run of events uses.
const APART: u64 = 1_000_000;
/// Connections of the runs of events, unless fewer are measured.
const CONNECTIONS: usize = 64;

/// Runs everything for each size of the collection.
pub(crate) async fn run(server: &Server, scale: &Scale) -> Result<Vec<Growth>> {
    let mut rows = Vec::new();
    for count in &scale.growth {
        rows.push(row(server, scale, *count).await?);
    }
    Ok(rows)
}

async fn row(server: &Server, scale: &Scale, count: u64) -> Result<Growth> {
    eprintln!("  {count} spans");
    let spans = server.spans().await?;
    let times = Times::beginning(now_millis());
    load(&spans, count).await?;
    server.settle().await?;
    let sizes = spans.sizes().await?;
    let idle_poll = poll(&spans, false).await?;
    let event_run = |mix| EventRun {
        system: System::Sampler,
        mix,
        connections: CONNECTIONS.min(scale.most_connections()),
        batch: 1,
        per_second: None,
        timing: scale.timing,
    };
    let (for_starts, for_stops) = (count, count + APART);
    let run = event_run(Mix::Starts);
    let starts = run.on(server, &spans, times, for_starts).await?;
    let run = event_run(Mix::Stops);
    let stops = run.on(server, &spans, times, for_stops).await?;
    let sampled = rate(server, &spans, 1, Duration::ZERO, scale.worker_timing).await?;
    let busy_poll = poll(&spans, true).await?;
    spans.drop().await?;
    Ok(Growth {
        spans: count,
        starts,
        stops,
        idle_poll,
        busy_poll,
        sampled,
        bytes: [sizes.documents, sizes.storage, sizes.indexes]
            .map(|all| (all / count as f64).round()),
    })
}

/// Spans of the last two months; those that are open wait for the next midnight.
async fn load(spans: &Spans, count: u64) -> Result<()> {
    let now = now_millis();
    let tomorrow = (now.div_euclid(DAY) + 1) * DAY;
    let values = |number: u64| {
        let age = i64::try_from(number % 60).unwrap_or(0) * DAY;
        let start = now - DAY - age;
        Values {
            number,
            start,
            due_at: tomorrow,
            now,
            stop: start + DAY / 2,
        }
    };
    let open = count * OPEN_OF_TEN / 10;
    spans.load_open(0..open, values).await?;
    spans.load_complete(open..count, values).await
}

/// Polls for work as a single worker does.
async fn poll(spans: &Spans, expects_work: bool) -> Result<Poll> {
    let (times, page) = POLLS;
    let query = DueQuery {
        partitions: (0..PARTITIONS).collect(),
        now: Timestamp::clamped(now_millis()),
        page,
        closing: None,
    };
    let mut latencies = Histogram::default();
    for _ in 0..times {
        let begin = Instant::now();
        let found = spans.store.due(query.clone()).next().await;
        let found = found.transpose().context("polling for work")?;
        latencies.record(begin.elapsed());
        ensure!(
            found.is_some() == expects_work,
            "{} spans were found",
            found.map_or(0, |page| page.len())
        );
    }
    Ok(Poll {
        p50_ms: thousandths(latencies.millis_at(0.5)),
        p99_ms: thousandths(latencies.millis_at(0.99)),
    })
}

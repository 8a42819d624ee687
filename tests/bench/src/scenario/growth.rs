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
use crate::data::{Growth, Look, System, thousandths};
use crate::event::{DAY, Mix, Times};
use crate::histogram::Histogram;
use crate::mongo::{Server, Spans};
use crate::scale::Scale;
use crate::template::Values;

/// Three of ten spans are open, the others complete and kept for their ids.
const OPEN_OF_TEN: u64 = 3;
/// How often a look for work is measured, and how many spans it asks for.
const LOOKS: (usize, usize) = (300, 100);
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
    let room = spans.room().await?;
    let idle_look = look(&spans, false).await?;
    let event_run = |mix| EventRun {
        system: System::Sampler,
        mix,
        connections: CONNECTIONS.min(scale.most_connections()),
        per_second: None,
        timing: scale.timing,
    };
    let (for_starts, for_stops) = (count, count + APART);
    let run = event_run(Mix::Starts);
    let starts = run.on(server, &spans, times, for_starts).await?;
    let run = event_run(Mix::Stops);
    let stops = run.on(server, &spans, times, for_stops).await?;
    let sampled = rate(server, &spans, 1, Duration::ZERO, scale.worker_timing).await?;
    let busy_look = look(&spans, true).await?;
    spans.drop().await?;
    Ok(Growth {
        spans: count,
        starts,
        stops,
        idle_look,
        busy_look,
        sampled,
        bytes: [room.documents, room.storage, room.indexes].map(|all| (all / count as f64).round()),
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

/// Looks for work as a worker that is alone does.
async fn look(spans: &Spans, expects_work: bool) -> Result<Look> {
    let (times, page) = LOOKS;
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
        let found = found.transpose().context("looking for work")?;
        latencies.record(begin.elapsed());
        ensure!(
            found.is_some() == expects_work,
            "{} spans were found",
            found.map_or(0, |page| page.len())
        );
    }
    Ok(Look {
        p50_ms: thousandths(latencies.millis_at(0.5)),
        p99_ms: thousandths(latencies.millis_at(0.99)),
    })
}

//! The memory of both programs, over so many events and intervals that whatever they kept of each
//! would show.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use sampler_testkit::now_millis;

use super::worker::{BACKLOG_DAYS, USUAL_WORKERS, load_days};
use super::workers::{Job, RunningWorkers};
use crate::data::{Memory, tenths};
use crate::event::{Feed, Mix, Times};
use crate::load::http::HttpSender;
use crate::load::{Timing, closed, on_own_thread};
use crate::mongo::Server;
use crate::process::{WatchedProcesses, memory_mb};
use crate::programs::{self, WorkerProgram};
use crate::scale::Scale;

/// How often memory is measured during a run.
const SAMPLES: u64 = 10;
/// Connections, unless fewer are measured.
const CONNECTIONS: usize = 256;
/// How often the count is read.
const POLL: Duration = Duration::from_millis(5);
/// No run ends by the clock.
const NO_LIMIT: Timing = Timing::millis(0, 3_600_000);

/// Runs everything.
pub(crate) async fn run(server: &Server, scale: &Scale) -> Result<Memory> {
    Ok(Memory {
        events: scale.memory,
        receiver_mb: receiver(server, scale).await?,
        worker_mb: workers(server, scale).await?,
    })
}

/// The receiver's, after each tenth of the starts.
async fn receiver(server: &Server, scale: &Scale) -> Result<Vec<f64>> {
    let connections = CONNECTIONS.min(scale.most_connections());
    eprintln!("  {} starts over {connections} connections", scale.memory);
    let spans = server.spans().await?;
    let program = programs::receiver(&spans.uri).await?;
    let feed = Arc::new(Feed::new(Mix::Starts, 0, 0, 0).at_most(scale.memory));
    let (address, sent) = (program.address().to_owned(), Arc::clone(&feed));
    let load = tokio::spawn(on_own_thread(move || async move {
        let times = Times::beginning(now_millis());
        let senders = HttpSender::open(&address, connections, times).await?;
        closed::run(senders, sent, NO_LIMIT, WatchedProcesses::default()).await
    }));
    let mut memory = Vec::new();
    for events in sample_points(scale.memory) {
        while feed.handed_out() < events && !load.is_finished() {
            tokio::time::sleep(POLL).await;
        }
        memory.push(tenths(memory_mb(program.pid())?));
    }
    load.await.context("the load has ended early")??;
    program.kill()?;
    spans.drop().await?;
    Ok(memory)
}

/// That of the worker that has more, after each tenth of the intervals.
async fn workers(server: &Server, scale: &Scale) -> Result<Vec<f64>> {
    eprintln!("  {} intervals, {USUAL_WORKERS} workers", scale.memory);
    let spans = server.spans().await?;
    let count = scale.memory.div_ceil(BACKLOG_DAYS.unsigned_abs());
    load_days(&spans, count).await?;
    let job = Job {
        program: WorkerProgram::Released,
        workers: USUAL_WORKERS,
        answer: Duration::ZERO,
        settings: vec![("SAMPLER_DIMENSION", "day")],
        spans: count,
    };
    let mut running = RunningWorkers::prepare(server, job).await?;
    running.start(&spans).await?;
    let mut memory = Vec::new();
    for intervals in sample_points(scale.memory) {
        running.wait_for_posts(intervals, None).await?;
        memory.push(tenths(running.memory_mb()?));
    }
    running.kill()?;
    spans.drop().await?;
    Ok(memory)
}

/// After how many events memory is measured.
fn sample_points(events: u64) -> impl Iterator<Item = u64> {
    (1..=SAMPLES).map(move |number| events * number / SAMPLES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_sample_is_at_the_end() {
        let sample_points: Vec<u64> = sample_points(1_000).collect();
        assert_eq!(
            (sample_points[0], sample_points[9], sample_points.len()),
            (100, 1_000, 10)
        );
    }
}

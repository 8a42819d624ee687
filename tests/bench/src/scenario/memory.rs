//! The memory of both programs, over so many events and intervals that whatever they kept of each
//! would show.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use sampler_testkit::now_millis;

use super::crew::{Crew, Job};
use super::worker::{BACKLOG_DAYS, USUAL_WORKERS, load_days};
use crate::data::{Memory, tenths};
use crate::event::{Feed, Mix, Times};
use crate::load::http::HttpSender;
use crate::load::{Timing, closed, on_own_thread};
use crate::mongo::Server;
use crate::process::{Watch, memory_mb};
use crate::programs;
use crate::scale::Scale;

/// How often memory is looked at during a run.
const LOOKS: u64 = 10;
/// Connections, unless fewer are measured.
const CONNECTIONS: usize = 256;
/// How often the count is looked at.
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
        closed::run(senders, sent, NO_LIMIT, Watch::default()).await
    }));
    let mut memory = Vec::new();
    for events in looks(scale.memory) {
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
        workers: USUAL_WORKERS,
        answer: Duration::ZERO,
        settings: vec![("SAMPLER_DIMENSION", "day")],
        spans: count,
    };
    let mut crew = Crew::prepare(server, job).await?;
    crew.start(&spans).await?;
    let mut memory = Vec::new();
    for intervals in looks(scale.memory) {
        crew.wait_for_posts(intervals, None).await?;
        memory.push(tenths(crew.memory_mb()?));
    }
    crew.dismiss()?;
    spans.drop().await?;
    Ok(memory)
}

/// After how many events to look.
fn looks(events: u64) -> impl Iterator<Item = u64> {
    (1..=LOOKS).map(move |look| events * look / LOOKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_look_is_at_the_end() {
        let looks: Vec<u64> = looks(1_000).collect();
        assert_eq!((looks[0], looks[9], looks.len()), (100, 1_000, 10));
    }
}

//! The programs of this commit beside those of another, by turns, on one server.
//!
//! Everything goes through the programs themselves: what they write, and the indexes that they make, are
//! those of their commits. So nothing is loaded past them.

use std::time::Duration;

use anyhow::{Context, Result};
use sampler_testkit::build::Kind;
use sampler_testkit::now_millis;

use super::events::send;
use super::workers::{Job, RunningWorkers, Upstream};
use crate::event::{Feed, Requests, Times};
use crate::load::{Outcome, Sender, Timing, fill};
use crate::mongo::Server;
use crate::process::{WatchedProcesses, peak_memory_mb};
use crate::programs::{self, Build, WorkerProgram};
use crate::report::{Section, of_against};
use crate::scale::Scale;

const CONNECTIONS: usize = 256;
const BATCH_CONNECTIONS: usize = 4;
const BATCH: usize = 500;
/// How many days the spans of a worker are behind.
const DAYS: i64 = 10;
/// Longer than any run takes: it ends when its events are sent.
const UNTIL_ALL_ARE_SENT: Timing = Timing::millis(300, 600_000);

/// The figures of one round of a build: each with its name, or none where the build cannot do that.
pub(crate) type Figures = Vec<(&'static str, Option<f64>)>;

/// Runs everything: in each round the other commit and this one, and which goes first changes.
pub(crate) async fn run(server: &Server, scale: &Scale) -> Result<Section> {
    let mut rounds = Vec::new();
    for round in 0..scale.rounds {
        let mut figures = [Figures::new(), Figures::new()];
        for turn in [round % 2, 1 - round % 2] {
            let build = [Build::Other, Build::Own][turn];
            figures[turn] = events(server, scale.against, build).await?;
            figures[turn].extend(intervals(server, scale.against_spans, build).await?);
            eprintln!("  {build:?}: {:?}", figures[turn]);
        }
        rounds.push(figures);
    }
    Ok(of_against(&rounds))
}

/// Starts, their stops, and as many starts in batches.
async fn events(server: &Server, count: u64, build: Build) -> Result<Figures> {
    let spans = server.untouched();
    let program = programs::receiver(build, &spans.uri).await?;
    let requests = Requests::new(program.address(), Times::beginning(now_millis()));
    let watch = WatchedProcesses::of(server, &[&program]);
    let sent = async |connections, feed| {
        let how = (UNTIL_ALL_ARE_SENT, watch.clone());
        send(connections, requests.clone(), feed, how).await
    };
    let single = (CONNECTIONS, None);
    let started = sent(single, Feed::new(Kind::Start, 0, count)).await;
    let started = started.context("starts")?;
    server.settle().await?;
    let of_open = spans.index_bytes().await? / count as f64;
    let stopped = sent(single, Feed::new(Kind::Stop, 0, count)).await;
    let stopped = stopped.context("stops")?;
    server.settle().await?;
    let of_ended = spans.index_bytes().await? / count as f64;
    let by_batches = (BATCH_CONNECTIONS, Some(BATCH));
    let batched = sent(by_batches, Feed::new(Kind::Start, count, count)).await;
    if let Err(error) = &batched {
        eprintln!("  no batches: {error:#}");
    }
    let of_batches = |figure: fn(&Outcome) -> f64| batched.as_ref().ok().map(figure);
    let memory = peak_memory_mb(program.pid())?;
    program.kill()?;
    spans.drop().await?;
    let p99 = |outcome: &Outcome| Some(outcome.latencies.millis_at(0.99));
    Ok(vec![
        ("Starts a second", Some(started.per_second())),
        ("p99 of a start, ms", p99(&started)),
        ("MongoDB for a start, µs", Some(started.server_us())),
        ("The receiver for a start, µs", Some(started.program_us())),
        ("Stops a second", Some(stopped.per_second())),
        ("p99 of a stop, ms", p99(&stopped)),
        ("MongoDB for a stop, µs", Some(stopped.server_us())),
        ("The receiver for a stop, µs", Some(stopped.program_us())),
        (
            "Starts in batches a second",
            of_batches(Outcome::per_second),
        ),
        (
            "MongoDB for one of them, µs",
            of_batches(Outcome::server_us),
        ),
        (
            "The receiver for one of them, µs",
            of_batches(Outcome::program_us),
        ),
        ("Index bytes of an open span", Some(of_open)),
        ("Index bytes of an ended span", Some(of_ended)),
        ("Memory of the receiver, MB", Some(memory)),
    ])
}

/// Spans that are ten days behind, sampled by days.
async fn intervals(server: &Server, count: u64, build: Build) -> Result<Figures> {
    let spans = server.untouched();
    let program = programs::receiver(build, &spans.uri).await?;
    let requests = Requests::new(program.address(), Times::behind(now_millis(), DAYS));
    let senders = Sender::open(BATCH_CONNECTIONS, None, requests).await?;
    fill(senders, Feed::new(Kind::Start, 0, count)).await?;
    program.kill()?;
    let job = Job {
        program: WorkerProgram::Of(build),
        upstream: Upstream::Abacus,
        workers: 1,
        answer: Duration::ZERO,
        settings: vec![("SAMPLER_DIMENSION", "day")],
        spans: count,
    };
    let mut running = RunningWorkers::prepare(server, job).await?;
    running.start(&spans).await?;
    running.wait_for_posts(1, None).await?;
    let before = running.meters().await?;
    let all = count * DAYS.unsigned_abs();
    running.wait_for_posts(all * 9 / 10, None).await?;
    let sampled = running.sampled(&before).await?;
    running.kill()?;
    spans.drop().await?;
    Ok(vec![
        ("Intervals a second", Some(sampled.per_second)),
        ("MongoDB for an interval, µs", Some(sampled.server_us)),
        ("The worker for an interval, µs", Some(sampled.worker_us)),
        ("Memory of the worker, MB", Some(sampled.memory_mb)),
    ])
}

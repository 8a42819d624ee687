//! The programs of this commit beside those of another, by turns, on one server.
//!
//! Everything goes through the programs themselves: what they write, and the indexes that they make, are
//! those of their commits. So nothing is loaded past them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use sampler_testkit::now_millis;

use super::workers::{Job, RunningWorkers, Upstream};
use crate::event::{Feed, Mix, Times};
use crate::load::http::{BatchSender, HttpSender};
use crate::load::{Outcome, Sender, Timing, closed, on_own_thread};
use crate::mongo::Server;
use crate::process::{WatchedProcesses, peak_memory_mb};
use crate::programs::{self, Build, WorkerProgram};
use crate::report::{Section, of_against};
use crate::scale::Scale;

const CONNECTIONS: usize = 256;
const BATCH_CONNECTIONS: usize = 4;
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
            figures[turn] = of_build(server, scale, build).await?;
            eprintln!("  {build:?}: {:?}", figures[turn]);
        }
        rounds.push(figures);
    }
    Ok(of_against(&rounds))
}

async fn of_build(server: &Server, scale: &Scale, build: Build) -> Result<Figures> {
    let mut figures = events(server, scale.against, build).await?;
    figures.extend(intervals(server, scale.against_spans, build).await?);
    Ok(figures)
}

/// Starts, their stops, and as many starts in batches.
async fn events(server: &Server, count: u64, build: Build) -> Result<Figures> {
    let spans = server.untouched();
    let program = programs::receiver_of(build, &spans.uri).await?;
    let address = program.address().to_owned();
    let watch = WatchedProcesses {
        server: Some(server.pid),
        programs: vec![program.pid()],
    };
    let times = Times::beginning(now_millis());
    let starts = Feed::new(Mix::Starts, 0, 0, 0).at_most(count);
    let started = single(&address, starts, times, watch.clone()).await?;
    server.settle().await?;
    let of_open = spans.index_bytes().await? / count as f64;
    let stops = Feed::new(Mix::Stops, 0, 0, count);
    let stopped = single(&address, stops, times, watch.clone()).await?;
    server.settle().await?;
    let of_ended = spans.index_bytes().await? / count as f64;
    let starts = Feed::new(Mix::Starts, count, 0, 0).at_most(count);
    let batched = batches(&address, starts, times, watch).await;
    if let Err(error) = &batched {
        eprintln!("  no batches: {error:#}");
    }
    let batched = batched.ok();
    let memory = peak_memory_mb(program.pid())?;
    program.kill()?;
    spans.drop().await?;
    Ok(vec![
        ("Starts a second", Some(rate(&started))),
        (
            "p99 of a start, ms",
            Some(started.latencies.millis_at(0.99)),
        ),
        ("MongoDB for a start, µs", Some(server_us(&started))),
        ("The receiver for a start, µs", Some(program_us(&started))),
        ("Stops a second", Some(rate(&stopped))),
        ("p99 of a stop, ms", Some(stopped.latencies.millis_at(0.99))),
        ("MongoDB for a stop, µs", Some(server_us(&stopped))),
        ("The receiver for a stop, µs", Some(program_us(&stopped))),
        ("Starts in batches a second", batched.as_ref().map(rate)),
        (
            "MongoDB for one of them, µs",
            batched.as_ref().map(server_us),
        ),
        (
            "The receiver for one of them, µs",
            batched.as_ref().map(program_us),
        ),
        ("Index bytes of an open span", Some(of_open)),
        ("Index bytes of an ended span", Some(of_ended)),
        ("Memory of the receiver, MB", Some(memory)),
    ])
}

/// Spans that are ten days behind, sampled by days.
async fn intervals(server: &Server, count: u64, build: Build) -> Result<Figures> {
    let spans = server.untouched();
    let program = programs::receiver_of(build, &spans.uri).await?;
    let starts = Feed::new(Mix::Starts, 0, 0, 0).at_most(count);
    let times = Times::behind(now_millis(), DAYS);
    let senders = HttpSender::open(program.address(), BATCH_CONNECTIONS, times).await?;
    closed::fill(senders, Arc::new(starts)).await?;
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
    let after = running.meters().await?;
    let sampled = running.sampled(&before, &after)?;
    running.kill()?;
    spans.drop().await?;
    Ok(vec![
        ("Intervals a second", Some(sampled.per_second)),
        ("MongoDB for an interval, µs", Some(sampled.server_us)),
        ("The worker for an interval, µs", Some(sampled.worker_us)),
        ("Memory of the worker, MB", Some(sampled.memory_mb)),
    ])
}

async fn single(
    address: &str,
    feed: Feed,
    times: Times,
    watch: WatchedProcesses,
) -> Result<Outcome> {
    let address = address.to_owned();
    on_own_thread(move || async move {
        let senders = HttpSender::open(&address, CONNECTIONS, times).await?;
        send(senders, feed, watch).await
    })
    .await
    .context("single events")
}

async fn batches(
    address: &str,
    feed: Feed,
    times: Times,
    watch: WatchedProcesses,
) -> Result<Outcome> {
    let address = address.to_owned();
    on_own_thread(move || async move {
        let senders = BatchSender::open(&address, BATCH_CONNECTIONS, 500, times).await?;
        send(senders, feed, watch).await
    })
    .await
}

async fn send<S: Sender>(senders: Vec<S>, feed: Feed, watch: WatchedProcesses) -> Result<Outcome> {
    closed::run(senders, Arc::new(feed), UNTIL_ALL_ARE_SENT, watch).await
}

fn rate(outcome: &Outcome) -> f64 {
    outcome.events as f64 / outcome.seconds
}

fn server_us(outcome: &Outcome) -> f64 {
    outcome.spent.server * 1e6 / outcome.events as f64
}

fn program_us(outcome: &Outcome) -> f64 {
    outcome.spent.programs * 1e6 / outcome.events as f64
}

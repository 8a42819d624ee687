//! Workers with a backlog: how many intervals a second, how long it takes to catch up, what the ledger
//! costs, and whether another upstream is as fast.

use std::time::Duration;

use anyhow::{Context, Result};
use sampler_testkit::now_millis;

use super::events::middle;
use super::midnight::through;
use super::workers::{Job, RunningWorkers, Sampled, Upstream};
use crate::event::DAY;
use crate::mongo::{Server, Spans};
use crate::programs::{Build, WorkerProgram};
use crate::report::{Section, of_ledger, of_upstreams, of_worker};
use crate::scale::Scale;

const BACKLOG_SPANS: u64 = 4_000;
/// How many days each is behind.
const BACKLOG_DAYS: i64 = 50;
/// The first number of the spans of a backlog: no other spans have such numbers.
const BACKLOG_FIRST: u64 = 1 << 36;
/// Two instances: what anybody would run at least.
pub(crate) const USUAL_WORKERS: usize = 2;
/// How long workers take until each knows of all: two heartbeats, and a little.
const ACQUAINTED: Duration = Duration::from_millis(2_500);
/// An hour in ms.
const HOUR: i64 = 3_600_000;

/// Rates with different numbers of workers and lengths of answers, and catching up.
pub(crate) async fn run(server: &Server, scale: &Scale) -> Result<Section> {
    let mut rates = Vec::new();
    for answer in &scale.answers {
        for workers in &scale.workers {
            rates.push(rate(server, scale, Job::by_days(*workers, *answer)).await?);
        }
    }
    let catch_up = catch_up(server, scale).await?;
    Ok(of_worker(&rates, &catch_up, scale.catch_up.1))
}

/// The worker with the ledger, and without it.
pub(crate) async fn ledger(server: &Server, scale: &Scale) -> Result<Section> {
    let both = [WorkerProgram::WithLedger, WorkerProgram::WithoutLedger];
    let jobs = both.map(|program| Job {
        program,
        ..most_workers(scale)
    });
    let (mut rates, mut midnights) = (Vec::new(), Vec::new());
    for _ in 0..scale.rounds {
        rates.push(pair(server, scale, &jobs).await?);
        let (with, _) = through(server, scale.ledger_midnight, both[0]).await?;
        let (without, _) = through(server, scale.ledger_midnight, both[1]).await?;
        midnights.push([with, without]);
    }
    Ok(of_ledger(&middle_pair(rates)?, &middle_pair(midnights)?))
}

/// The worker into a receiver of CloudEvents, and into Abacus.
pub(crate) async fn upstreams(server: &Server, scale: &Scale) -> Result<Section> {
    let jobs = [Upstream::CloudEvents, Upstream::Abacus].map(|upstream| Job {
        upstream,
        ..most_workers(scale)
    });
    let mut rounds = Vec::new();
    for _ in 0..scale.rounds {
        rounds.push(pair(server, scale, &jobs).await?);
    }
    Ok(of_upstreams(&middle_pair(rounds)?))
}

fn most_workers(scale: &Scale) -> Job {
    let most = scale.workers.iter().copied().max().unwrap_or(1);
    Job::by_days(most, Duration::ZERO)
}

async fn pair(server: &Server, scale: &Scale, jobs: &[Job; 2]) -> Result<[Sampled; 2]> {
    let first = rate(server, scale, jobs[0].clone()).await?;
    Ok([first, rate(server, scale, jobs[1].clone()).await?])
}

/// The round whose ratio of the first to the second is in the middle: the machine's speed changes more
/// between rounds than within one.
fn middle_pair(rounds: Vec<[Sampled; 2]>) -> Result<[Sampled; 2]> {
    let ratio = |[one, other]: &[Sampled; 2]| one.per_second / other.per_second;
    middle(rounds, ratio).context("no round")
}

impl Job {
    /// More work than can be done, day by day.
    fn by_days(workers: usize, answer: Duration) -> Self {
        Self {
            program: WorkerProgram::Of(Build::Own),
            upstream: Upstream::Abacus,
            workers,
            answer,
            settings: vec![("SAMPLER_DIMENSION", "day")],
            spans: BACKLOG_SPANS,
        }
    }
}

/// Measures while there is more to do than can be done.
async fn rate(server: &Server, scale: &Scale, job: Job) -> Result<Sampled> {
    let (spans, timing) = (server.spans().await?, scale.worker_timing);
    let begin = now_millis().div_euclid(DAY) * DAY - BACKLOG_DAYS * DAY;
    load_backlog(&spans, BACKLOG_SPANS, begin, DAY).await?;
    let mut running = RunningWorkers::prepare(server, job).await?;
    running.start(&spans).await?;
    running.wait_for_posts(1, None).await?;
    tokio::time::sleep(timing.warm_up).await;
    let before = running.meters().await?;
    // Not to the very end: the last spans would not keep the workers busy.
    let most = BACKLOG_SPANS * BACKLOG_DAYS.unsigned_abs() * 9 / 10;
    running.wait_for_posts(most, Some(timing.measured)).await?;
    let sampled = running.sampled(&before).await?;
    running.kill()?;
    spans.drop().await?;
    Ok(sampled)
}

/// Measures until everything is done: a thousand spans, hour by hour.
async fn catch_up(server: &Server, scale: &Scale) -> Result<Sampled> {
    let (count, days) = scale.catch_up;
    eprintln!("  {count} spans catch up on {days} days by the hour");
    let hours = 24 * i64::try_from(days)?;
    let this_hour = now_millis().div_euclid(HOUR) * HOUR;
    let spans = server.hidden().await?;
    load_backlog(&spans, count, this_hour - hours * HOUR, HOUR).await?;
    let job = Job {
        settings: vec![("SAMPLER_DIMENSION", "hour")],
        spans: count,
        ..Job::by_days(USUAL_WORKERS, Duration::ZERO)
    };
    until_done(server, spans, job, count * hours.unsigned_abs()).await
}

/// From the moment at which the spans are there until so many intervals are executed, and that is
/// noted. The workers were there before, and know of each other.
pub(crate) async fn until_done(
    server: &Server,
    mut spans: Spans,
    job: Job,
    intervals: u64,
) -> Result<Sampled> {
    let mut running = RunningWorkers::prepare(server, job).await?;
    running.start(&spans).await?;
    tokio::time::sleep(ACQUAINTED).await;
    let due_by = now_millis();
    let before = running.meters().await?;
    spans.reveal().await?;
    running.wait_for_posts(intervals, None).await?;
    while spans.due_by(due_by).await? > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let sampled = running.sampled(&before).await?;
    running.kill()?;
    spans.drop().await?;
    Ok(sampled)
}

/// Loads spans that started at `begin` and were never sampled.
async fn load_backlog(spans: &Spans, count: u64, begin: i64, interval: i64) -> Result<()> {
    let numbers = BACKLOG_FIRST..BACKLOG_FIRST + count;
    spans
        .load_open(numbers, |_| (begin, begin + interval))
        .await
}

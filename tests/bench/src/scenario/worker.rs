//! Workers with a backlog: how many intervals a second, and how long it takes to catch up.

use std::time::Duration;

use anyhow::Result;
use sampler_testkit::now_millis;

use super::least_disturbed;
use super::workers::{Job, RunningWorkers, Upstream};
use crate::data::Sampled;
use crate::event::DAY;
use crate::load::Timing;
use crate::mongo::{Server, Spans};
use crate::programs::WorkerProgram;
use crate::report::{Section, of_worker};
use crate::scale::Scale;
use crate::template::Values;

const BACKLOG_SPANS: u64 = 4_000;
/// How many days each is behind.
const BACKLOG_DAYS: i64 = 50;
/// Two instances: what anybody would run at least.
pub(crate) const USUAL_WORKERS: usize = 2;
/// How long workers take until each knows of all: two heartbeats, and a little.
const ACQUAINTED: Duration = Duration::from_millis(2_500);
/// An hour in ms.
const HOUR: i64 = 3_600_000;

/// Runs everything.
pub(crate) async fn run(server: &Server, scale: &Scale) -> Result<Section> {
    let mut rates = Vec::new();
    for answer in &scale.answers {
        for workers in &scale.workers {
            let once = || async {
                let spans = server.spans().await?;
                let program = (WorkerProgram::Released, Upstream::Abacus);
                let job = (*workers, *answer);
                let rate = rate_of(server, &spans, program, job, scale.worker_timing).await?;
                spans.drop().await?;
                Ok(rate)
            };
            rates.push(
                least_disturbed(scale.again, once, |rate: &Sampled| rate.others_share).await?,
            );
        }
    }
    let catch_up = catch_up(server, scale).await?;
    Ok(of_worker(&rates, &catch_up, scale.catch_up.1))
}

/// Measures while there is more to do than can be done, with so many workers and an upstream that takes
/// so long to answer.
pub(crate) async fn rate_of(
    server: &Server,
    spans: &Spans,
    (program, upstream): (WorkerProgram, Upstream),
    (workers, answer): (usize, Duration),
    timing: Timing,
) -> Result<Sampled> {
    let count = BACKLOG_SPANS;
    load_days(spans, count).await?;
    let job = Job {
        program,
        upstream,
        workers,
        answer,
        settings: vec![("SAMPLER_DIMENSION", "day")],
        spans: count,
    };
    let mut running = RunningWorkers::prepare(server, job).await?;
    running.start(spans).await?;
    running.wait_for_posts(1, None).await?;
    tokio::time::sleep(timing.warm_up).await;
    let before = running.meters().await?;
    // Not to the very end: the last spans would not keep the workers busy.
    let most = count * BACKLOG_DAYS.unsigned_abs() * 9 / 10;
    running.wait_for_posts(most, Some(timing.measured)).await?;
    let after = running.meters().await?;
    let sampled = running.sampled(&before, &after)?;
    running.kill()?;
    Ok(sampled)
}

/// Measures until everything is done: a thousand spans, hour by hour.
async fn catch_up(server: &Server, scale: &Scale) -> Result<Sampled> {
    let (count, days) = scale.catch_up;
    eprintln!("  {count} spans catch up on {days} days by the hour");
    let hours = 24 * i64::try_from(days)?;
    let this_hour = now_millis().div_euclid(HOUR) * HOUR;
    let mut spans = server.hidden().await?;
    load_backlog(&spans, count, this_hour - hours * HOUR, HOUR).await?;
    let job = Job {
        program: WorkerProgram::Released,
        upstream: Upstream::Abacus,
        workers: USUAL_WORKERS,
        answer: Duration::ZERO,
        settings: vec![("SAMPLER_DIMENSION", "hour")],
        spans: count,
    };
    let intervals = count * hours.unsigned_abs();
    let sampled = until_done(server, &mut spans, job, intervals).await?;
    spans.drop().await?;
    Ok(sampled)
}

/// From the moment at which the spans are there until so many intervals are executed, and that is
/// noted. The workers were there before, and know of each other.
pub(crate) async fn until_done(
    server: &Server,
    spans: &mut Spans,
    job: Job,
    intervals: u64,
) -> Result<Sampled> {
    let mut running = RunningWorkers::prepare(server, job).await?;
    running.start(spans).await?;
    tokio::time::sleep(ACQUAINTED).await;
    let due_by = now_millis();
    let before = running.meters().await?;
    spans.reveal().await?;
    running.wait_for_posts(intervals, None).await?;
    while spans.due_by(due_by).await? > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let after = running.meters().await?;
    let sampled = running.sampled(&before, &after)?;
    running.kill()?;
    Ok(sampled)
}

/// Loads spans that are [`BACKLOG_DAYS`] behind.
async fn load_days(spans: &Spans, count: u64) -> Result<()> {
    let begin = now_millis().div_euclid(DAY) * DAY - BACKLOG_DAYS * DAY;
    load_backlog(spans, count, begin, DAY).await
}

/// Loads spans that started at `begin` and were never sampled.
async fn load_backlog(spans: &Spans, count: u64, begin: i64, interval: i64) -> Result<()> {
    let now = now_millis();
    // Numbers that nothing else uses.
    let first = 1 << 36;
    let values = |number| Values {
        number,
        start: begin,
        due_at: begin + interval,
        now,
        stop: 0,
    };
    spans.load_open(first..first + count, values).await
}

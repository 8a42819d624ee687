//! `up`: all of Sampler on this machine, with example events.

mod attribution;
pub(crate) mod pictures;
mod progress;
mod report;
mod send;
mod showcase;
mod spans;
mod system;
mod verification;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use clap::{Args, ValueEnum};
use sampler_testkit::{now_millis, workspace_dir};

use crate::replay::{self, Queue, parse_duration};
use progress::Progress;
use report::Report;
use send::{Sent, send_all};
use system::{ExtendedLimits, System};
use verification::Verification;

/// What the repository brings to replay.
const EXAMPLE: &str = "examples/events.ndjson";
/// How long nothing may happen before it is taken that nothing will.
const STALL_LIMIT: Duration = Duration::from_mins(1);
/// How long usages of spans that are still open may be on their way.
const SETTLE_LIMIT: Duration = Duration::from_secs(10);

/// The arguments of `up`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Ends after the table and `sampler verify`, and fails if what was billed differs from what was used.
    #[arg(long)]
    once: bool,
    /// How many workers share the work.
    #[arg(long, default_value_t = 1, value_name = "N")]
    workers: u16,
    /// A file of events (NDJSON) or spans (CSV) instead of the example; see examples/README.md.
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// Moves all events in time, so that the last lies this long ago: 1h unless said.
    #[arg(long, value_name = "AGO", num_args = 0..=1, default_missing_value = "1h")]
    shift: Option<String>,
    /// The unit of time that no usage crosses a boundary of.
    #[arg(long, default_value = "day", value_enum)]
    granularity: Granularity,
    /// Goes on with the data of an earlier run.
    #[arg(long)]
    keep: bool,
    /// The receiver's port; 0 is any free one.
    #[arg(long, default_value_t = 7070, value_name = "PORT")]
    receiver_port: u16,
    /// The first worker's port, the others have the next ones; 0 is any free one for each.
    #[arg(long, default_value_t = 7071, value_name = "PORT")]
    worker_port: u16,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Granularity {
    Minute,
    Hour,
    Day,
    Month,
}

impl Granularity {
    fn name(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Month => "month",
        }
    }
}

/// Runs the command.
pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    ensure!(arguments.workers > 0, "without a worker nothing is sampled");
    let now = now_millis();
    let events = read_events(&arguments, now)?;
    let limits = ExtendedLimits::for_events(replay::earliest(&events.queues), now);
    let system = System::start(&arguments, &limits).await?;
    let result = tokio::select! {
        result = show(&arguments, &system, events) => result,
        _ = tokio::signal::ctrl_c() => Ok(()),
    };
    eprintln!("stopping");
    system.stop().await?;
    result
}

/// What is replayed, and what a verifier must know of it.
struct Events {
    path: PathBuf,
    queues: Vec<Queue>,
    /// What relative moments count from.
    now: i64,
    /// By how much all moments are moved, in ms.
    offset: i64,
}

fn read_events(arguments: &Arguments, now: i64) -> Result<Events> {
    let example = || workspace_dir().join(EXAMPLE);
    let path = arguments.replay.clone().unwrap_or_else(example);
    let mut events = Events {
        path,
        queues: Vec::new(),
        now,
        offset: 0,
    };
    if arguments.replay.is_none() && arguments.keep {
        // The example is there already, from the run that is gone on with.
        return Ok(events);
    }
    events.queues = replay::read(&events.path, now)?;
    if let Some(ago) = &arguments.shift {
        events.offset = replay::shift(&mut events.queues, now, parse_duration(ago)?);
    }
    Ok(events)
}

/// Replays, shows what came of it, and then stays unless it is not to.
async fn show(arguments: &Arguments, system: &System, events: Events) -> Result<()> {
    if !arguments.once {
        println!("console   {}/console\n", system.receiver.base_url());
    }
    let mut verification = None;
    if !events.queues.is_empty() {
        verification = verification_of(arguments, system, &events).await?;
        let report = replay_events(system, events.queues).await?;
        println!("{report}");
        if arguments.once && !report.is_right() {
            bail!("what was billed is not what was used");
        }
    }
    if arguments.once {
        return match verification {
            Some(verification) => verification.run().await,
            None => Ok(()),
        };
    }
    let is_anew = !arguments.keep && arguments.replay.is_none();
    if is_anew {
        showcase::begin(system, arguments.granularity).await?;
    }
    println!("{}", system.addresses(verification.as_ref()));
    if is_anew {
        showcase::fall_behind(system).await?;
        println!(
            "\nSpans that are behind were sent just now: the console shows how the backlog drains."
        );
    }
    // Until Ctrl-C, which the caller waits for.
    std::future::pending().await
}

/// The verifier must know all events behind the spans: not those of an earlier run.
async fn verification_of(
    arguments: &Arguments,
    system: &System,
    events: &Events,
) -> Result<Option<Verification>> {
    if arguments.keep {
        return Ok(None);
    }
    let (path, receiver) = (&events.path, system.receiver.base_url());
    let (now, offset) = (events.now, events.offset);
    let verification = Verification::new(path, &receiver, now, offset, arguments.granularity);
    verification.await.map(Some)
}

async fn replay_events(system: &System, queues: Vec<Queue>) -> Result<Report> {
    let progress = Progress::new(queues.iter().map(Vec::len).sum());
    let sent = send_all(system, queues, &progress).await?;
    let stopped = sent.rows.iter().filter(|row| row.end.is_some()).count();
    progress.sent(stopped);
    wait_for_completion(system, &progress).await?;
    progress.finish();
    settled_report(system, &sent).await
}

/// Waits until all stopped spans are complete, or nothing moves any more.
async fn wait_for_completion(system: &System, progress: &Progress) -> Result<()> {
    let mut before = None;
    let mut moved_at = Instant::now();
    loop {
        let incomplete = spans::incomplete(&system.database).await?;
        progress.update(incomplete, system.abacus.counted_count());
        if incomplete == 0 {
            return Ok(());
        }
        let now = Some((incomplete, system.abacus.counted_count()));
        if now != before {
            (before, moved_at) = (now, Instant::now());
        }
        if moved_at.elapsed() > STALL_LIMIT {
            eprintln!("{incomplete} stopped spans are not complete, and nothing moves any more");
            return Ok(());
        }
        system.check_alive()?;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Open spans go on being sampled, and a usage counts before its span says so: a difference is only
/// believed when it lasts.
async fn settled_report(system: &System, sent: &Sent) -> Result<Report> {
    let begin = Instant::now();
    loop {
        let states = spans::read(&system.database).await?;
        let report = Report::new(sent, &states, &system.abacus);
        if report.is_right() || begin.elapsed() > SETTLE_LIMIT {
            return Ok(report);
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

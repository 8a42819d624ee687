//! Runs workers against a stand-in for their upstream, and measures both.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use sampler_testkit::Program;
use sampler_testkit::abacus::{Fault, Keep, Options, StandInAbacus};
use sampler_testkit::meter::{MeterOptions, StandInMeter};
use tokio::time::Instant;

use crate::mongo::{Server, Spans};
use crate::process::{Reading, WatchedProcesses, peak_memory_mb};
use crate::programs::{self, WorkerProgram};

/// How often the count is read.
const POLL: Duration = Duration::from_millis(5);
/// How long a run without a post may last before it fails.
const STALL: Duration = Duration::from_mins(1);

/// The job of the workers.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) program: WorkerProgram,
    /// Where they post usages.
    pub(crate) upstream: Upstream,
    /// How many workers.
    pub(crate) workers: usize,
    /// How long Abacus takes to answer; the other upstream answers at once.
    pub(crate) answer: Duration,
    /// Settings that differ from the usual ones.
    pub(crate) settings: Vec<(&'static str, &'static str)>,
    /// How many spans there are.
    pub(crate) spans: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upstream {
    Abacus,
    CloudEvents,
}

/// What takes the usages, and counts them.
enum StandIn {
    Abacus(StandInAbacus),
    CloudEvents(StandInMeter),
}

impl StandIn {
    async fn start(job: &Job) -> Result<Self> {
        if job.upstream == Upstream::CloudEvents {
            let options = MeterOptions {
                counts_only: true,
                ..MeterOptions::default()
            };
            return Ok(Self::CloudEvents(StandInMeter::start(options).await?));
        }
        let options = Options {
            keep: Keep::Count,
            ..Options::default()
        };
        let abacus = StandInAbacus::start(options).await?;
        if !job.answer.is_zero() {
            abacus.fault(Fault::delay(job.answer));
        }
        Ok(Self::Abacus(abacus))
    }

    /// How many usages were posted.
    fn posts(&self) -> u64 {
        match self {
            Self::Abacus(abacus) => abacus.counted_count(),
            Self::CloudEvents(meter) => meter.only_counted(),
        }
    }

    /// The settings of a worker that posts to it. A day is what OpenMeter remembers as it comes.
    fn settings(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Abacus(abacus) => vec![("COLLECTOR_URL", abacus.base_url())],
            Self::CloudEvents(meter) => vec![
                ("SAMPLER_UPSTREAM", "cloudevents".to_owned()),
                ("SAMPLER_UPSTREAM_URL", meter.post_url()),
                ("SAMPLER_UPSTREAM_FIND_URL", meter.find_url()),
                ("SAMPLER_UPSTREAM_HORIZON", "24h".to_owned()),
            ],
        }
    }
}

/// One run of workers.
#[derive(Clone, Debug)]
pub(crate) struct Sampled {
    /// How many workers.
    pub(crate) workers: usize,
    /// How long Abacus took to answer, ms.
    pub(crate) answer_ms: u128,
    /// How many spans there were.
    pub(crate) spans: u64,
    /// How many intervals were executed.
    pub(crate) intervals: u64,
    /// In how long.
    pub(crate) seconds: f64,
    /// How many a second that is.
    pub(crate) per_second: f64,
    /// Commands to the database for each, those that poll for work included.
    pub(crate) commands_each: f64,
    /// Processor time of the database server for each, µs.
    pub(crate) server_us: f64,
    pub(crate) worker_us: f64,
    /// The most memory that one worker had at a time, MB.
    pub(crate) memory_mb: f64,
}

/// Workers that run.
pub(crate) struct RunningWorkers<'a> {
    job: Job,
    server: &'a Server,
    upstream: StandIn,
    workers: Vec<Program>,
    watch: WatchedProcesses,
}

/// All meters at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Meters {
    reading: Reading,
    commands: u64,
    posts: u64,
}

impl<'a> RunningWorkers<'a> {
    /// Sets everything up that the workers need, but starts none.
    pub(crate) async fn prepare(server: &'a Server, job: Job) -> Result<Self> {
        let upstream = StandIn::start(&job).await?;
        server.settle().await?;
        Ok(Self {
            job,
            server,
            upstream,
            workers: Vec::new(),
            watch: WatchedProcesses::default(),
        })
    }

    /// Starts the workers.
    pub(crate) async fn start(&mut self, spans: &Spans) -> Result<()> {
        let Job {
            program,
            workers,
            settings,
            ..
        } = &self.job;
        let mut all = self.upstream.settings();
        all.extend(
            settings
                .iter()
                .map(|(name, value)| (*name, (*value).to_owned())),
        );
        self.workers = programs::workers((*program, *workers), &spans.uri, &all).await?;
        let workers: Vec<&Program> = self.workers.iter().collect();
        self.watch = WatchedProcesses::of(self.server, &workers);
        Ok(())
    }

    pub(crate) async fn meters(&self) -> Result<Meters> {
        Ok(Meters {
            commands: self.server.commands().await?,
            reading: Reading::take(&self.watch)?,
            posts: self.posts(),
        })
    }

    /// How many usages were posted.
    pub(crate) fn posts(&self) -> u64 {
        self.upstream.posts()
    }

    /// Waits until this many usages were posted, but not beyond `limit`; returns whether they were.
    pub(crate) async fn wait_for_posts(&self, posts: u64, limit: Option<Duration>) -> Result<bool> {
        let (begin, mut moved) = (Instant::now(), Instant::now());
        let mut before = self.posts();
        loop {
            let now = self.posts();
            if now >= posts {
                return Ok(true);
            }
            if limit.is_some_and(|limit| begin.elapsed() >= limit) {
                return Ok(false);
            }
            if now > before {
                (before, moved) = (now, Instant::now());
            }
            ensure!(
                moved.elapsed() < STALL,
                "{now} of {posts} usages were posted, and nothing moves any more"
            );
            if let Some(code) = self.workers.iter().find_map(Program::exit_code) {
                bail!("a worker has ended with code {code}; see target/bench");
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// What came of the time since a moment.
    pub(crate) async fn sampled(&self, before: &Meters) -> Result<Sampled> {
        let after = self.meters().await?;
        let spent = after.reading.since(&before.reading);
        let commands = after.commands - before.commands;
        let intervals = after.posts - before.posts;
        ensure!(intervals > 0, "nothing was posted");
        let each = |number: f64| number / intervals as f64;
        let mut memory_mb: f64 = 0.0;
        for worker in &self.workers {
            memory_mb = memory_mb.max(peak_memory_mb(worker.pid())?);
        }
        let sampled = Sampled {
            workers: self.job.workers,
            answer_ms: self.job.answer.as_millis(),
            spans: self.job.spans,
            intervals,
            seconds: spent.seconds,
            per_second: intervals as f64 / spent.seconds,
            commands_each: each(commands as f64),
            server_us: each(spent.server * 1e6),
            worker_us: each(spent.programs * 1e6),
            memory_mb,
        };
        eprintln!("    {sampled:?}");
        Ok(sampled)
    }

    /// Ends the workers.
    pub(crate) fn kill(self) -> Result<()> {
        self.workers.iter().try_for_each(Program::kill)
    }
}

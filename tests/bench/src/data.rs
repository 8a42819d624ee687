//! The figures, as they are kept in `docs/performance-data.json`.

use serde::{Deserialize, Serialize};

use crate::event::Mix;
use crate::load::Outcome;

/// All figures. Parts that were not run are what they were.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Data {
    /// Events.
    pub(crate) receiver: Option<Part<Receiver>>,
    /// A flood and a quiet client.
    #[serde(default)]
    pub(crate) fairness: Option<Part<Fairness>>,
    /// Batches, single events, and what the server takes.
    #[serde(default)]
    pub(crate) batches: Option<Part<Batches>>,
    /// Sums beside starts.
    #[serde(default)]
    pub(crate) reading: Option<Part<Reading>>,
    /// Intervals.
    pub(crate) worker: Option<Part<Worker>>,
    /// All spans due at once.
    pub(crate) midnight: Option<Part<Midnight>>,
    /// Many spans.
    pub(crate) growth: Option<Part<Vec<Growth>>>,
    /// What the ledger costs.
    #[serde(default)]
    pub(crate) ledger: Option<Part<Ledger>>,
    /// Many events.
    pub(crate) memory: Option<Part<Memory>>,
}

/// Figures, with where they come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Part<T> {
    /// When and on what.
    pub(crate) taken: Taken,
    /// What came of it.
    pub(crate) figures: T,
}

/// When and on what figures were taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Taken {
    /// The day and the minute, UTC.
    pub(crate) at: String,
    /// The commit, with a sign where the tree had changes.
    pub(crate) commit: String,
    /// How much was measured.
    pub(crate) scale: String,
    /// The version of the server.
    pub(crate) server: String,
    /// The machine.
    pub(crate) machine: String,
}

/// Who takes events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum System {
    /// The receiver.
    Sampler,
    /// The receiver with overlapping spans allowed: it reads no previous spans.
    Overlapping,
    /// The receiver, which is sent batches.
    Batched,
    /// One write per event, behind the simplest HTTP handler.
    OneWriteHttp,
    /// One write per event, by the driver alone.
    OneWrite,
    /// Batches, by the driver alone.
    Ceiling,
    /// The receiver's own store, without HTTP.
    Store,
    /// Nothing is written: the simplest HTTP handler that there can be answers at once.
    HttpAlone,
}

/// What came of all runs of events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Receiver {
    /// As many as there can be.
    pub(crate) closed: Vec<Run>,
    /// At this rate per second.
    pub(crate) open: Vec<Run>,
    /// The most over the fewest connections, while the server's log is read.
    #[serde(default)]
    pub(crate) followed: Vec<Run>,
}

/// One run of events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    /// Who took them.
    pub(crate) system: System,
    /// What they were.
    pub(crate) mix: Mix,
    /// Over how many connections; of the ceiling, commands in flight.
    pub(crate) connections: usize,
    /// How many a second were sent, where that was given.
    pub(crate) offered_per_second: Option<f64>,
    /// How many a second were answered.
    pub(crate) per_second: f64,
    /// Half of the answers took no longer than this, ms.
    pub(crate) p50_ms: f64,
    /// 99 of 100 took no longer.
    pub(crate) p99_ms: f64,
    /// 999 of 1,000 took no longer.
    pub(crate) p999_ms: f64,
    /// The slowest.
    pub(crate) longest_ms: f64,
    /// Processor time of the database server for each event, µs.
    pub(crate) server_us: f64,
    /// Of the program that took it; where there is none, the driver is part of the generator.
    pub(crate) program_us: Option<f64>,
    /// Of the load generator.
    pub(crate) generator_us: f64,
    /// How much of the machine the load generator had, per cent.
    pub(crate) generator_share: f64,
    /// How much of it others had, who have nothing to do with this.
    pub(crate) others_share: f64,
    /// The most memory that the program had at a time, MB.
    pub(crate) memory_mb: Option<f64>,
}

/// A client that floods the receiver, and a quiet one beside it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Fairness {
    /// By the limit, then by the load.
    pub(crate) runs: Vec<FairnessRun>,
}

/// One run of both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct FairnessRun {
    /// `MAX_INFLIGHT`; the default, which is none, where there is none.
    pub(crate) limit: Option<u64>,
    /// Over how many connections the flood comes.
    pub(crate) connections: u64,
    /// Events of both that were kept each second.
    pub(crate) kept_per_second: f64,
    /// How many of the quiet client's events were kept, per cent.
    pub(crate) quiet_kept_share: f64,
    /// Half of those took no longer than this, ms.
    pub(crate) quiet_p50_ms: f64,
    /// 99 of 100 of those.
    pub(crate) quiet_p99_ms: f64,
    /// How many of the flood's events were kept, per cent.
    pub(crate) flood_kept_share: f64,
    /// The most memory that the receiver had at a time, MB.
    pub(crate) memory_mb: f64,
}

/// Clients that ask for sums, and one that starts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Reading {
    /// Usages that each sum is of.
    pub(crate) usages: i64,
    /// In turns without and with those that ask for sums.
    pub(crate) runs: Vec<ReadingRun>,
}

/// One run of both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReadingRun {
    /// Clients that ask for sums without pause.
    pub(crate) readers: u64,
    /// Starts that were kept each second.
    pub(crate) starts_per_second: f64,
    /// Half of those took no longer than this, ms.
    pub(crate) p50_ms: f64,
    /// 99 of 100 of those.
    pub(crate) p99_ms: f64,
    /// Sums that were answered each second.
    pub(crate) sums_per_second: f64,
    /// Half of those took no longer than this, ms.
    pub(crate) sum_p50_ms: f64,
    /// Requests for sums that were turned away each second.
    pub(crate) turned_away_per_second: f64,
}

/// What came of batches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Batches {
    /// Batches, single events, and what the server takes at the most.
    pub(crate) rates: Vec<Run>,
    /// A quiet client, by turns alone and beside batches.
    pub(crate) quiet: Vec<QuietRun>,
}

/// A quiet client with single events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct QuietRun {
    /// Connections over which others send batches without pause.
    pub(crate) batches: u64,
    /// Their events that were kept each second.
    pub(crate) kept_per_second: f64,
    /// How much of what the quiet client sent was kept, per cent.
    pub(crate) kept_share: f64,
    /// Half of its answers took no longer than this, ms.
    pub(crate) p50_ms: f64,
    /// 99 of 100.
    pub(crate) p99_ms: f64,
    /// 99 of 100 pings of the database took no longer meanwhile, ms.
    #[serde(default)]
    pub(crate) ping_p99_ms: Option<f64>,
}

/// What came of all runs of workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Worker {
    /// With as many intervals waiting as can be executed.
    pub(crate) rates: Vec<Sampled>,
    /// How far behind the spans of the next run were, days.
    pub(crate) catch_up_days: u64,
    /// Catching up.
    pub(crate) catch_up: Sampled,
}

/// All spans due at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Midnight {
    /// What came of it.
    pub(crate) sampled: Sampled,
    /// Whether the month before counted as about to be closed.
    pub(crate) closing: bool,
    /// Usages that were posted more than once.
    pub(crate) repeats: u64,
}

/// One run of workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sampled {
    /// How many workers.
    pub(crate) workers: usize,
    /// How long Abacus took to answer, ms.
    pub(crate) answer_ms: u64,
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
    /// The reads among them.
    pub(crate) reads_each: f64,
    /// Processor time of the database server for each, µs.
    pub(crate) server_us: f64,
    /// Of the workers.
    pub(crate) worker_us: f64,
    /// Of the stand-in for Abacus.
    pub(crate) stand_in_us: f64,
    /// How much of the machine others had, per cent.
    pub(crate) others_share: f64,
    /// The most memory that one worker had at a time, MB.
    pub(crate) memory_mb: f64,
}

/// The figures for a collection of this size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Growth {
    /// How many; three of ten are open, the others complete.
    pub(crate) spans: u64,
    /// Starts.
    pub(crate) starts: Run,
    /// Stops.
    pub(crate) stops: Run,
    /// Polling for work when there is none.
    pub(crate) idle_poll: Poll,
    /// Polling for work when there is more than is asked for.
    pub(crate) busy_poll: Poll,
    /// Intervals.
    pub(crate) sampled: Sampled,
    /// Bytes of each span: as it is sent, on the disk, and in the indexes.
    pub(crate) bytes: [f64; 3],
}

/// What the ledger costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ledger {
    /// Workers as they are.
    pub(crate) with: Sampled,
    /// The same that write no entries.
    pub(crate) without: Sampled,
    /// A midnight with and without it.
    #[serde(default)]
    pub(crate) midnight: Option<[Sampled; 2]>,
    /// How many entries there are.
    pub(crate) entries: u64,
    /// How many were written a second.
    pub(crate) written_per_second: f64,
    /// Bytes of each entry: as it is sent, on the disk, and in the indexes.
    pub(crate) bytes: [f64; 3],
    /// How many entries the span has that is read.
    pub(crate) of_span: u64,
    /// A page of a thousand of them.
    pub(crate) page: Poll,
}

/// The memory of both programs after each tenth of the events, MB.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Memory {
    /// How many starts, and how many intervals.
    pub(crate) events: u64,
    /// The receiver's.
    pub(crate) receiver_mb: Vec<f64>,
    /// That of the worker that had more.
    pub(crate) worker_mb: Vec<f64>,
}

/// How long a poll for work takes, ms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Poll {
    /// Half of them take no longer.
    pub(crate) p50_ms: f64,
    /// 99 of 100 take no longer.
    pub(crate) p99_ms: f64,
}

/// The run of a system, among these runs.
pub(crate) fn find(runs: &[Run], system: System, mix: Mix, connections: usize) -> Option<&Run> {
    let key = (system, mix, connections);
    let mut runs = runs.iter();
    runs.find(|run| (run.system, run.mix, run.connections) == key)
}

impl Receiver {
    /// The most that the server takes, in batches and without HTTP.
    pub(crate) fn ceiling(&self, mix: Mix) -> Option<&Run> {
        let mut runs = self.closed.iter();
        runs.find(|run| (run.system, run.mix) == (System::Ceiling, mix))
    }
}

impl Run {
    /// What came of a run.
    pub(crate) fn new(
        (system, mix, connections): (System, Mix, usize),
        offered_per_second: Option<f64>,
        outcome: &Outcome,
        memory_mb: Option<f64>,
    ) -> Self {
        let spent = &outcome.spent;
        let each = |seconds: f64| tenths(seconds * 1e6 / outcome.events.max(1) as f64);
        let millis_at = |quantile| thousandths(outcome.latencies.millis_at(quantile));
        let has_program = !matches!(system, System::OneWrite | System::Ceiling | System::Store);
        Self {
            system,
            mix,
            connections,
            offered_per_second: offered_per_second.map(tenths),
            per_second: tenths(outcome.events as f64 / outcome.seconds),
            p50_ms: millis_at(0.5),
            p99_ms: millis_at(0.99),
            p999_ms: millis_at(0.999),
            longest_ms: thousandths(outcome.latencies.longest_millis()),
            server_us: each(spent.server),
            program_us: has_program.then(|| each(spent.programs)),
            generator_us: each(spent.own),
            generator_share: tenths(spent.share(spent.own)),
            others_share: tenths(spent.share(spent.others)),
            memory_mb: memory_mb.map(tenths),
        }
    }
}

/// Rounded: what comes behind is noise, and would be noise in the file, too.
pub(crate) fn tenths(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

/// Rounded to the third place.
pub(crate) fn thousandths(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

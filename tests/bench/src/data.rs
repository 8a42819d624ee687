//! The figures.

use crate::event::Mix;
use crate::load::Outcome;

/// Who takes events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum System {
    /// The receiver.
    Sampler,
    /// The receiver, which is sent batches.
    Batched,
    /// One write per event, behind the simplest HTTP handler.
    OneWrite,
}

/// One run of events.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Run {
    /// Who took them.
    pub(crate) system: System,
    pub(crate) mix: Mix,
    /// Over how many connections.
    pub(crate) connections: usize,
    /// How many a second were answered.
    pub(crate) per_second: f64,
    /// Half of the answers took no longer than this, ms.
    pub(crate) p50_ms: f64,
    /// 99 of 100 took no longer.
    pub(crate) p99_ms: f64,
    /// Processor time of the database server for each event, µs.
    pub(crate) server_us: f64,
    /// Of the program that took it.
    pub(crate) program_us: f64,
    /// Of the load generator.
    pub(crate) generator_us: f64,
    /// How much of the machine others had, who have nothing to do with this, per cent.
    pub(crate) others_share: f64,
    /// The most memory that the program had at a time, MB.
    pub(crate) memory_mb: f64,
}

/// One run of a client that floods the receiver, and a quiet one beside it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FairnessRun {
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

/// A quiet client with single events.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct QuietRun {
    /// Connections over which others send batches without pause.
    pub(crate) batches: usize,
    /// Their events that were kept each second.
    pub(crate) kept_per_second: f64,
    /// How much of what the quiet client sent was kept, per cent.
    pub(crate) kept_share: f64,
    /// Half of its answers took no longer than this, ms.
    pub(crate) p50_ms: f64,
    /// 99 of 100.
    pub(crate) p99_ms: f64,
    /// 99 of 100 pings of the database took no longer meanwhile, ms.
    pub(crate) ping_p99_ms: f64,
}

/// One run of workers.
#[derive(Clone, Debug, PartialEq)]
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
    /// How much of the machine others had, per cent.
    pub(crate) others_share: f64,
    /// The most memory that one worker had at a time, MB.
    pub(crate) memory_mb: f64,
}

/// The run of a system, among these runs.
pub(crate) fn find(runs: &[Run], system: System, mix: Mix, connections: usize) -> Option<&Run> {
    let key = (system, mix, connections);
    let mut runs = runs.iter();
    runs.find(|run| (run.system, run.mix, run.connections) == key)
}

impl Run {
    /// What came of a run.
    pub(crate) fn new(
        (system, mix, connections): (System, Mix, usize),
        outcome: &Outcome,
        memory_mb: f64,
    ) -> Self {
        let spent = &outcome.spent;
        let each = |seconds: f64| seconds * 1e6 / outcome.events.max(1) as f64;
        Self {
            system,
            mix,
            connections,
            per_second: outcome.events as f64 / outcome.seconds,
            p50_ms: outcome.latencies.millis_at(0.5),
            p99_ms: outcome.latencies.millis_at(0.99),
            server_us: each(spent.server),
            program_us: each(spent.programs),
            generator_us: each(spent.own),
            others_share: spent.share(spent.others),
            memory_mb,
        }
    }
}

//! What processes cost: processor time and memory, as the kernel counts them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use procfs::process::Process;
use procfs::{Current, CurrentSI, KernelStats, ProcResult, ticks_per_second};
use sampler_testkit::Program;

use crate::mongo::Server;

/// The processes whose processor time is read, beside our own.
#[derive(Clone, Debug, Default)]
pub(crate) struct WatchedProcesses {
    /// The database server.
    pub(crate) server: Option<i32>,
    /// The programs that are measured.
    pub(crate) programs: Vec<i32>,
}

/// All meters at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    at: Instant,
    server: Duration,
    programs: Duration,
    own: Duration,
    machine: Duration,
}

/// Processor seconds between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Spent {
    /// How long that was.
    pub(crate) seconds: f64,
    /// By the database server.
    pub(crate) server: f64,
    /// By the programs that are measured, all together.
    pub(crate) programs: f64,
    /// By ourselves: the load generator, and the stand-in for Abacus.
    pub(crate) own: f64,
    /// By anything else on the machine.
    pub(crate) others: f64,
}

impl WatchedProcesses {
    pub(crate) fn of(server: &Server, programs: &[&Program]) -> Self {
        Self {
            server: Some(server.pid),
            programs: programs.iter().map(|program| program.pid()).collect(),
        }
    }
}

impl Reading {
    /// Reads all meters.
    pub(crate) fn take(watch: &WatchedProcesses) -> Result<Self> {
        let of = |pid: &i32| processor_time(Process::new(*pid));
        Ok(Self {
            at: Instant::now(),
            server: watch.server.iter().map(of).sum::<Result<_>>()?,
            programs: watch.programs.iter().map(of).sum::<Result<_>>()?,
            own: processor_time(Process::myself())?,
            machine: machine_time()?,
        })
    }

    pub(crate) fn since(&self, earlier: &Self) -> Spent {
        let seconds = |now: Duration, then: Duration| now.saturating_sub(then).as_secs_f64();
        let server = seconds(self.server, earlier.server);
        let programs = seconds(self.programs, earlier.programs);
        let own = seconds(self.own, earlier.own);
        let machine = seconds(self.machine, earlier.machine);
        Spent {
            seconds: (self.at - earlier.at).as_secs_f64(),
            server,
            programs,
            own,
            others: (machine - server - programs - own).max(0.0),
        }
    }
}

impl Spent {
    /// A part of all the processor time that there was, in per cent.
    pub(crate) fn share(&self, part: f64) -> f64 {
        100.0 * part / (self.seconds * cores() as f64)
    }
}

/// How many processors there are.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The most memory that a process has had at a time, in MB.
pub(crate) fn peak_memory_mb(pid: i32) -> Result<f64> {
    let status = Process::new(pid).and_then(|process| process.status());
    let status = status.with_context(|| format!("the state of process {pid}"))?;
    let kilobytes = status.vmhwm.context("a process without memory")?;
    Ok(kilobytes as f64 / 1024.0)
}

/// With that of threads that have ended.
fn processor_time(process: ProcResult<Process>) -> Result<Duration> {
    let stat = process.and_then(|process| process.stat());
    let stat = stat.context("the processor time of a process")?;
    let seconds = (stat.utime + stat.stime) as f64 / ticks_per_second() as f64;
    Ok(Duration::from_secs_f64(seconds))
}

/// All that is neither idle nor waiting for a disk, what the host took from us included.
fn machine_time() -> Result<Duration> {
    let total = KernelStats::current()
        .context("the processor time of the machine")?
        .total;
    let more = [total.irq_ms(), total.softirq_ms(), total.steal_ms()];
    let busy = total.user_ms() + total.nice_ms() + total.system_ms();
    let millis = busy + more.into_iter().flatten().sum::<u64>();
    Ok(Duration::from_millis(millis))
}

/// What the machine is, as far as it says.
pub(crate) fn machine() -> String {
    let processors = procfs::CpuInfo::current();
    let model = processors
        .ok()
        .and_then(|info| info.model_name(0).map(str::to_owned));
    let memory = procfs::Meminfo::current().map(|memory| memory.mem_total >> 30);
    format!(
        "{} processors ({}), {} GB of memory",
        cores(),
        model.unwrap_or_else(|| "of an unknown kind".to_owned()),
        memory.map_or("unknown".to_owned(), |gigabytes| gigabytes.to_string()),
    )
}

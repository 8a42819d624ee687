//! What processes cost: processor time and memory, as the kernel counts them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use procfs::process::Process;
use procfs::{Current, ticks_per_second};

/// The processes whose processor time is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watched {
    /// The database server.
    pub(crate) server: i32,
    /// The program that is measured.
    pub(crate) program: i32,
}

/// All meters at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    at: Instant,
    server: Duration,
    program: Duration,
}

/// Seconds between two readings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    /// How long that was.
    pub(crate) seconds: f64,
    /// Of a processor, by the database server.
    pub(crate) server: f64,
    /// Of a processor, by the program that is measured.
    pub(crate) program: f64,
}

impl Watched {
    /// Reads all meters.
    pub(crate) fn read(self) -> Result<Reading> {
        Ok(Reading {
            at: Instant::now(),
            server: processor_time(self.server)?,
            program: processor_time(self.program)?,
        })
    }

    /// What was spent since a reading.
    pub(crate) fn since(self, earlier: &Reading) -> Result<Spent> {
        let now = self.read()?;
        Ok(Spent {
            seconds: (now.at - earlier.at).as_secs_f64(),
            server: now.server.saturating_sub(earlier.server).as_secs_f64(),
            program: now.program.saturating_sub(earlier.program).as_secs_f64(),
        })
    }
}

/// The most memory that a process has had at a time, in MB.
pub(crate) fn peak_memory_mb(pid: i32) -> Result<f64> {
    let status = Process::new(pid).and_then(|process| process.status());
    let status = status.with_context(|| format!("the state of process {pid}"))?;
    let kilobytes = status.vmhwm.context("a process without memory")?;
    Ok(kilobytes as f64 / 1024.0)
}

/// With that of threads that have ended.
fn processor_time(pid: i32) -> Result<Duration> {
    let stat = Process::new(pid).and_then(|process| process.stat());
    let stat = stat.context("the processor time of a process")?;
    let seconds = (stat.utime + stat.stime) as f64 / ticks_per_second() as f64;
    Ok(Duration::from_secs_f64(seconds))
}

/// What the machine is, as far as it says.
pub(crate) fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let processors = procfs::CpuInfo::current().ok();
    let model = processors.and_then(|info| info.model_name(0).map(str::to_owned));
    let model = model.unwrap_or_else(|| "of an unknown kind".to_owned());
    format!("{cores} processors ({model})")
}

//! What processes cost: processor time and memory, from `/proc`.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// A tick of the processor times in `/proc`, in ms: Linux shows hundredths of a second, whatever
/// its own clock is.
const TICK: u64 = 10;

/// Whose processor time is read, beside our own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
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

impl Reading {
    /// Reads all meters.
    pub(crate) fn take(watch: &Watch) -> Result<Self> {
        let mut programs = Duration::ZERO;
        for pid in &watch.programs {
            programs += processor_time(&pid.to_string())?;
        }
        let server = watch.server.map(|pid| processor_time(&pid.to_string()));
        Ok(Self {
            at: Instant::now(),
            server: server.transpose()?.unwrap_or_default(),
            programs,
            own: processor_time("self")?,
            machine: machine_time()?,
        })
    }

    /// What was spent since an earlier reading.
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
    status_mb(pid, "VmHWM:")
}

/// The memory that a process has, in MB.
pub(crate) fn memory_mb(pid: i32) -> Result<f64> {
    status_mb(pid, "VmRSS:")
}

fn status_mb(pid: i32, name: &str) -> Result<f64> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    megabytes_of(&status, name).with_context(|| format!("no {name} in {path}"))
}

fn megabytes_of(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes / 1024.0)
}

fn processor_time(pid: &str) -> Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    time_of_process(&stat).with_context(|| format!("no processor times in {path}"))
}

/// `utime` and `stime`, with those of threads that are gone. The name in brackets may hold anything.
fn time_of_process(stat: &str) -> Option<Duration> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(Duration::from_millis(TICK * (user + system)))
}

fn machine_time() -> Result<Duration> {
    let stat = fs::read_to_string("/proc/stat").context("reading /proc/stat")?;
    time_of_machine(&stat).context("no processor times in /proc/stat")
}

/// All that is neither idle nor waiting for a disk, what the host took from us included.
fn time_of_machine(stat: &str) -> Option<Duration> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<u64> = fields
        .split_whitespace()
        .map_while(|field| field.parse().ok())
        .collect();
    let [user, nice, system, _, _, irq, softirq, steal, ..] = fields.as_slice() else {
        return None;
    };
    let busy = user + nice + system + irq + softirq + steal;
    Some(Duration::from_millis(TICK * busy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_times_of_a_process() {
        let stat = "12 (a) b) S 1 2 3 4 5 6 7 8 9 10 150 50 99 99 20 0";
        assert_eq!(time_of_process(stat), Some(Duration::from_secs(2)));
        assert_eq!(time_of_process("12 (a) S 1"), None);
    }

    #[test]
    fn reads_the_times_of_the_machine() {
        let stat = "cpu  100 20 30 9999 9999 4 6 40 7 7\ncpu0 1 1";
        assert_eq!(time_of_machine(stat), Some(Duration::from_secs(2)));
        assert_eq!(time_of_machine("cpu 1 2"), None);
    }

    #[test]
    fn reads_the_memory() {
        let status = "Name:\tx\nVmHWM:\t   65536 kB\nVmRSS:\t 1024 kB\n";
        assert_eq!(megabytes_of(status, "VmHWM:"), Some(64.0));
        assert_eq!(megabytes_of(status, "VmRSS:"), Some(1.0));
        assert_eq!(megabytes_of("VmRSS: 1 kB", "VmHWM:"), None);
    }

    #[test]
    fn reads_its_own_meters() {
        let watch = Watch::default();
        let before = Reading::take(&watch).unwrap();
        let spent = Reading::take(&watch).unwrap().since(&before);
        assert!(spent.server.abs() < f64::EPSILON && spent.own >= 0.0);
        let pid = i32::try_from(std::process::id()).unwrap();
        assert!(peak_memory_mb(pid).unwrap() > 0.1);
    }
}

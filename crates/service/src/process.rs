//! The standard metrics of a process (`process_…`), as Prometheus's client libraries name them.
//!
//! Linux shows them below `/proc`. Elsewhere they are left out.

use std::fs;

use sampler_metrics::Registry;

sampler_metrics::metrics! {
    pub METRICS;

    /// The processor time of the process, in user and in system mode
    PROCESS_CPU_SECONDS = "process_cpu_seconds_total", Counter;

    /// The memory of the process that is in the machine's memory
    PROCESS_RESIDENT_MEMORY_BYTES = "process_resident_memory_bytes", Gauge;

    /// The open file descriptors of the process; connections are among them
    PROCESS_OPEN_FDS = "process_open_fds", Gauge;

    /// How many file descriptors the process may open
    PROCESS_MAX_FDS = "process_max_fds", Gauge;

    /// When the process was started, in seconds since the epoch
    PROCESS_START_TIME_SECONDS = "process_start_time_seconds", Gauge;
}

/// The ticks of a second in `/proc`. It is 100 on all machines that Linux runs on (`USER_HZ`).
const TICKS: f64 = 100.0;

/// The fields behind the name of the program in `/proc/self/stat` (proc(5), from field 3 on).
const USER_TIME: usize = 14 - 3;
const SYSTEM_TIME: usize = 15 - 3;
const START_TIME: usize = 22 - 3;

pub fn register(registry: &mut Registry) {
    registry.seconds(&PROCESS_CPU_SECONDS, || {
        Some(stat(USER_TIME)? + stat(SYSTEM_TIME)?)
    });
    registry.gauge(&PROCESS_RESIDENT_MEMORY_BYTES, || {
        let kilobytes = field("/proc/self/status", "VmRSS:")?;
        Some(kilobytes * 1024.0)
    });
    registry.gauge(&PROCESS_OPEN_FDS, || {
        // The descriptor that reads the directory is among them.
        let count = fs::read_dir("/proc/self/fd").ok()?.count();
        Some(count.saturating_sub(1) as f64)
    });
    registry.gauge(&PROCESS_MAX_FDS, || {
        field("/proc/self/limits", "Max open files")
    });
    // It stays.
    let started = started();
    registry.gauge(&PROCESS_START_TIME_SECONDS, move || started);
}

fn started() -> Option<f64> {
    Some(field("/proc/stat", "btime")? + stat(START_TIME)?)
}

/// A field of `/proc/self/stat` in seconds. The name of the program may have spaces in it.
fn stat(index: usize) -> Option<f64> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    let ticks: f64 = fields.split_whitespace().nth(index)?.parse().ok()?;
    Some(ticks / TICKS)
}

/// The number behind a name at the beginning of a line.
fn field(path: &str, name: &str) -> Option<f64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linux_tells_all_of_them() {
        let mut registry = Registry::new("sampler-worker", "1");
        register(&mut registry);
        let text = registry.encode().unwrap();
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_else(|| panic!("{name}: {text}"))
                .trim()
                .parse::<f64>()
                .unwrap()
        };
        assert!(value("process_cpu_seconds_total") >= 0.0);
        assert!(value("process_resident_memory_bytes ") > 1e6);
        assert!(value("process_open_fds ") >= 3.0);
        assert!(value("process_max_fds ") >= value("process_open_fds "));
        assert!(value("process_start_time_seconds ") > 1.7e9);
    }
}

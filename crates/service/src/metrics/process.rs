//! The standard metrics of a process (`process_…`), as Prometheus's client libraries name them.
//!
//! Linux shows them below `/proc`. Elsewhere they are left out. The crate `metrics-process` would count the
//! processor time in whole seconds.

use std::fs;

use metrics::gauge;

pub(super) const CPU_SECONDS: &str = "process_cpu_seconds_total";

/// The ticks of a second in `/proc`. It is 100 on all machines that Linux runs on (`USER_HZ`).
const TICKS: f64 = 100.0;

/// The fields behind the name of the program in `/proc/self/stat` (proc(5), from field 3 on).
const USER_TIME: usize = 14 - 3;
const SYSTEM_TIME: usize = 15 - 3;
const START_TIME: usize = 22 - 3;

/// Sets the gauges.
pub(super) fn read() {
    let started = || Some(field("/proc/stat", "btime")? + stat(START_TIME)?);
    // The descriptor that reads the directory is among them.
    let descriptors = || Some(fs::read_dir("/proc/self/fd").ok()?.count() as f64 - 1.0);
    let resident = field("/proc/self/status", "VmRSS:").map(|kilobytes| kilobytes * 1024.0);
    for (name, value) in [
        ("process_resident_memory_bytes", resident),
        ("process_open_fds", descriptors()),
        (
            "process_max_fds",
            field("/proc/self/limits", "Max open files"),
        ),
        ("process_start_time_seconds", started()),
    ] {
        if let Some(value) = value {
            gauge!(name).set(value);
        }
    }
}

/// The processor time, as text: a counter of the crate `metrics` has no fractions.
pub(super) fn cpu_seconds() -> String {
    let used = || Some(stat(USER_TIME)? + stat(SYSTEM_TIME)?);
    used().map_or_else(String::new, |seconds| {
        format!("# TYPE {CPU_SECONDS} counter\n{CPU_SECONDS} {seconds}\n")
    })
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
    use super::super::Metrics;

    #[test]
    fn linux_tells_all_of_them() {
        let (_recorder, metrics) = Metrics::new("sampler-worker", "1");
        let text = metrics.render();
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

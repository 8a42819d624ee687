//! The receiver beside one write per event.

use super::{Section, Target, grouped, rounded, table};
use crate::data::{Run, System, find};
use crate::event::Mix;

/// What is allowed between two figures that are to be alike: the same thing measured twice differs
/// by as much.
const NOISE: f64 = 1.05;
/// The most memory of the receiver, MB.
const MEMORY_MAX: f64 = 64.0;

/// Rates, and what an event costs.
pub(crate) fn of_receiver(runs: &[Run]) -> Section {
    let text = format!(
        "As many events as there can be; costs are processor time in µs:\n\n{}",
        rows(runs)
    );
    Section {
        title: "Receiver",
        text,
        targets: targets(runs),
    }
}

fn title(mix: Mix) -> &'static str {
    match mix {
        Mix::Starts => "starts",
        Mix::Stops => "stops",
    }
}

fn rows(runs: &[Run]) -> String {
    let row = |run: &Run| {
        let system = match run.system {
            System::Sampler | System::Batched => "Sampler",
            System::OneWrite => "one write per event",
        };
        vec![
            title(run.mix).to_owned(),
            system.to_owned(),
            run.connections.to_string(),
            grouped(run.per_second),
            rounded(run.p50_ms),
            rounded(run.p99_ms),
            rounded(run.server_us),
            rounded(run.program_us),
            rounded(run.generator_us),
            rounded(run.memory_mb),
        ]
    };
    let header = [
        "Events",
        "System",
        "Connections",
        "Answered /s",
        "p50 ms",
        "p99 ms",
        "MongoDB",
        "Program",
        "Load",
        "Peak MB",
    ];
    let rows: Vec<Vec<String>> = runs.iter().map(row).collect();
    table(&header, 2, &rows)
}

fn targets(runs: &[Run]) -> Vec<Target> {
    let mut targets = vec![times(runs, Mix::Starts, 4.0), times(runs, Mix::Stops, 3.0)];
    for mix in Mix::ALL {
        targets.extend([slowest(runs, mix), lone(runs, mix)]);
    }
    targets.push(memory(runs));
    targets.into_iter().flatten().collect()
}

/// A figure of Sampler, and of one write per event.
fn beside(
    runs: &[Run],
    mix: Mix,
    connections: usize,
    figure: impl Fn(&Run) -> f64,
) -> Option<[f64; 2]> {
    let of = |system| find(runs, system, mix, connections).map(&figure);
    Some([of(System::Sampler)?, of(System::OneWrite)?])
}

fn times(runs: &[Run], mix: Mix, factor: f64) -> Option<Target> {
    let [ours, other] = beside(runs, mix, 256, |run| run.per_second)?;
    let wanted = format!(
        "{} a second with 256 connections at least {factor} times those of one write per event",
        title(mix)
    );
    let found = format!(
        "{} against {}: {} times",
        rounded(ours),
        rounded(other),
        rounded(ours / other),
    );
    Some(Target::new(wanted, found, ours >= factor * other))
}

fn slowest(runs: &[Run], mix: Mix) -> Option<Target> {
    let [ours, other] = beside(runs, mix, 64, |run| run.p99_ms)?;
    let wanted = format!(
        "99 of 100 {} with 64 connections answered sooner than with one write per event",
        title(mix)
    );
    let found = format!("{} ms against {} ms", rounded(ours), rounded(other));
    Some(Target::new(wanted, found, ours < other))
}

fn lone(runs: &[Run], mix: Mix) -> Option<Target> {
    let [ours, other] = beside(runs, mix, 1, |run| run.p50_ms)?;
    let wanted = format!(
        "one lone connection waits no longer for its {} than with one write per event (median; \
         5 % is noise)",
        title(mix)
    );
    let found = format!("{} ms against {} ms", rounded(ours), rounded(other));
    Some(Target::new(wanted, found, ours <= other * NOISE))
}

fn memory(runs: &[Run]) -> Option<Target> {
    let ours = runs.iter().filter(|run| run.system == System::Sampler);
    let peak = ours.map(|run| run.memory_mb).reduce(f64::max)?;
    let wanted = format!("a receiver stays under {MEMORY_MAX} MB at full load");
    let found = format!("{} MB at its peak", rounded(peak));
    Some(Target::new(wanted, found, peak < MEMORY_MAX))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn run(system: System, mix: Mix, connections: usize, per_second: f64) -> Run {
        Run {
            system,
            mix,
            connections,
            per_second,
            p50_ms: 1000.0 / per_second,
            p99_ms: 3000.0 / per_second,
            server_us: 100.0,
            program_us: 50.0,
            generator_us: 10.0,
            others_share: 1.0,
            memory_mb: 30.0,
        }
    }

    #[test]
    fn each_ratio_decides() {
        let reached = |ours: f64, other: f64| {
            let runs = [1, 64, 256].map(|connections| {
                [
                    run(System::Sampler, Mix::Starts, connections, ours),
                    run(System::OneWrite, Mix::Starts, connections, other),
                ]
            });
            let targets = targets(runs.as_flattened()).into_iter();
            targets.map(|target| target.reached).collect::<Vec<_>>()
        };
        assert_eq!(reached(4_000.0, 1_000.0), [true, true, true, true]);
        assert_eq!(reached(3_900.0, 1_000.0), [false, true, true, true]);
        assert_eq!(reached(960.0, 1_000.0), [false, false, true, true]);
        assert_eq!(reached(900.0, 1_000.0), [false, false, false, true]);
    }
}

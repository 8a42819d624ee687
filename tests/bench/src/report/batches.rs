//! The figures of batches.

use super::markdown::table;
use super::targets::Target;
use super::{grouped, rounded};
use crate::data::{Batches, QuietRun, Run, System};

/// What batches must reach of the server's ceiling, per cent, and of single events; and how many times
/// as long a quiet client may wait beside them.
const OF_CEILING: f64 = 80.0;
const OF_SINGLE: f64 = 1.4;
const QUIET: f64 = 2.0;

pub(crate) fn of_batches(figures: &Batches) -> String {
    let name = |system: System| match system {
        System::Batched => "Batches of 500",
        System::Store => "The store, which searches before it inserts, without HTTP",
        System::Ceiling => "The server in batches, without HTTP",
        _ => "Single events",
    };
    let rate = |run: &Run| {
        vec![
            name(run.system).to_owned(),
            run.connections.to_string(),
            grouped(run.per_second),
            rounded(run.p50_ms),
            rounded(run.p99_ms),
            rounded(run.server_us),
            run.program_us.map_or_else(String::new, rounded),
            run.memory_mb.map_or_else(String::new, rounded),
        ]
    };
    let rates: Vec<Vec<String>> = figures.rates.iter().map(rate).collect();
    let header = [
        "Starts",
        "Connections",
        "Events /s",
        "p50 ms",
        "p99 ms",
        "MongoDB µs",
        "Receiver µs",
        "Peak MB",
    ];
    let quiet = |run: &QuietRun| {
        vec![
            run.batches.to_string(),
            grouped(run.kept_per_second),
            rounded(run.kept_share),
            rounded(run.p50_ms),
            rounded(run.p99_ms),
            run.ping_p99_ms.map_or_else(String::new, rounded),
        ]
    };
    let quiet: Vec<Vec<String>> = figures.quiet.iter().map(quiet).collect();
    let quiet_header = [
        "Connections with batches",
        "Their events /s",
        "Quiet client, kept %",
        "p50 ms",
        "p99 ms",
        "Ping of the database, p99 ms",
    ];
    format!(
        "Times are those of a whole batch, or of a single event.\n\n{}A quiet client sends 100 single \
         events a second, alone and while others send batches without pause:\n\n{}",
        table(&header, 1, &rates),
        table(&quiet_header, 0, &quiet)
    )
}

/// What is wanted of batches.
pub(crate) fn targets_of_batches(figures: &Batches) -> Vec<Target> {
    let rate = |system| {
        let run = figures.rates.iter().find(|run| run.system == system);
        run.map(|run| run.per_second)
    };
    let mut targets = Vec::new();
    // What must be looked for before an insert is work that the server has to do, too.
    let (who, ceiling) = match rate(System::Store) {
        Some(store) => ("the store", Some(store)),
        None => ("the server", rate(System::Ceiling)),
    };
    let rates = (rate(System::Batched), ceiling, rate(System::Sampler));
    if let (Some(batches), Some(ceiling), Some(single)) = rates {
        let share = 100.0 * batches / ceiling;
        targets.push(Target {
            wanted: format!(
                "events in batches of 500 over 4 connections at least {OF_CEILING} % of what {who} \
                 takes in batches without HTTP"
            ),
            found: format!(
                "{} of {}: {} %",
                grouped(batches),
                grouped(ceiling),
                rounded(share)
            ),
            reached: share >= OF_CEILING,
        });
        targets.push(Target {
            wanted: format!(
                "at least {OF_SINGLE} times those of single events over 256 connections"
            ),
            found: format!(
                "{} against {}: {} times",
                grouped(batches),
                grouped(single),
                rounded(batches / single)
            ),
            reached: batches >= OF_SINGLE * single,
        });
    }
    let mean = |beside: bool| {
        let runs = figures.quiet.iter();
        let runs = runs.filter(|run| (run.batches > 0) == beside);
        let p99: Vec<f64> = runs.map(|run| run.p99_ms).collect();
        p99.iter().sum::<f64>() / p99.len().max(1) as f64
    };
    let (alone, beside) = (mean(false), mean(true));
    targets.push(Target {
        wanted: format!(
            "99 of 100 events of a quiet client take at most {QUIET} times as long beside batches"
        ),
        found: format!("{} ms against {} ms", rounded(beside), rounded(alone)),
        reached: beside <= QUIET * alone,
    });
    targets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Mix;
    use crate::report::targets::tests::run;

    #[test]
    fn each_ratio_decides() {
        let figures = |batches, p99_ms| Batches {
            rates: vec![
                run(System::Batched, Mix::Starts, 4, batches),
                run(System::Sampler, Mix::Starts, 256, 10_000.0),
                run(System::Ceiling, Mix::Starts, 4, 20_000.0),
            ],
            quiet: [(0, 5.0), (4, p99_ms)]
                .map(|(batches, p99_ms)| QuietRun {
                    batches,
                    kept_per_second: 1.0,
                    kept_share: 100.0,
                    p50_ms: 1.0,
                    p99_ms,
                    ping_p99_ms: None,
                })
                .to_vec(),
        };
        let reached = |batches, p99_ms| {
            let targets = targets_of_batches(&figures(batches, p99_ms)).into_iter();
            targets.map(|target| target.reached).collect::<Vec<_>>()
        };
        assert_eq!(reached(16_000.0, 10.0), [true, true, true]);
        assert_eq!(reached(15_000.0, 10.1), [false, true, false]);
        assert_eq!(reached(13_000.0, 1.0), [false, false, true]);
        let mut beside_store = figures(15_000.0, 10.0);
        let store = run(System::Store, Mix::Starts, 4, 18_000.0);
        beside_store.rates.push(store);
        assert!(targets_of_batches(&beside_store)[0].reached);
    }
}

//! Batches, and a quiet client beside them.

use super::{Section, Target, grouped, rounded, table};
use crate::data::{QuietRun, Run, System};

/// How many times the rate of single events batches must reach; and how many times as long a quiet
/// client may wait beside them.
const OF_SINGLE: f64 = 1.4;
const QUIET: f64 = 2.0;

/// Rates of batches and of single events, and the quiet client alone and beside batches by turns.
pub(crate) fn of_batches(rates: &[Run], quiet: &[QuietRun]) -> Section {
    let rate = |run: &Run| {
        let name = match run.system {
            System::Batched => "Batches",
            System::Sampler | System::OneWrite => "Single events",
        };
        vec![
            name.to_owned(),
            run.connections.to_string(),
            grouped(run.per_second),
            rounded(run.p50_ms),
            rounded(run.p99_ms),
            rounded(run.server_us),
            rounded(run.program_us),
            rounded(run.memory_mb),
        ]
    };
    let rows: Vec<Vec<String>> = rates.iter().map(rate).collect();
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
    let of_quiet = |run: &QuietRun| {
        vec![
            run.batches.to_string(),
            grouped(run.kept_per_second),
            rounded(run.kept_share),
            rounded(run.p50_ms),
            rounded(run.p99_ms),
            rounded(run.ping_p99_ms),
        ]
    };
    let quiet_rows: Vec<Vec<String>> = quiet.iter().map(of_quiet).collect();
    let quiet_header = [
        "Connections with batches",
        "Their events /s",
        "Quiet client, kept %",
        "p50 ms",
        "p99 ms",
        "Ping of the database, p99 ms",
    ];
    let text = format!(
        "Times are those of a whole batch, or of a single event.\n\n{}A quiet client sends 100 single \
         events a second, alone and while others send batches without pause:\n\n{}",
        table(&header, 1, &rows),
        table(&quiet_header, 0, &quiet_rows)
    );
    Section {
        title: "Batches",
        text,
        targets: targets(rates, quiet),
    }
}

fn targets(rates: &[Run], quiet: &[QuietRun]) -> Vec<Target> {
    let rate = |system| {
        let run = rates.iter().find(|run| run.system == system);
        run.map_or(0.0, |run| run.per_second)
    };
    let (batches, single) = (rate(System::Batched), rate(System::Sampler));
    let rates = Target::new(
        format!("events in batches at least {OF_SINGLE} times those of single events"),
        format!(
            "{} against {}: {} times",
            grouped(batches),
            grouped(single),
            rounded(batches / single)
        ),
        batches >= OF_SINGLE * single,
    );
    let mean = |beside: bool| {
        let runs = quiet.iter().filter(|run| (run.batches > 0) == beside);
        let p99: Vec<f64> = runs.map(|run| run.p99_ms).collect();
        p99.iter().sum::<f64>() / p99.len().max(1) as f64
    };
    let (alone, beside) = (mean(false), mean(true));
    let quiet = Target::new(
        format!(
            "99 of 100 events of a quiet client take at most {QUIET} times as long beside batches"
        ),
        format!("{} ms against {} ms", rounded(beside), rounded(alone)),
        beside <= QUIET * alone,
    );
    vec![rates, quiet]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Mix;
    use crate::report::receiver::tests::run;

    #[test]
    fn each_ratio_decides() {
        let reached = |batches, p99_ms| {
            let rates = [
                run(System::Batched, Mix::Starts, 4, batches),
                run(System::Sampler, Mix::Starts, 256, 10_000.0),
            ];
            let quiet = [(0, 5.0), (4, p99_ms)].map(|(batches, p99_ms)| QuietRun {
                batches,
                kept_per_second: 1.0,
                kept_share: 100.0,
                p50_ms: 1.0,
                p99_ms,
                ping_p99_ms: 1.0,
            });
            let targets = targets(&rates, &quiet).into_iter();
            targets.map(|target| target.reached).collect::<Vec<_>>()
        };
        assert_eq!(reached(14_000.0, 10.0), [true, true]);
        assert_eq!(reached(15_000.0, 10.1), [true, false]);
        assert_eq!(reached(13_000.0, 1.0), [false, true]);
    }
}

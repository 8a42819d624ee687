//! The figures of sums beside starts.

use super::markdown::table;
use super::targets::Target;
use super::{grouped, rounded};
use crate::data::{Reading, ReadingRun};

/// What starts must keep of their rate, per cent, and how many times as long they may take.
const KEPT: f64 = 60.0;
const TIMES: f64 = 3.0;

pub(crate) fn of_reading(figures: &Reading) -> String {
    let header = [
        "Clients that ask for sums",
        "Starts /s",
        "p50 ms",
        "p99 ms",
        "Sums /s",
        "p50 of a sum, ms",
        "Turned away /s",
    ];
    let row = |run: &ReadingRun| {
        vec![
            run.readers.to_string(),
            grouped(run.starts_per_second),
            rounded(run.p50_ms),
            rounded(run.p99_ms),
            rounded(run.sums_per_second),
            rounded(run.sum_p50_ms),
            grouped(run.turned_away_per_second),
        ]
    };
    let rows: Vec<Vec<String>> = figures.runs.iter().map(row).collect();
    format!(
        "One client sends starts over 64 connections, each the next one when the last one is answered. \
         Beside it others ask for a sum of {} usages by instance, each again as soon as it is \
         answered, also where it is turned away.\n\n{}",
        grouped(figures.usages as f64),
        table(&header, 0, &rows)
    )
}

/// What is wanted of starts beside those who ask for sums.
pub(crate) fn targets_of_reading(runs: &[ReadingRun]) -> Vec<Target> {
    let mean = |with_readers: bool, figure: fn(&ReadingRun) -> f64| {
        let runs = runs.iter().filter(|run| (run.readers > 0) == with_readers);
        let figures: Vec<f64> = runs.map(figure).collect();
        figures.iter().sum::<f64>() / figures.len().max(1) as f64
    };
    let [alone, beside] = [false, true].map(|with| mean(with, |run| run.starts_per_second));
    let [quick, slow] = [false, true].map(|with| mean(with, |run| run.p99_ms));
    let share = 100.0 * beside / alone.max(1.0);
    vec![
        Target {
            wanted: format!(
                "beside 8 clients that ask for sums without pause, starts keep {KEPT} % of their rate"
            ),
            found: format!(
                "{} of {} a second: {} %",
                grouped(beside),
                grouped(alone),
                rounded(share)
            ),
            reached: share >= KEPT,
        },
        Target {
            wanted: format!("99 of 100 of them take at most {TIMES} times as long"),
            found: format!("{} ms against {} ms", rounded(slow), rounded(quick)),
            reached: slow <= TIMES * quick,
        },
    ]
}

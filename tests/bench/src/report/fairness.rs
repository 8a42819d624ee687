//! A flood and a quiet client.

use super::{Section, Target, grouped, rounded, table};
use crate::data::FairnessRun;

/// The connections of the floods beside which something is wanted.
const FLOODS: [u64; 2] = [300, 3_000];

/// What was kept of both, over the load.
pub(crate) fn of_fairness(runs: &[FairnessRun]) -> Section {
    let header = [
        "Connections of the flood",
        "Kept /s in all",
        "Of the quiet client kept, %",
        "p50 ms",
        "p99 ms",
        "Of the flood kept, %",
        "Peak MB",
    ];
    let row = |run: &FairnessRun| {
        vec![
            run.connections.to_string(),
            grouped(run.kept_per_second),
            rounded(run.quiet_kept_share),
            rounded(run.quiet_p50_ms),
            rounded(run.quiet_p99_ms),
            rounded(run.flood_kept_share),
            rounded(run.memory_mb),
        ]
    };
    let rows: Vec<Vec<String>> = runs.iter().map(row).collect();
    let text = format!(
        "One client sends starts over so many connections, each the next one when the last one is \
         answered, also where it is turned away; a quiet one sends a hundred a second. Latencies are \
         of the quiet one's events that were kept.\n\n{}",
        table(&header, 0, &rows)
    );
    Section {
        title: "A flood and a quiet client",
        text,
        targets: targets(runs),
    }
}

fn targets(runs: &[FairnessRun]) -> Vec<Target> {
    let best = runs.iter().map(|run| run.kept_per_second);
    let best = best.fold(0.0, f64::max);
    let of_run = |run: &FairnessRun| {
        let flood = format!("beside a flood over {} connections, ", run.connections);
        let share = 100.0 * run.kept_per_second / best;
        [
            Target::new(
                format!("{flood}at least 99.9 % of a quiet client's events kept"),
                format!("{} %", rounded(run.quiet_kept_share)),
                run.quiet_kept_share >= 99.9,
            ),
            Target::new(
                format!("{flood}99 of 100 of them answered within 250 ms"),
                format!("{} ms", rounded(run.quiet_p99_ms)),
                run.quiet_p99_ms <= 250.0,
            ),
            Target::new(
                format!("{flood}at least 80 % of the best rate kept in all"),
                format!(
                    "{} of {} a second: {} %",
                    grouped(run.kept_per_second),
                    grouped(best),
                    rounded(share)
                ),
                share >= 80.0,
            ),
        ]
    };
    let runs = runs.iter().filter(|run| FLOODS.contains(&run.connections));
    runs.flat_map(of_run).collect()
}

//! Workers.

use super::{Section, Target, grouped, rounded, table};
use crate::data::Sampled;

/// The most memory of a worker, MB.
const MEMORY_MAX: f64 = 64.0;

/// Rates; the last row is that of catching up on so many days.
pub(crate) fn of_worker(rates: &[Sampled], catch_up: &Sampled, days: u64) -> Section {
    let text = format!(
        "More work than the workers can do, day by day. In the last row, {} spans that are {days} days \
         behind catch up hour by hour:\n\n{}",
        grouped(catch_up.spans as f64),
        rows(rates.iter().chain([catch_up])),
    );
    let at_once = rates.iter().filter(|run| run.answer_ms == 0);
    let best = at_once.max_by(|one, other| one.per_second.total_cmp(&other.per_second));
    let mut targets: Vec<Target> = best.into_iter().flat_map(at_best).collect();
    targets.extend(memory(rates.iter().chain([catch_up])));
    Section {
        title: "Worker",
        text,
        targets,
    }
}

fn at_best(best: &Sampled) -> [Target; 2] {
    let with = format!("with {} workers", best.workers);
    [
        Target::new(
            "5,000 intervals a second where Abacus answers at once",
            format!("{} {with}", rounded(best.per_second)),
            best.per_second >= 5_000.0,
        ),
        Target::new(
            "under load, at most one command to the database for 20 intervals",
            format!("{} for 20 {with}", rounded(best.commands_each * 20.0)),
            best.commands_each * 20.0 <= 1.0,
        ),
    ]
}

/// All open spans due at once. `closing` is whether the month before counts as about to be closed.
pub(crate) fn of_midnight(sampled: &Sampled, closing: bool) -> Section {
    let closing = if closing { "yes" } else { "no" };
    let text = format!(
        "{} open spans due at once, until the last one is complete. Usages that were posted twice: \
         {}. The month before counts as about to be closed: {closing}.\n\n{}",
        grouped(sampled.spans as f64),
        sampled.intervals - sampled.spans,
        rows([sampled]),
    );
    Section {
        title: "Midnight on the first of a month",
        text,
        targets: memory([sampled]).into_iter().collect(),
    }
}

/// The first of each two is that of workers as they are, the second writes no entries.
pub(crate) fn of_ledger(rates: &[Sampled; 2], midnight: &[Sampled; 2]) -> Section {
    let text = format!(
        "Workers that have more work than they can do, day by day: as they are, and in the second row \
         without what they write to the ledger.\n\n{}A midnight of {} spans, with the ledger and \
         without:\n\n{}",
        rows(rates),
        grouped(midnight[0].spans as f64),
        rows(midnight),
    );
    let [with, without] = rates;
    let share = 100.0 * with.per_second / without.per_second;
    let times = midnight[0].seconds / midnight[1].seconds;
    let targets = vec![
        Target::new(
            "intervals a second at least 80 % of those without the ledger",
            format!(
                "{} of {}: {} %",
                rounded(with.per_second),
                rounded(without.per_second),
                rounded(share)
            ),
            share >= 80.0,
        ),
        Target::new(
            "with the ledger, at most one command to the database for 10 intervals",
            format!("{} for 10", rounded(with.commands_each * 10.0)),
            with.commands_each * 10.0 <= 1.0,
        ),
        Target::new(
            "a midnight takes at most 1.25 times as long as without the ledger",
            format!(
                "{} s against {} s: {} times",
                rounded(midnight[0].seconds),
                rounded(midnight[1].seconds),
                rounded(times)
            ),
            times <= 1.25,
        ),
    ];
    Section {
        title: "The ledger",
        text,
        targets,
    }
}

/// The first of the two posted CloudEvents, the second posted to Abacus.
pub(crate) fn of_upstreams(rates: &[Sampled; 2]) -> Section {
    let text = format!(
        "Workers that have more work than they can do, day by day. In the first row they post CloudEvents to \
         an upstream that forgets after a day, in the second one they post to Abacus.\n\n{}",
        rows(rates),
    );
    let [events, abacus] = rates;
    let share = 100.0 * events.per_second / abacus.per_second;
    let targets = vec![Target::new(
        "as CloudEvents, intervals a second at least 80 % of those with Abacus",
        format!(
            "{} of {}: {} %",
            rounded(events.per_second),
            rounded(abacus.per_second),
            rounded(share)
        ),
        share >= 80.0,
    )];
    Section {
        title: "Upstreams",
        text,
        targets,
    }
}

fn rows<'a>(runs: impl IntoIterator<Item = &'a Sampled>) -> String {
    let header = [
        "Workers",
        "Upstream answers after",
        "Intervals",
        "Intervals /s",
        "Commands each",
        "MongoDB µs",
        "Workers µs",
        "Peak MB of a worker",
    ];
    let row = |run: &Sampled| {
        vec![
            run.workers.to_string(),
            format!("{} ms", run.answer_ms),
            grouped(run.intervals as f64),
            grouped(run.per_second),
            format!("{:.3}", run.commands_each),
            rounded(run.server_us),
            rounded(run.worker_us),
            rounded(run.memory_mb),
        ]
    };
    let rows: Vec<Vec<String>> = runs.into_iter().map(row).collect();
    table(&header, 0, &rows)
}

fn memory<'a>(runs: impl IntoIterator<Item = &'a Sampled>) -> Option<Target> {
    let peak = runs.into_iter().map(|run| run.memory_mb).reduce(f64::max)?;
    Some(Target::new(
        format!("a worker stays under {MEMORY_MAX} MB at full load"),
        format!("{} MB at its peak", rounded(peak)),
        peak < MEMORY_MAX,
    ))
}

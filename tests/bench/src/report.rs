//! What is made of the figures: tables, and whether the targets are reached.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use sampler_testkit::build::Kind;
use sampler_testkit::target_dir;

use crate::scenario::against::Figures;
use crate::scenario::beside::QuietRun;
use crate::scenario::events::{EventRun, Run, System};
use crate::scenario::workers::Sampled;

/// The most memory of a receiver or a worker, MB.
const MEMORY_MAX: f64 = 64.0;
/// What is allowed between two figures that are to be alike: the same thing measured twice differs
/// by as much.
const NOISE: f64 = 1.05;
/// The connections of the floods beside which something is wanted.
const FLOODS: [usize; 2] = [300, 3_000];

/// A part of the report.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    title: &'static str,
    /// Tables, and what they show.
    text: String,
    targets: Vec<Target>,
}

/// A target and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    wanted: String,
    found: String,
    /// Whether that is enough.
    reached: bool,
}

impl Target {
    fn new(wanted: impl Into<String>, found: String, reached: bool) -> Self {
        Self {
            wanted: wanted.into(),
            found,
            reached,
        }
    }

    /// A figure of that unit is to be this at least.
    fn at_least(wanted: impl Into<String>, (found, unit): (f64, &str), least: f64) -> Self {
        Self::new(wanted, format!("{} {unit}", rounded(found)), found >= least)
    }

    /// A figure of that unit is to be this at most.
    fn at_most(wanted: impl Into<String>, (found, unit): (f64, &str), most: f64) -> Self {
        Self::new(wanted, format!("{} {unit}", rounded(found)), found <= most)
    }

    /// The first figure is to be so many times the second at least.
    fn at_least_times(wanted: impl Into<String>, figures: [f64; 2], least: f64) -> Self {
        let [first, second] = figures;
        Self::new(wanted, compared(figures), first >= least * second)
    }

    /// The first figure is to be so many times the second at most.
    fn at_most_times(wanted: impl Into<String>, figures: [f64; 2], most: f64) -> Self {
        let [first, second] = figures;
        Self::new(wanted, compared(figures), first <= most * second)
    }
}

fn compared([first, second]: [f64; 2]) -> String {
    let times = rounded(first / second);
    format!(
        "{} against {}: {times} times",
        rounded(first),
        rounded(second)
    )
}

/// All sections as Markdown; `origin` says when and on what the figures were taken.
pub(crate) fn markdown(origin: &str, sections: &[Section]) -> String {
    let targets: Vec<&Target> = sections.iter().flat_map(|it| &it.targets).collect();
    let targets = table(
        &targets,
        &[
            ("Wanted", &|target| target.wanted.clone()),
            ("Found", &|target| target.found.clone()),
            ("", &|target| {
                if target.reached { "reached" } else { "**no**" }.to_owned()
            }),
        ],
    );
    let sections = sections
        .iter()
        .map(|section| format!("## {}\n\n{}", section.title, section.text));
    let sections: String = sections.collect();
    format!("{origin}\n\n## Targets\n\n{targets}{sections}")
}

/// Writes the report under the target folder.
pub(crate) fn keep(report: &str) -> Result<PathBuf> {
    let path = target_dir().join("bench").join("report.md");
    fs::write(&path, report).with_context(|| format!("writing {}", path.display()))?;
    Ok(path)
}

/// A column of a table: its header, and what it shows of a row.
type Column<'a, R> = (&'a str, &'a dyn Fn(&R) -> String);

fn table<R>(rows: &[R], columns: &[Column<'_, R>]) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let header = line(columns.iter().map(|column| column.0.to_owned()).collect());
    let rule = line(columns.iter().map(|_| "---".to_owned()).collect());
    let row = |row: &R| line(columns.iter().map(|column| column.1(row)).collect());
    let rows: String = rows.iter().map(row).collect();
    format!("{header}{rule}{rows}\n")
}

/// A number as people read it: three digits that count, thousands apart.
fn rounded(number: f64) -> String {
    if number.abs() >= 100.0 {
        return grouped(number);
    }
    let places = if number.abs() >= 10.0 { 1 } else { 2 };
    format!("{number:.places$}")
}

/// A whole number with a comma between thousands.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Rates of events, and what an event costs.
fn event_table(runs: &[Run]) -> String {
    table(
        runs,
        &[
            ("Events", &|run| title(run.of.kind).to_owned()),
            ("System", &|run| match run.of.system {
                System::Sampler => "Sampler".to_owned(),
                System::Batched(batch) => format!("batches of {batch}"),
                System::OneWrite => "one write per event".to_owned(),
            }),
            ("Connections", &|run| run.of.connections.to_string()),
            ("Kept /s", &|run| grouped(run.outcome.per_second())),
            ("p50 ms", &|run| {
                rounded(run.outcome.latencies.millis_at(0.5))
            }),
            ("p99 ms", &|run| {
                rounded(run.outcome.latencies.millis_at(0.99))
            }),
            ("MongoDB µs", &|run| rounded(run.outcome.server_us())),
            ("Program µs", &|run| rounded(run.outcome.program_us())),
            ("Peak MB", &|run| rounded(run.memory_mb)),
        ],
    )
}

fn title(kind: Kind) -> &'static str {
    match kind {
        Kind::Start => "starts",
        Kind::Stop => "stops",
    }
}

/// The receiver beside one write per event.
pub(crate) fn of_receiver(runs: &[Run]) -> Section {
    let figures = event_table(runs);
    Section {
        title: "Receiver",
        text: format!("As many events as there can be:\n\n{figures}"),
        targets: receiver_targets(runs),
    }
}

fn receiver_targets(runs: &[Run]) -> Vec<Target> {
    // A figure of Sampler, and of one write per event.
    let beside = |kind, connections, figure: fn(&Run) -> f64| {
        let of = |system| {
            let wanted = EventRun {
                system,
                kind,
                connections,
            };
            runs.iter().find(|run| run.of == wanted).map(figure)
        };
        Some([of(System::Sampler)?, of(System::OneWrite)?])
    };
    let per_second = |run: &Run| run.outcome.per_second();
    let p50 = |run: &Run| run.outcome.latencies.millis_at(0.5);
    let p99 = |run: &Run| run.outcome.latencies.millis_at(0.99);
    let mut targets = Vec::new();
    for (kind, factor) in [(Kind::Start, 4.0), (Kind::Stop, 3.0)] {
        let events = title(kind);
        targets.extend(beside(kind, 256, per_second).map(|rates| {
            let wanted = format!(
                "{events} a second with 256 connections at least {factor} times those of one write per event"
            );
            Target::at_least_times(wanted, rates, factor)
        }));
        targets.extend(beside(kind, 64, p99).map(|millis| {
            let wanted = format!(
                "99 of 100 {events} with 64 connections answered as soon as with one write per event"
            );
            Target::at_most_times(wanted, millis, 1.0)
        }));
        targets.extend(beside(kind, 1, p50).map(|millis| {
            let wanted = format!(
                "one lone connection waits no longer for its {events} than with one write per event \
                 (median; 5 % is noise)"
            );
            Target::at_most_times(wanted, millis, NOISE)
        }));
    }
    let ours = runs.iter().filter(|run| run.of.system == System::Sampler);
    targets.extend(memory("a receiver", ours.map(|run| run.memory_mb)));
    targets
}

fn memory(whose: &str, peaks: impl Iterator<Item = f64>) -> Option<Target> {
    let peak = peaks.reduce(f64::max)?;
    let wanted = format!("{whose} stays under {MEMORY_MAX} MB at full load");
    Some(Target::at_most(
        wanted,
        (peak, "MB at its peak"),
        MEMORY_MAX,
    ))
}

/// Quiet clients beside others.
fn quiet_table(runs: &[QuietRun]) -> String {
    table(
        runs,
        &[
            ("Connections of the others", &|run| {
                run.connections.to_string()
            }),
            ("Kept /s in all", &|run| grouped(run.kept_per_second)),
            ("Of the others kept, %", &|run| {
                rounded(run.others_kept_share)
            }),
            ("Of the quiet client kept, %", &|run| {
                rounded(run.kept_share)
            }),
            ("p50 ms", &|run| rounded(run.p50_ms)),
            ("p99 ms", &|run| rounded(run.p99_ms)),
            ("Ping of the database, p99 ms", &|run| {
                rounded(run.ping_p99_ms)
            }),
            ("Peak MB", &|run| rounded(run.memory_mb)),
        ],
    )
}

/// A flood and a quiet client, over the load.
pub(crate) fn of_fairness(runs: &[QuietRun]) -> Section {
    let text = format!(
        "One client sends starts over so many connections, each the next one when the last one is \
         answered, also where it is refused; a quiet one sends a hundred a second. Latencies are \
         of the quiet one's events that were kept.\n\n{}",
        quiet_table(runs)
    );
    let best = runs.iter().map(|run| run.kept_per_second);
    let best = best.fold(0.0, f64::max);
    let of_run = |run: &QuietRun| {
        let flood = format!("beside a flood over {} connections, ", run.connections);
        [
            Target::at_least(
                format!("{flood}at least 99.9 % of a quiet client's events kept"),
                (run.kept_share, "%"),
                99.9,
            ),
            Target::at_most(
                format!("{flood}99 of 100 of them answered within 250 ms"),
                (run.p99_ms, "ms"),
                250.0,
            ),
            Target::at_least_times(
                format!("{flood}at least 0.8 times the best rate kept in all"),
                [run.kept_per_second, best],
                0.8,
            ),
        ]
    };
    let floods = runs.iter().filter(|run| FLOODS.contains(&run.connections));
    Section {
        title: "A flood and a quiet client",
        text,
        targets: floods.flat_map(of_run).collect(),
    }
}

/// Batches beside single events, and a quiet client alone and beside batches by turns.
pub(crate) fn of_batches(rates: &[Run], quiet: &[QuietRun]) -> Section {
    let text = format!(
        "Times are those of a whole batch, or of a single event.\n\n{}A quiet client sends 100 single \
         events a second, alone and while others send batches without pause:\n\n{}",
        event_table(rates),
        quiet_table(quiet)
    );
    let mean = |is_beside: bool| {
        let runs = quiet
            .iter()
            .filter(|run| (run.connections > 0) == is_beside);
        let p99: Vec<f64> = runs.map(|run| run.p99_ms).collect();
        p99.iter().sum::<f64>() / p99.len().max(1) as f64
    };
    let mut targets = vec![Target::at_most_times(
        "99 of 100 events of a quiet client take at most 2 times as long beside batches",
        [mean(true), mean(false)],
        2.0,
    )];
    if let [batches, single] = rates {
        targets.push(Target::at_least_times(
            "events in batches at least 1.4 times those of single events",
            [batches.outcome.per_second(), single.outcome.per_second()],
            1.4,
        ));
    }
    Section {
        title: "Batches",
        text,
        targets,
    }
}

fn worker_table(runs: &[Sampled]) -> String {
    table(
        runs,
        &[
            ("Workers", &|run| run.workers.to_string()),
            ("Upstream answers after", &|run| {
                format!("{} ms", run.answer_ms)
            }),
            ("Intervals", &|run| grouped(run.intervals as f64)),
            ("Intervals /s", &|run| grouped(run.per_second)),
            ("Commands each", &|run| format!("{:.3}", run.commands_each)),
            ("MongoDB µs", &|run| rounded(run.server_us)),
            ("Workers µs", &|run| rounded(run.worker_us)),
            ("Peak MB of a worker", &|run| rounded(run.memory_mb)),
        ],
    )
}

/// Rates; the last row is that of catching up on so many days.
pub(crate) fn of_worker(rates: &[Sampled], catch_up: &Sampled, days: u64) -> Section {
    let all = [rates, std::slice::from_ref(catch_up)].concat();
    let text = format!(
        "More work than the workers can do, day by day. In the last row, {} spans that are {days} days \
         behind catch up hour by hour:\n\n{}",
        grouped(catch_up.spans as f64),
        worker_table(&all),
    );
    let at_once = rates.iter().filter(|run| run.answer_ms == 0);
    let best = at_once.max_by(|one, other| one.per_second.total_cmp(&other.per_second));
    let mut targets = Vec::new();
    if let Some(best) = best {
        targets.push(Target::at_least(
            "5,000 intervals a second where the upstream answers at once",
            (best.per_second, "a second"),
            5_000.0,
        ));
        targets.push(Target::at_most(
            "under load, at most one command to the database for 20 intervals",
            (best.commands_each * 20.0, "for 20"),
            1.0,
        ));
    }
    targets.extend(memory("a worker", all.iter().map(|run| run.memory_mb)));
    Section {
        title: "Worker",
        text,
        targets,
    }
}

/// All open spans due at once. `closing` is whether the month before counts as about to be closed.
pub(crate) fn of_midnight(sampled: &Sampled, closing: bool) -> Section {
    let closing = if closing { "yes" } else { "no" };
    let text = format!(
        "{} open spans due at once, until the last one is complete. Usages that were posted twice: \
         {}. The month before counts as about to be closed: {closing}.\n\n{}",
        grouped(sampled.spans as f64),
        sampled.intervals - sampled.spans,
        worker_table(std::slice::from_ref(sampled)),
    );
    Section {
        title: "Midnight on the first of a month",
        text,
        targets: memory("a worker", std::iter::once(sampled.memory_mb))
            .into_iter()
            .collect(),
    }
}

/// The first of each two is that of workers as they are, the second writes no entries.
pub(crate) fn of_ledger(rates: &[Sampled; 2], midnight: &[Sampled; 2]) -> Section {
    let text = format!(
        "Workers that have more work than they can do, day by day: as they are, and in the second row \
         without what they write to the ledger.\n\n{}A midnight of {} spans, with the ledger and \
         without:\n\n{}",
        worker_table(rates),
        grouped(midnight[0].spans as f64),
        worker_table(midnight),
    );
    let targets = vec![
        Target::at_least_times(
            "intervals a second at least 0.8 times those without the ledger",
            rates.each_ref().map(|run| run.per_second),
            0.8,
        ),
        Target::at_most(
            "with the ledger, at most one command to the database for 10 intervals",
            (rates[0].commands_each * 10.0, "for 10"),
            1.0,
        ),
        Target::at_most_times(
            "a midnight takes at most 1.25 times as long as without the ledger (s)",
            midnight.each_ref().map(|run| run.seconds),
            1.25,
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
        worker_table(rates),
    );
    let targets = vec![Target::at_least_times(
        "as CloudEvents, intervals a second at least 0.8 times those with Abacus",
        rates.each_ref().map(|run| run.per_second),
        0.8,
    )];
    Section {
        title: "Upstreams",
        text,
        targets,
    }
}

/// Each figure of another commit and of this one, and the ratios of the rounds: the one in the middle, the
/// least and the greatest.
pub(crate) fn of_against(rounds: &[[Figures; 2]]) -> Section {
    let names = rounds.first().map_or(0, |round| round[0].len());
    let places: Vec<usize> = (0..names).collect();
    let of = |build: usize, place: usize| {
        let figures = rounds.iter().filter_map(move |round| round[build][place].1);
        median(&sorted(figures)).map_or("–".to_owned(), rounded)
    };
    let ratio = |place: usize, pick: fn(&[f64]) -> Option<f64>| {
        let ratios = rounds
            .iter()
            .filter_map(|[other, own]| Some(own[place].1? / other[place].1?));
        pick(&sorted(ratios)).map_or("–".to_owned(), |ratio| format!("{ratio:.2} ×"))
    };
    let figures = table(
        &places,
        &[
            ("Figure", &|place| rounds[0][0][*place].0.to_owned()),
            ("Other commit", &|place| of(0, *place)),
            ("This commit", &|place| of(1, *place)),
            ("Ratio", &|place| ratio(*place, median)),
            ("Least", &|place| ratio(*place, |all| all.first().copied())),
            ("Greatest", &|place| {
                ratio(*place, |all| all.last().copied())
            }),
        ],
    );
    Section {
        title: "Beside another commit",
        text: format!("{} rounds by turns:\n\n{figures}", rounds.len()),
        targets: Vec::new(),
    }
}

fn sorted(numbers: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers
}

/// The median; of an even number, the mean of both in the middle.
fn median(sorted: &[f64]) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    Some(f64::midpoint(sorted[last / 2], sorted[last.div_ceil(2)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_as_far_as_they_count() {
        let shown = [0.0312, 1.5, 12.34, 123.4, 1234.5, 1_234_567.0].map(rounded);
        let expected = ["0.03", "1.50", "12.3", "123", "1,234", "1,234,567"];
        assert_eq!(shown, expected);
    }

    #[test]
    fn targets_come_first() {
        let section = Section {
            title: "Part",
            text: table(&["a"], &[("A", &|row| (*row).to_owned())]),
            targets: vec![Target::at_most("little", (7.0, "MB"), 6.0)],
        };
        assert_eq!(
            markdown("Taken now.", &[section]),
            "Taken now.\n\n## Targets\n\n| Wanted | Found |  |\n| --- | --- | --- |\n\
             | little | 7.00 MB | **no** |\n\n## Part\n\n| A |\n| --- |\n| a |\n\n"
        );
    }

    #[test]
    fn each_ratio_decides() {
        let least = |first| Target::at_least_times("", [first, 1_000.0], 4.0).reached;
        assert_eq!([3_900.0, 4_000.0].map(least), [false, true]);
        let most = |first| Target::at_most_times("", [first, 10.0], NOISE).reached;
        assert_eq!([10.5, 10.6].map(most), [true, false]);
    }

    #[test]
    fn ratios_are_those_of_rounds_and_what_a_build_cannot_do_has_none() {
        let round = |other: f64, own: f64| {
            [
                vec![("Starts", Some(other)), ("Batches", None)],
                vec![("Starts", Some(own)), ("Batches", Some(5.0))],
            ]
        };
        let text = of_against(&[round(100.0, 200.0), round(10.0, 10.0), round(1.0, 3.0)]).text;
        for row in [
            "| Starts | 10.0 | 10.0 | 2.00 × | 1.00 × | 3.00 × |",
            "| Batches | – | 5.00 | – | – | – |",
        ] {
            assert!(text.contains(row), "{text}");
        }
    }
}

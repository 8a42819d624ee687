//! Tables.

mod receiver;

use std::fmt::Write as _;

use crate::data::{Data, Growth, Memory, Midnight, Sampled, Taken, Worker};

use super::targets::targets;
use super::{grouped, rounded};

/// All figures as Markdown, with headings below `level`.
pub(crate) fn markdown(data: &Data, level: usize) -> String {
    let mut text = String::new();
    let mut section = |title: &str, taken: Option<&Taken>, body: String| {
        let signs = "#".repeat(level);
        let _ = writeln!(text, "{signs} {title}\n");
        if let Some(taken) = taken {
            text.push_str(&origin(taken));
        }
        text.push_str(&body);
    };
    section("Targets", None, of_targets(data));
    if let Some(part) = &data.receiver {
        section(
            "Receiver",
            Some(&part.taken),
            receiver::of_receiver(&part.figures),
        );
    }
    if let Some(part) = &data.worker {
        section("Worker", Some(&part.taken), of_worker(&part.figures));
    }
    if let Some(part) = &data.midnight {
        let title = "Midnight on the first of a month";
        section(title, Some(&part.taken), of_midnight(&part.figures));
    }
    if let Some(part) = &data.growth {
        let title = "With many spans in the collection";
        section(title, Some(&part.taken), of_growth(&part.figures));
    }
    if let Some(part) = &data.memory {
        let title = "Memory over many events";
        section(title, Some(&part.taken), of_memory(&part.figures));
    }
    text
}

fn origin(taken: &Taken) -> String {
    let Taken {
        at,
        commit,
        scale,
        server,
        machine,
    } = taken;
    format!("Taken {at} at commit `{commit}`, scale {scale}, MongoDB {server}, {machine}.\n\n")
}

/// A table; all columns but the first `texts` are numbers.
fn table(header: &[&str], texts: usize, rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let owned: Vec<String> = header.iter().map(|cell| (*cell).to_owned()).collect();
    let rule: Vec<String> = (0..header.len())
        .map(|column| if column < texts { "---" } else { "---:" }.to_owned())
        .collect();
    let rows: String = rows.iter().map(|row| line(row)).collect();
    format!("{}{}{rows}\n", line(&owned), line(&rule))
}

fn of_targets(data: &Data) -> String {
    let row = |target: super::targets::Target| {
        let reached = if target.reached { "reached" } else { "**no**" };
        vec![target.wanted, target.found, reached.to_owned()]
    };
    let rows: Vec<Vec<String>> = targets(data).into_iter().map(row).collect();
    table(&["Wanted", "Found", ""], 3, &rows)
}

const SAMPLED: [&str; 12] = [
    "Workers",
    "Abacus answers after",
    "Intervals",
    "Seconds",
    "Intervals /s",
    "Commands each",
    "of which reads",
    "MongoDB µs",
    "Workers µs",
    "Stand-in µs",
    "share of others",
    "Peak memory of a worker, MB",
];

fn sampled_row(run: &Sampled) -> Vec<String> {
    vec![
        run.workers.to_string(),
        format!("{} ms", run.answer_ms),
        grouped(run.intervals as f64),
        rounded(run.seconds),
        format!("**{}**", grouped(run.per_second)),
        format!("{:.3}", run.commands_each),
        format!("{:.3}", run.reads_each),
        rounded(run.server_us),
        rounded(run.worker_us),
        rounded(run.stand_in_us),
        format!("{} %", rounded(run.others_share)),
        rounded(run.memory_mb),
    ]
}

fn of_worker(figures: &Worker) -> String {
    let rows: Vec<Vec<String>> = figures.rates.iter().map(sampled_row).collect();
    let catch_up = &figures.catch_up;
    format!(
        "With more to do than can be done, day by day:\n\n{}Catching up: {} spans that are {} days \
         behind, hour by hour, until the last one is through:\n\n{}",
        table(&SAMPLED, 0, &rows),
        grouped(catch_up.spans as f64),
        figures.catch_up_days,
        table(&SAMPLED, 0, &[sampled_row(catch_up)]),
    )
}

fn of_midnight(figures: &Midnight) -> String {
    let order = if figures.closing {
        "The month before counts as about to be closed."
    } else {
        "The month before does not count as about to be closed: the run was made too late in a \
         month for that."
    };
    format!(
        "{} open spans due at once, until the last one is through: **{} s**. Usages that were \
         posted twice: {}. {order}\n\n{}",
        grouped(figures.sampled.spans as f64),
        rounded(figures.sampled.seconds),
        figures.repeats,
        table(&SAMPLED, 0, &[sampled_row(&figures.sampled)]),
    )
}

fn of_growth(rows: &[Growth]) -> String {
    let row = |growth: &Growth| {
        let [document, storage, indexes] = growth.bytes;
        vec![
            grouped(growth.spans as f64),
            grouped(growth.starts.per_second),
            rounded(growth.starts.p99_ms),
            grouped(growth.stops.per_second),
            rounded(growth.stops.p99_ms),
            format!(
                "{} / {}",
                rounded(growth.idle_look.p50_ms),
                rounded(growth.idle_look.p99_ms)
            ),
            format!(
                "{} / {}",
                rounded(growth.busy_look.p50_ms),
                rounded(growth.busy_look.p99_ms)
            ),
            grouped(growth.sampled.per_second),
            grouped(document),
            grouped(storage),
            grouped(indexes),
        ]
    };
    let rows: Vec<Vec<String>> = rows.iter().map(row).collect();
    let header = [
        "Spans",
        "Starts /s",
        "p99 ms",
        "Stops /s",
        "p99 ms",
        "Look for work, none there, p50 / p99 ms",
        "100 found, p50 / p99 ms",
        "Intervals /s, 1 worker",
        "Bytes of a document",
        "on the disk",
        "of indexes",
    ];
    table(&header, 0, &rows)
}

fn of_memory(figures: &Memory) -> String {
    let looks = figures.receiver_mb.len();
    let after = (1..=looks).map(|look| grouped(figures.events as f64 * look as f64 / looks as f64));
    let header: Vec<String> = std::iter::once("MB after".to_owned())
        .chain(after)
        .collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let row = |who: &str, memory: &[f64]| {
        let memory = memory.iter().copied().map(rounded);
        std::iter::once(who.to_owned()).chain(memory).collect()
    };
    let rows = [
        row("Receiver, starts", &figures.receiver_mb),
        row("Worker, intervals", &figures.worker_mb),
    ];
    table(&header, 1, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Part, Receiver};

    #[test]
    fn a_table_has_as_many_columns_in_each_row() {
        let rows = [vec!["a".to_owned(), "1".to_owned()]];
        let expected = "| Name | Number |\n| --- | ---: |\n| a | 1 |\n\n";
        assert_eq!(table(&["Name", "Number"], 1, &rows), expected);
    }

    #[test]
    fn memory_stands_below_the_events_after_which_it_was_read() {
        let text = of_memory(&Memory {
            events: 20_000,
            receiver_mb: vec![20.0, 21.0],
            worker_mb: vec![30.0, 31.0],
        });
        assert!(
            text.starts_with("| MB after | 10,000 | 20,000 |\n"),
            "{text}"
        );
        assert!(
            text.contains("| Worker, intervals | 30.0 | 31.0 |\n"),
            "{text}"
        );
    }

    #[test]
    fn says_where_figures_come_from() {
        let taken = Taken {
            at: "2026-01-01 00:00 UTC".to_owned(),
            commit: "abc".to_owned(),
            scale: "quick".to_owned(),
            server: "6.0".to_owned(),
            machine: "2 processors".to_owned(),
        };
        let receiver = Part {
            taken,
            figures: Receiver::default(),
        };
        let data = Data {
            receiver: Some(receiver),
            ..Data::default()
        };
        let text = markdown(&data, 3);
        assert!(text.starts_with("### Targets\n\n"), "{text}");
        assert!(text.contains("commit `abc`, scale quick, MongoDB 6.0, 2 processors"));
    }
}

//! Tables.

mod receiver;

use std::fmt::Write as _;

use crate::data::{Data, Growth, Ledger, Memory, Midnight, Part, Poll, Sampled, Taken, Worker};

use super::batches::of_batches;
use super::fairness::of_fairness;
use super::reading::of_reading;
use super::targets::targets;
use super::{grouped, rounded};

/// All figures as Markdown, with headings below `level`.
pub(crate) fn markdown(data: &Data, level: usize) -> String {
    let receiver = data.receiver.as_ref();
    let sections = [
        Some(("Targets", None, of_targets(data))),
        section("Receiver", receiver, receiver::of_receiver),
        section(
            "A flood and a quiet client",
            data.fairness.as_ref(),
            of_fairness,
        ),
        section("Batches", data.batches.as_ref(), of_batches),
        section("Sums beside starts", data.reading.as_ref(), of_reading),
        section("Worker", data.worker.as_ref(), of_worker),
        section(
            "Midnight on the first of a month",
            data.midnight.as_ref(),
            of_midnight,
        ),
        section(
            "With many spans in the collection",
            data.growth.as_ref(),
            |rows| of_growth(rows),
        ),
        section("The ledger", data.ledger.as_ref(), of_ledger),
        section("Memory over many events", data.memory.as_ref(), of_memory),
    ];
    let mut text = String::new();
    for (title, taken, body) in sections.into_iter().flatten() {
        let origin = taken.map_or(String::new(), origin);
        let _ = write!(text, "{} {title}\n\n{origin}{body}", "#".repeat(level));
    }
    text
}

/// A title, where the figures come from, and what is told of them.
type Section<'a> = (&'static str, Option<&'a Taken>, String);

fn section<'a, T>(
    title: &'static str,
    part: Option<&'a Part<T>>,
    body: impl Fn(&T) -> String,
) -> Option<Section<'a>> {
    let part = part?;
    Some((title, Some(&part.taken), body(&part.figures)))
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
pub(super) fn table(header: &[&str], texts: usize, rows: &[Vec<String>]) -> String {
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

fn sampled<'a>(runs: impl IntoIterator<Item = &'a Sampled>) -> String {
    let header = [
        "Workers",
        "Abacus answers after",
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

/// The last row is that of catching up.
fn of_worker(figures: &Worker) -> String {
    let catch_up = &figures.catch_up;
    format!(
        "More work than the workers can do, day by day. In the last row, {} spans that are {} days \
         behind catch up hour by hour:\n\n{}",
        grouped(catch_up.spans as f64),
        figures.catch_up_days,
        sampled(figures.rates.iter().chain([catch_up])),
    )
}

fn of_midnight(figures: &Midnight) -> String {
    let closing = if figures.closing { "yes" } else { "no" };
    format!(
        "{} open spans due at once, until the last one is complete. Usages that were posted twice: \
         {}. The month before counts as about to be closed: {closing}.\n\n{}",
        grouped(figures.sampled.spans as f64),
        figures.repeats,
        sampled([&figures.sampled]),
    )
}

fn of_growth(rows: &[Growth]) -> String {
    let poll = |poll: &Poll| format!("{} / {}", rounded(poll.p50_ms), rounded(poll.p99_ms));
    let row = |growth: &Growth| {
        let [document, storage, indexes] = growth.bytes;
        vec![
            grouped(growth.spans as f64),
            grouped(growth.starts.per_second),
            rounded(growth.starts.p99_ms),
            grouped(growth.stops.per_second),
            rounded(growth.stops.p99_ms),
            poll(&growth.idle_poll),
            poll(&growth.busy_poll),
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
        "Poll for work, none due, p50 / p99 ms",
        "100 due, p50 / p99 ms",
        "Intervals /s, 1 worker",
        "Bytes of a document",
        "on the disk",
        "of indexes",
    ];
    table(&header, 0, &rows)
}

/// The first row is that of workers as they are.
fn of_ledger(figures: &Ledger) -> String {
    let [document, storage, indexes] = figures.bytes.map(grouped);
    let midnight = figures.midnight.iter().map(|runs| {
        format!(
            "A midnight of {} spans, with the ledger and without:\n\n{}",
            grouped(runs[0].spans as f64),
            sampled(runs)
        )
    });
    let midnight: String = midnight.collect();
    format!(
        "Workers that have more work than they can do, day by day: as they are, and in the second row \
         without what they write to the ledger.\n\n{}{midnight}{} entries, {} of them of one span: an entry takes \
         {document} bytes as it is sent, {storage} on the disk and {indexes} of indexes. {} were written a \
         second. A page of 1,000 entries of that span takes {} ms (median; 99 of 100 pages: {} ms).\n\n",
        sampled([&figures.with, &figures.without]),
        grouped(figures.entries as f64),
        grouped(figures.of_span as f64),
        grouped(figures.written_per_second),
        rounded(figures.page.p50_ms),
        rounded(figures.page.p99_ms),
    )
}

fn of_memory(figures: &Memory) -> String {
    let samples = figures.receiver_mb.len();
    let after =
        (1..=samples).map(|number| grouped(figures.events as f64 * number as f64 / samples as f64));
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

    #[test]
    fn says_where_figures_come_from() {
        let taken = Taken {
            at: "2026-01-01 00:00 UTC".to_owned(),
            commit: "abc".to_owned(),
            scale: "quick".to_owned(),
            server: "6.0".to_owned(),
            machine: "2 processors".to_owned(),
        };
        let figures = Memory {
            events: 20_000,
            receiver_mb: vec![20.0, 21.0],
            worker_mb: vec![30.0, 31.0],
        };
        let data = Data {
            memory: Some(Part { taken, figures }),
            ..Data::default()
        };
        let text = markdown(&data, 3);
        assert!(
            text.starts_with("### Targets\n\n| Wanted | Found |  |\n"),
            "{text}"
        );
        let memory = "### Memory over many events\n\nTaken 2026-01-01 00:00 UTC at commit `abc`, \
                      scale quick, MongoDB 6.0, 2 processors.\n\n\
                      | MB after | 10,000 | 20,000 |\n| --- | ---: | ---: |\n\
                      | Receiver, starts | 20.0 | 21.0 |\n| Worker, intervals | 30.0 | 31.0 |\n\n";
        assert!(text.ends_with(memory), "{text}");
    }
}

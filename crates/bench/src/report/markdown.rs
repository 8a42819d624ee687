//! Tables.

use std::fmt::Write as _;

use crate::data::{Data, Growth, Memory, Midnight, Receiver, Run, Sampled, System, Taken, Worker};
use crate::event::Mix;

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
        section("Receiver", Some(&part.taken), of_receiver(&part.figures));
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

fn of_receiver(figures: &Receiver) -> String {
    let mut text = String::new();
    for mix in Mix::ALL {
        let runs: Vec<&Run> = figures.closed.iter().filter(|run| run.mix == mix).collect();
        if runs.is_empty() {
            continue;
        }
        let _ = writeln!(text, "**{}**, as many as there can be:\n", title(mix));
        let connections = |run: &Run| run.connections.to_string();
        text.push_str(&rates(("Connections", 0), connections, &runs));
        text.push_str(&limits(&runs));
    }
    if let Some(run) = figures.followed.first() {
        let _ = writeln!(
            text,
            "**{}, while somebody reads the server's log**, as the other members of a set do all \
             the time:\n",
            match run.connections {
                1 => "One after the other".to_owned(),
                connections => format!("Over {connections} connections"),
            }
        );
        let runs: Vec<&Run> = figures.followed.iter().collect();
        let mix = |run: &Run| title(run.mix).to_owned();
        text.push_str(&rates(("Events", 1), mix, &runs));
    }
    if !figures.closed.is_empty() {
        text.push_str("**What an event costs**, processor time in µs:\n\n");
        text.push_str(&costs(&figures.closed));
    }
    if !figures.open.is_empty() {
        text.push_str(
            "**So many a second**, each latency from the moment at which the event was to be \
             sent:\n\n",
        );
        text.push_str(&offered(&figures.open));
    }
    text
}

fn title(mix: Mix) -> &'static str {
    match mix {
        Mix::Starts => "Starts",
        Mix::Stops => "Stops",
        Mix::Both => "As many starts as stops",
    }
}

fn system_name(system: System) -> &'static str {
    match system {
        System::Sampler => "Sampler",
        System::OneWriteHttp => "one write per event, HTTP",
        System::OneWrite => "one write per event, driver alone",
        System::Ceiling => "batches, driver alone",
        System::HttpAlone => "HTTP that writes nothing",
    }
}

fn latencies(run: &Run) -> String {
    let Run {
        p50_ms,
        p99_ms,
        p999_ms,
        ..
    } = run;
    format!(
        "{} / {} / {}",
        rounded(*p50_ms),
        rounded(*p99_ms),
        rounded(*p999_ms)
    )
}

/// One row for each of Sampler's runs, with all systems side by side. The first column says which it
/// is; beside its name stands how many columns of texts that makes.
fn rates((name, texts): (&str, usize), which: impl Fn(&Run) -> String, runs: &[&Run]) -> String {
    let of = |system, beside: &Run| {
        let key = |run: &Run| (run.mix, run.connections);
        let mut runs = runs.iter();
        runs.find(|run| run.system == system && key(run) == key(beside))
    };
    let mut rows = Vec::new();
    for ours in runs.iter().filter(|run| run.system == System::Sampler) {
        let mut row = vec![
            which(ours),
            format!("**{}**", grouped(ours.per_second)),
            latencies(ours),
        ];
        for system in [System::OneWriteHttp, System::OneWrite] {
            let other = of(system, ours);
            row.push(other.map_or(String::new(), |run| grouped(run.per_second)));
            row.push(other.map_or(String::new(), |run| latencies(run)));
        }
        let http = of(System::OneWriteHttp, ours);
        let ratio = http.map(|http| ours.per_second / http.per_second);
        row.push(ratio.map_or(String::new(), |ratio| format!("{} ×", rounded(ratio))));
        rows.push(row);
    }
    let header = [
        name,
        "Sampler /s",
        "p50 / p99 / p99.9 ms",
        "One write, HTTP /s",
        "p50 / p99 / p99.9 ms",
        "One write, driver alone /s",
        "p50 / p99 / p99.9 ms",
        "Sampler against HTTP",
    ];
    table(&header, texts, &rows)
}

/// What the server and the HTTP layer take, each by itself, and what both allow together.
fn limits(runs: &[&Run]) -> String {
    let of = |system| runs.iter().find(|run| run.system == system);
    let Some(ceiling) = of(System::Ceiling) else {
        return String::new();
    };
    let mut text = format!(
        "The server's ceiling, in batches of 64 with {} in flight and without HTTP: **{}** a \
         second.",
        ceiling.connections,
        grouped(ceiling.per_second)
    );
    let ours = |http: &Run| {
        let mut runs = runs.iter();
        runs.find(|run| run.system == System::Sampler && run.connections == http.connections)
    };
    if let Some(http) = of(System::HttpAlone)
        && let Some(ours) = ours(http)
    {
        let together = 1.0 / (1.0 / ceiling.per_second + 1.0 / http.per_second);
        let _ = write!(
            text,
            " HTTP alone, over {} connections, with nothing written: **{}** a second. Who had \
             nothing to do but the one and the other for each start, on the same processors, would \
             take **{}** a second, which is {} % of the ceiling; Sampler takes {} % of that.",
            http.connections,
            grouped(http.per_second),
            grouped(together),
            rounded(100.0 * together / ceiling.per_second),
            rounded(100.0 * ours.per_second / together),
        );
    }
    text + "\n\n"
}

fn costs(runs: &[Run]) -> String {
    let row = |run: &Run| {
        let text = |number: Option<f64>| number.map_or(String::new(), rounded);
        vec![
            title(run.mix).to_owned(),
            system_name(run.system).to_owned(),
            run.connections.to_string(),
            rounded(run.server_us),
            text(run.program_us),
            rounded(run.generator_us),
            format!("{} %", rounded(run.generator_share)),
            format!("{} %", rounded(run.others_share)),
            text(run.memory_mb),
        ]
    };
    let rows: Vec<Vec<String>> = runs.iter().map(row).collect();
    let header = [
        "Events",
        "Who",
        "Connections",
        "MongoDB",
        "Program",
        "Load generator",
        "its share of the machine",
        "share of others",
        "Peak memory of the program, MB",
    ];
    table(&header, 2, &rows)
}

fn offered(runs: &[Run]) -> String {
    let row = |run: &Run| {
        vec![
            title(run.mix).to_owned(),
            system_name(run.system).to_owned(),
            run.connections.to_string(),
            run.offered_per_second.map_or(String::new(), grouped),
            grouped(run.per_second),
            rounded(run.p50_ms),
            rounded(run.p99_ms),
            rounded(run.p999_ms),
            rounded(run.longest_ms),
            format!("{} %", rounded(run.others_share)),
        ]
    };
    let rows: Vec<Vec<String>> = runs.iter().map(row).collect();
    let header = [
        "Events",
        "Who",
        "Connections",
        "Sent /s",
        "Answered /s",
        "p50 ms",
        "p99 ms",
        "p99.9 ms",
        "Slowest ms",
        "share of others",
    ];
    table(&header, 2, &rows)
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
    use crate::data::Part;
    use crate::report::targets::tests::run;

    #[test]
    fn a_table_has_as_many_columns_in_each_row() {
        let rows = [vec!["a".to_owned(), "1".to_owned()]];
        let expected = "| Name | Number |\n| --- | ---: |\n| a | 1 |\n\n";
        assert_eq!(table(&["Name", "Number"], 1, &rows), expected);
    }

    #[test]
    fn systems_stand_side_by_side() {
        let closed = vec![
            run(System::Sampler, Mix::Starts, 64, 10_000.0),
            run(System::OneWriteHttp, Mix::Starts, 64, 4_000.0),
            run(System::OneWrite, Mix::Starts, 64, 5_000.0),
            run(System::Ceiling, Mix::Starts, 4, 30_000.0),
            run(System::HttpAlone, Mix::Starts, 64, 60_000.0),
        ];
        let followed = vec![
            run(System::Sampler, Mix::Stops, 1, 1_000.0),
            run(System::OneWriteHttp, Mix::Stops, 1, 500.0),
        ];
        let text = of_receiver(&Receiver {
            closed,
            open: Vec::new(),
            followed,
        });
        let row = "| 64 | **10,000** | 0.10 / 0.30 / 0.50 | 4,000 | 0.25 / 0.75 / 1.25 | 5,000 | \
                   0.20 / 0.60 / 1.00 | 2.50 × |";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("**30,000** a second"), "{text}");
        // A thirty-thousandth and a sixty-thousandth of a second are a twenty-thousandth.
        let both =
            "**20,000** a second, which is 66.7 % of the ceiling; Sampler takes 50.0 % of that.";
        assert!(text.contains(both), "{text}");
        let followed = "| Stops | **1,000** | 1.00 / 3.00 / 5.00 | 500 | 2.00 / 6.00 / 10.0 |  |  | \
                        2.00 × |";
        assert!(text.contains(followed), "{text}");
        for table in text.split("\n\n").filter(|part| part.starts_with('|')) {
            let mut columns = table.lines().map(|line| line.matches('|').count());
            let first = columns.next();
            assert!(columns.all(|count| Some(count) == first), "{table}");
        }
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

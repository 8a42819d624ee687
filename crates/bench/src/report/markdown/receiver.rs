//! Tables of the receiver.

use std::fmt::Write as _;

use super::table;
use crate::data::{Receiver, Run, System};
use crate::event::Mix;
use crate::report::{grouped, rounded};

/// Rates beside those of what the receiver is compared with, and what each event costs.
pub(super) fn of_receiver(figures: &Receiver) -> String {
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
        text.push_str(&without_look(&runs));
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
        text.push_str(&without_look(&runs));
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
        System::Overlapping => "Sampler that looks for no previous spans",
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

/// The run of another system that stands beside this one: of the same events and connections.
fn beside<'a>(run: &Run, system: System, runs: &[&'a Run]) -> Option<&'a Run> {
    let key = (system, run.mix, run.connections);
    let mut runs = runs.iter().copied();
    runs.find(|run| (run.system, run.mix, run.connections) == key)
}

/// One row for each of Sampler's runs, with all systems side by side. The first column says which it
/// is; beside its name stands how many columns of texts that makes.
fn rates((name, texts): (&str, usize), which: impl Fn(&Run) -> String, runs: &[&Run]) -> String {
    let mut rows = Vec::new();
    for ours in runs.iter().filter(|run| run.system == System::Sampler) {
        let mut row = vec![
            which(ours),
            format!("**{}**", grouped(ours.per_second)),
            latencies(ours),
        ];
        for system in [System::OneWriteHttp, System::OneWrite] {
            let other = beside(ours, system, runs);
            row.push(other.map_or(String::new(), |run| grouped(run.per_second)));
            row.push(other.map_or(String::new(), latencies));
        }
        let http = beside(ours, System::OneWriteHttp, runs);
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
    if let Some(http) = of(System::HttpAlone)
        && let Some(ours) = beside(http, System::Sampler, runs)
    {
        let together = 1.0 / (1.0 / ceiling.per_second + 1.0 / http.per_second);
        let _ = write!(
            text,
            " HTTP alone, over {} connections, with nothing written: **{}** a second. A server that \
             did just the one and the other for each start, on the same processors, would \
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

/// What Sampler takes that looks for no previous spans, as what it is compared with looks for none.
fn without_look(runs: &[&Run]) -> String {
    let of = |system| runs.iter().find(|run| run.system == system);
    let Some(ours) = of(System::Overlapping) else {
        return String::new();
    };
    let Some(http) = beside(ours, System::OneWriteHttp, runs) else {
        return String::new();
    };
    let share = of(System::Ceiling).map_or(String::new(), |ceiling| {
        let share = 100.0 * ours.per_second / ceiling.per_second;
        format!(" It is {} % of the ceiling.", rounded(share))
    });
    format!(
        "Sampler that looks for no previous spans (`SAMPLER_ALLOW_OVERLAP`), as what it is \
         compared with looks for none: **{}** starts a second over {}, half of them answered \
         within {} ms. That is {} times one write per event behind HTTP, where it is {} ms.{share}\
         \n\n",
        grouped(ours.per_second),
        match ours.connections {
            1 => "one connection".to_owned(),
            connections => format!("{connections} connections"),
        },
        rounded(ours.p50_ms),
        rounded(ours.per_second / http.per_second),
        rounded(http.p50_ms),
    )
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::targets::tests::run;

    #[test]
    fn systems_stand_side_by_side() {
        let closed = vec![
            run(System::Sampler, Mix::Starts, 64, 10_000.0),
            run(System::OneWriteHttp, Mix::Starts, 64, 4_000.0),
            run(System::OneWrite, Mix::Starts, 64, 5_000.0),
            run(System::Ceiling, Mix::Starts, 4, 30_000.0),
            run(System::HttpAlone, Mix::Starts, 64, 60_000.0),
            run(System::Overlapping, Mix::Starts, 64, 12_000.0),
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
        let without = "**12,000** starts a second over 64 connections, half of them answered within \
                       0.08 ms. That is 3.00 times one write per event behind HTTP, where it is \
                       0.25 ms. It is 40.0 % of the ceiling.";
        assert!(text.contains(without), "{text}");
        let followed = "| Stops | **1,000** | 1.00 / 3.00 / 5.00 | 500 | 2.00 / 6.00 / 10.0 |  |  | \
                        2.00 × |";
        assert!(text.contains(followed), "{text}");
        for table in text.split("\n\n").filter(|part| part.starts_with('|')) {
            let mut columns = table.lines().map(|line| line.matches('|').count());
            let first = columns.next();
            assert!(columns.all(|count| Some(count) == first), "{table}");
        }
    }
}

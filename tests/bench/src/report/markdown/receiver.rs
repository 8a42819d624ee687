//! Tables of the receiver.

use super::table;
use crate::data::{Receiver, Run, System, find};
use crate::event::Mix;
use crate::report::{grouped, rounded};

/// Rates beside those of what the receiver is compared with, what an event costs, and latencies at
/// a given rate; of starts and of stops. Mixed loads are in the data alone.
pub(super) fn of_receiver(figures: &Receiver) -> String {
    let with_ceiling = figures
        .closed
        .iter()
        .find(|run| run.system == System::HttpAlone);
    let with_ceiling = with_ceiling.map(|run| run.connections);
    let costs = figures
        .closed
        .iter()
        .filter(|run| run.system == System::Ceiling || Some(run.connections) == with_ceiling);
    format!(
        "As many events as there can be. The last rows are taken while another program follows the \
         server's log, as the other members of a replica set do:\n\n{}Cost of an event, processor \
         time in µs:\n\n{}Events at a fixed rate. Each latency begins at the moment for which the \
         event was planned:\n\n{}",
        rates(figures),
        each(costs),
        each(&figures.open),
    )
}

fn is_shown(run: &Run) -> bool {
    run.mix != Mix::Both
}

fn title(mix: Mix) -> &'static str {
    match mix {
        Mix::Starts => "Starts",
        Mix::Stops => "Stops",
        Mix::Both => "Both by turns",
    }
}

fn system_name(system: System) -> &'static str {
    match system {
        System::Sampler => "Sampler",
        System::Overlapping => "Sampler with `SAMPLER_ALLOW_OVERLAP`",
        System::Batched => "Sampler, batches",
        System::OneWriteHttp => "one write per event, HTTP",
        System::OneWrite => "one write per event, driver alone",
        System::Ceiling => "batches, driver alone",
        System::Store => "the store alone",
        System::HttpAlone => "HTTP that writes nothing",
    }
}

fn latencies(run: &Run) -> String {
    format!("{} / {}", rounded(run.p50_ms), rounded(run.p99_ms))
}

/// One row for each of Sampler's runs, with all systems side by side.
fn rates(figures: &Receiver) -> String {
    let mut rows = Vec::new();
    for (runs, followed) in [(&figures.closed, ""), (&figures.followed, ", log followed")] {
        let ours = runs.iter().filter(|run| run.system == System::Sampler);
        for ours in ours.filter(|run| is_shown(run)) {
            let mut row = vec![
                format!("{}{followed}", title(ours.mix)),
                ours.connections.to_string(),
            ];
            for system in [System::Sampler, System::OneWriteHttp] {
                let run = find(runs, system, ours.mix, ours.connections);
                row.push(run.map_or(String::new(), |run| grouped(run.per_second)));
                row.push(run.map_or(String::new(), latencies));
            }
            let http = find(runs, System::OneWriteHttp, ours.mix, ours.connections);
            let times = |http: &Run| format!("{} ×", rounded(ours.per_second / http.per_second));
            row.push(http.map_or(String::new(), times));
            let share = |most: &Run| 100.0 * ours.per_second / most.per_second;
            let ceiling = figures.ceiling(ours.mix).map(share);
            row.push(ceiling.map_or(String::new(), |share| format!("{} %", rounded(share))));
            rows.push(row);
        }
    }
    let header = [
        "Events",
        "Connections",
        "Sampler /s",
        "p50 / p99 ms",
        "One write, HTTP /s",
        "p50 / p99 ms",
        "Sampler against HTTP",
        "Sampler against batches",
    ];
    table(&header, 1, &rows)
}

/// One row for each run, by itself.
fn each<'a>(runs: impl IntoIterator<Item = &'a Run>) -> String {
    let row = |run: &Run| {
        let number = |number: Option<f64>| number.map_or(String::new(), rounded);
        vec![
            title(run.mix).to_owned(),
            system_name(run.system).to_owned(),
            grouped(run.per_second),
            latencies(run),
            rounded(run.server_us),
            number(run.program_us),
            rounded(run.generator_us),
            number(run.memory_mb),
        ]
    };
    let rows: Vec<Vec<String>> = runs
        .into_iter()
        .filter(|run| is_shown(run))
        .map(row)
        .collect();
    let header = [
        "Events",
        "System",
        "Answered /s",
        "p50 / p99 ms",
        "MongoDB",
        "Program",
        "Load",
        "Peak MB",
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
        for row in [
            "| Starts | 64 | 10,000 | 0.10 / 0.30 | 4,000 | 0.25 / 0.75 | 2.50 × | 33.3 % |",
            "| Stops, log followed | 1 | 1,000 | 1.00 / 3.00 | 500 | 2.00 / 6.00 | 2.00 × |  |",
            "| Starts | HTTP that writes nothing | 60,000 |",
        ] {
            assert!(text.contains(row), "{row} is missing in\n{text}");
        }
        for table in text.split("\n\n").filter(|part| part.starts_with('|')) {
            let mut columns = table.lines().map(|line| line.matches('|').count());
            let first = columns.next();
            assert!(columns.all(|count| Some(count) == first), "{table}");
        }
    }
}

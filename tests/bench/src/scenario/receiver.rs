//! The receiver, beside what it is compared with.

use anyhow::Result;

use super::events::EventRun;
use super::least_disturbed;
use crate::baseline::ceiling::IN_FLIGHT;
use crate::data::{Receiver, Run, System, find};
use crate::event::Mix;
use crate::mongo::Server;
use crate::scale::Scale;

/// Connections of the runs at a given rate, unless fewer are measured.
const OPEN_CONNECTIONS: usize = 64;
/// Connections of the runs beside which the ceiling is measured, unless fewer are.
const CEILING_CONNECTIONS: usize = 256;
/// What part of the most that there can be is sent then.
const OPEN_SHARE: f64 = 0.5;

/// What stands side by side.
const SYSTEMS: [System; 3] = [System::Sampler, System::OneWriteHttp, System::OneWrite];

/// Runs everything.
pub(crate) async fn run(server: &Server, scale: &Scale) -> Result<Receiver> {
    let mut figures = Receiver::default();
    for mix in scale.mixes.iter().copied() {
        eprintln!("  {mix:?}, as many as there can be");
        let beside_ceiling = nearest(scale, CEILING_CONNECTIONS);
        for connections in scale.connections.iter().copied() {
            let run = |system| event_run(scale, system, mix, connections, None);
            let mut runs = SYSTEMS.map(run).to_vec();
            if connections == beside_ceiling {
                runs.push(event_run(scale, System::Ceiling, mix, IN_FLIGHT, None));
                if mix == Mix::Starts {
                    runs.extend([System::Overlapping, System::HttpAlone].map(run));
                }
            }
            figures.closed.extend(rounds(server, scale, &runs).await?);
        }
    }
    let reader = server.read_log().await?;
    for mix in scale.mixes.iter().copied() {
        eprintln!("  {mix:?}, over the fewest connections, while the log is read");
        let run = |system| event_run(scale, system, mix, scale.fewest_connections(), None);
        let mut runs = SYSTEMS.map(run).to_vec();
        if mix == Mix::Starts {
            runs.push(run(System::Overlapping));
        }
        figures.followed.extend(rounds(server, scale, &runs).await?);
    }
    reader.stop()?;
    for mix in scale.mixes.iter().copied() {
        eprintln!("  {mix:?}, so many a second");
        let runs = open_runs(scale, &figures.closed, mix);
        for run in runs {
            figures.open.push(try_run(server, scale, run).await?);
        }
    }
    Ok(figures)
}

/// Half of what the simplest server can take, to both; and half of what the receiver can take.
fn open_runs(scale: &Scale, closed: &[Run], mix: Mix) -> Vec<EventRun> {
    let connections = nearest(scale, OPEN_CONNECTIONS);
    let half_of = |system| {
        let run = find(closed, system, mix, connections)?;
        Some(run.per_second * OPEN_SHARE)
    };
    let runs = [
        (System::OneWriteHttp, System::OneWriteHttp),
        (System::Sampler, System::OneWriteHttp),
        (System::Sampler, System::Sampler),
    ];
    let run = |(system, rate_of)| {
        let rate = half_of(rate_of)?;
        Some(event_run(scale, system, mix, connections, Some(rate)))
    };
    runs.into_iter().filter_map(run).collect()
}

/// This many connections, if that is measured, or else the most that are.
fn nearest(scale: &Scale, wanted: usize) -> usize {
    if scale.connections.contains(&wanted) {
        wanted
    } else {
        scale.most_connections()
    }
}

fn event_run(
    scale: &Scale,
    system: System,
    mix: Mix,
    connections: usize,
    per_second: Option<f64>,
) -> EventRun {
    EventRun {
        system,
        mix,
        connections,
        batch: 1,
        per_second,
        timing: scale.timing,
    }
}

/// Makes the runs by turns, some times over, so that whatever else the machine does, and however
/// fast it is just then, meets all alike. Of each, the one in the middle counts.
async fn rounds(server: &Server, scale: &Scale, runs: &[EventRun]) -> Result<Vec<Run>> {
    let mut found = vec![Vec::new(); runs.len()];
    for _ in 0..scale.rounds {
        for (run, found) in runs.iter().zip(&mut found) {
            found.push(try_run(server, scale, *run).await?);
        }
    }
    Ok(found.into_iter().filter_map(median).collect())
}

/// The run in the middle, by its rate; of two, the lesser.
pub(super) fn median(mut runs: Vec<Run>) -> Option<Run> {
    runs.sort_by(|one, other| one.per_second.total_cmp(&other.per_second));
    let middle = runs.len().checked_sub(1)? / 2;
    Some(runs.swap_remove(middle))
}

async fn try_run(server: &Server, scale: &Scale, run: EventRun) -> Result<Run> {
    least_disturbed(scale.again, || run.alone(server), |run| run.others_share).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::targets::tests::run as of_rate;

    #[test]
    fn the_run_in_the_middle_counts() {
        let of = |rates: &[f64]| {
            let runs = rates
                .iter()
                .map(|rate| of_rate(System::Sampler, Mix::Starts, 64, *rate));
            median(runs.collect()).map(|run| run.per_second)
        };
        assert_eq!(of(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(of(&[2.0, 1.0]), Some(1.0));
        assert_eq!(of(&[]), None);
    }
}

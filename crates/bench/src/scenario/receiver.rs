//! The receiver, beside what it is compared with.

use anyhow::Result;

use super::events::EventRun;
use super::least_disturbed;
use crate::baseline::ceiling::IN_FLIGHT;
use crate::data::{Receiver, Run, System};
use crate::event::Mix;
use crate::mongo::Server;
use crate::scale::Scale;

/// Connections of the runs at a given rate, unless fewer are measured.
const OPEN_CONNECTIONS: usize = 64;
/// What part of the most that there can be is sent then.
const OPEN_SHARE: f64 = 0.5;

/// Runs everything.
pub(crate) async fn run(server: &Server, scale: &Scale) -> Result<Receiver> {
    let mut figures = Receiver::default();
    for mix in scale.mixes.iter().copied() {
        eprintln!("  {mix:?}, as many as there can be");
        // Side by side in time, so that whatever else the machine does meets all alike.
        for connections in &scale.connections {
            for system in [System::Sampler, System::OneWriteHttp, System::OneWrite] {
                let run = event_run(scale, system, mix, *connections, None);
                figures.closed.push(try_run(server, scale, run).await?);
            }
        }
        let run = event_run(scale, System::Ceiling, mix, IN_FLIGHT, None);
        figures.closed.push(try_run(server, scale, run).await?);
    }
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
    let most = scale.connections.iter().copied().max().unwrap_or(1);
    let connections = if scale.connections.contains(&OPEN_CONNECTIONS) {
        OPEN_CONNECTIONS
    } else {
        most
    };
    let half_of = |system| {
        let run = closed
            .iter()
            .find(|run| (run.system, run.mix, run.connections) == (system, mix, connections))?;
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
        per_second,
        timing: scale.timing,
    }
}

async fn try_run(server: &Server, scale: &Scale, run: EventRun) -> Result<Run> {
    least_disturbed(scale.again, || run.alone(server), |run| run.others_share).await
}

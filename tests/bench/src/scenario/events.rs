//! As many events as there can be: the receiver beside one write per event, and batches beside single
//! events.

use anyhow::Result;
use sampler_testkit::build::Kind;
use sampler_testkit::now_millis;

use crate::event::{DAY, Feed, Requests, Times};
use crate::load::{Outcome, Sender, Timing, measure, on_own_thread};
use crate::mongo::Server;
use crate::process::{WatchedProcesses, peak_memory_mb};
use crate::programs::{self, Build};
use crate::report::{Section, of_receiver};
use crate::scale::Scale;

/// Spans that nothing is done with, so that the indexes are not empty.
const BASE: u64 = 2_000;
/// More stops a second than any system takes over one connection, or in all.
const STOPS_EACH: u64 = 3_000;
const STOPS_ALL: u64 = 15_000;
/// The same for those that write once for each event.
const STOPS_ONE_WRITE: u64 = 5_000;

/// Who takes events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum System {
    /// The receiver.
    Sampler,
    /// The receiver, which is sent batches of so many.
    Batched(usize),
    /// One write per event, behind the simplest HTTP handler.
    OneWrite,
}

/// A run of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventRun {
    pub(crate) system: System,
    pub(crate) kind: Kind,
    pub(crate) connections: usize,
}

/// A run, and what came of it.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) of: EventRun,
    pub(crate) outcome: Outcome,
    /// The most memory that the program had at a time, MB.
    pub(crate) memory_mb: f64,
}

/// Runs everything.
pub(crate) async fn run(server: &Server, scale: &Scale) -> Result<Section> {
    let mut runs = Vec::new();
    for kind in [Kind::Start, Kind::Stop] {
        eprintln!("  {kind:?}, as many as there can be");
        for connections in scale.connections.iter().copied() {
            let side_by_side = [System::Sampler, System::OneWrite].map(|system| EventRun {
                system,
                kind,
                connections,
            });
            runs.extend(rounds(server, scale, &side_by_side).await?);
        }
    }
    Ok(of_receiver(&runs))
}

impl EventRun {
    /// Runs on a database of its own.
    async fn alone(&self, server: &Server, timing: Timing) -> Result<Run> {
        let spans = server.spans().await?;
        let times = Times::beginning(now_millis());
        let open = self.stops(timing);
        let moments = |number| {
            let start = times.start_of(number);
            (start, (start.div_euclid(DAY) + 1) * DAY)
        };
        spans.load_open(0..BASE + open, moments).await?;
        let program = match self.system {
            System::Sampler | System::Batched(_) => {
                programs::receiver(Build::Own, &spans.uri).await?
            }
            System::OneWrite => programs::one_write(&spans.uri).await?,
        };
        server.settle().await?;
        let feed = match self.kind {
            Kind::Start => Feed::new(Kind::Start, BASE, u64::MAX),
            Kind::Stop => Feed::new(Kind::Stop, BASE, open),
        };
        let watch = WatchedProcesses::of(server, &[&program]);
        let batch = match self.system {
            System::Batched(batch) => Some(batch),
            System::Sampler | System::OneWrite => None,
        };
        let requests = Requests::new(program.address(), times);
        let sent = send((self.connections, batch), requests, feed, (timing, watch));
        let run = Run {
            of: *self,
            outcome: sent.await?,
            memory_mb: peak_memory_mb(program.pid())?,
        };
        program.kill()?;
        spans.drop().await?;
        eprintln!("    {:?}: {}", run.of, run.outcome);
        Ok(run)
    }

    /// How many open spans there must be to stop.
    fn stops(&self, timing: Timing) -> u64 {
        let seconds = timing.warm_up + timing.measured;
        let most = match (self.kind, self.system) {
            (Kind::Start, _) => 0,
            (Kind::Stop, System::OneWrite) => STOPS_ONE_WRITE,
            (Kind::Stop, _) => STOPS_ALL,
        };
        most.min(STOPS_EACH * self.connections as u64) * seconds.as_secs().max(1)
    }
}

/// Has events sent over so many connections, alone or in batches.
pub(super) async fn send(
    (connections, batch): (usize, Option<usize>),
    requests: Requests,
    feed: Feed,
    (timing, watch): (Timing, WatchedProcesses),
) -> Result<Outcome> {
    on_own_thread(move || async move {
        let senders = Sender::open(connections, batch, requests).await?;
        measure(senders, feed, timing, watch).await
    })
    .await
}

/// Makes the runs by turns, some times over, so that whatever else the machine does, and however
/// fast it is just then, meets all alike. Of each, the one in the middle counts.
pub(super) async fn rounds(server: &Server, scale: &Scale, runs: &[EventRun]) -> Result<Vec<Run>> {
    let mut found = vec![Vec::new(); runs.len()];
    for _ in 0..scale.rounds {
        for (run, found) in runs.iter().zip(&mut found) {
            found.push(run.alone(server, scale.timing).await?);
        }
    }
    let rate = |run: &Run| run.outcome.per_second();
    Ok(found
        .into_iter()
        .filter_map(|it| middle(it, rate))
        .collect())
}

/// The one in the middle, by a figure; of two, the lesser.
pub(super) fn middle<T>(mut all: Vec<T>, figure: impl Fn(&T) -> f64) -> Option<T> {
    all.sort_by(|one, other| figure(one).total_cmp(&figure(other)));
    let middle = all.len().checked_sub(1)? / 2;
    Some(all.swap_remove(middle))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_run_in_the_middle_counts() {
        let of = |rates: &[f64]| middle(rates.to_vec(), |rate| *rate);
        assert_eq!(of(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(of(&[2.0, 1.0]), Some(1.0));
        assert_eq!(of(&[]), None);
    }
}

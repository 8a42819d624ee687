//! One run of events against one of the systems.

use std::sync::Arc;

use anyhow::Result;
use sampler_testkit::now_millis;

use super::least_disturbed;
use crate::data::{Run, System};
use crate::event::{Feed, Mix, Times};
use crate::load::http::{BatchSender, HttpSender};
use crate::load::{Outcome, Sender, Timing, closed, on_own_thread};
use crate::mongo::Server;
use crate::process::{WatchedProcesses, peak_memory_mb};
use crate::programs;
use crate::scale::Scale;

/// Spans that nothing is done with, so that the indexes are not empty.
const BASE: u64 = 2_000;
/// More stops a second than any system takes over one connection, or in all.
const STOPS_EACH: u64 = 3_000;
const STOPS_ALL: u64 = 15_000;
/// The same for those that write once for each event.
const STOPS_ONE_WRITE: u64 = 5_000;

#[derive(Clone, Copy, Debug)]
pub(crate) struct EventRun {
    pub(crate) system: System,
    pub(crate) mix: Mix,
    pub(crate) connections: usize,
    /// How many are in a batch, where they come in batches.
    pub(crate) batch: usize,
    pub(crate) timing: Timing,
}

impl EventRun {
    /// Runs on a database of its own.
    pub(crate) async fn alone(&self, server: &Server) -> Result<Run> {
        let spans = server.spans().await?;
        let times = Times::beginning(now_millis());
        spans
            .load_open(0..BASE, |number| times.values(number))
            .await?;
        let open = self.stops();
        let values = |number| times.values(number);
        spans.load_open(BASE..BASE + open, values).await?;
        let program = match self.system {
            System::Sampler | System::Batched => programs::receiver(&spans.uri).await?,
            System::OneWrite => programs::one_write(&spans.uri).await?,
        };
        server.settle().await?;
        let feed = Feed::new(self.mix, BASE + open, BASE, open);
        let watch = WatchedProcesses {
            server: Some(server.pid),
            programs: vec![program.pid()],
        };
        let outcome = self.load(program.address(), feed, times, watch).await?;
        let memory = peak_memory_mb(program.pid())?;
        program.kill()?;
        spans.drop().await?;
        let run = Run::new((self.system, self.mix, self.connections), &outcome, memory);
        show(&run);
        Ok(run)
    }

    async fn load(
        &self,
        address: &str,
        feed: Feed,
        times: Times,
        watch: WatchedProcesses,
    ) -> Result<Outcome> {
        let (run, address) = (*self, address.to_owned());
        on_own_thread(move || async move {
            if run.system == System::Batched {
                let senders =
                    BatchSender::open(&address, run.connections, run.batch, times).await?;
                return run.send(senders, feed, watch).await;
            }
            let senders = HttpSender::open(&address, run.connections, times).await?;
            run.send(senders, feed, watch).await
        })
        .await
    }

    async fn send<S: Sender>(
        &self,
        senders: Vec<S>,
        feed: Feed,
        watch: WatchedProcesses,
    ) -> Result<Outcome> {
        closed::run(senders, Arc::new(feed), self.timing, watch).await
    }

    /// How many open spans there must be to stop.
    fn stops(&self) -> u64 {
        let seconds = self.timing.warm_up + self.timing.measured;
        let most = match (self.mix, self.system) {
            (Mix::Starts, _) => 0,
            (Mix::Stops, System::OneWrite) => STOPS_ONE_WRITE,
            (Mix::Stops, _) => STOPS_ALL,
        };
        most.min(STOPS_EACH * self.connections as u64) * seconds.as_secs().max(1)
    }
}

fn show(run: &Run) {
    eprintln!(
        "    {:?} {:?}, {} connections: {:.0} a second, p50 {:.2} p99 {:.2} ms; \
         server {:.0}, program {:.0}, generator {:.0} µs each; others {:.0} %",
        run.system,
        run.mix,
        run.connections,
        run.per_second,
        run.p50_ms,
        run.p99_ms,
        run.server_us,
        run.program_us,
        run.generator_us,
        run.others_share,
    );
}

/// Makes the runs by turns, some times over, so that whatever else the machine does, and however
/// fast it is just then, meets all alike. Of each, the one in the middle counts.
pub(crate) async fn rounds(server: &Server, scale: &Scale, runs: &[EventRun]) -> Result<Vec<Run>> {
    let mut found = vec![Vec::new(); runs.len()];
    for _ in 0..scale.rounds {
        for (run, found) in runs.iter().zip(&mut found) {
            let run = least_disturbed(scale.again, || run.alone(server), |run| run.others_share);
            found.push(run.await?);
        }
    }
    Ok(found.into_iter().filter_map(median).collect())
}

/// The run in the middle, by its rate; of two, the lesser.
fn median(mut runs: Vec<Run>) -> Option<Run> {
    runs.sort_by(|one, other| one.per_second.total_cmp(&other.per_second));
    let middle = runs.len().checked_sub(1)? / 2;
    Some(runs.swap_remove(middle))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::receiver::tests::run as of_rate;

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

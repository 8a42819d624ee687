//! One run of events against one of the systems.

use std::sync::Arc;

use anyhow::Result;
use sampler_testkit::{Program, now_millis};

use crate::baseline::ceiling::Batches;
use crate::baseline::one_write::OneWrite;
use crate::baseline::store::StoreCalls;
use crate::data::{Run, System};
use crate::event::{Feed, Mix, Times};
use crate::load::http::{BatchSender, HttpSender};
use crate::load::{Outcome, Sender, Timing, closed, on_own_thread, open};
use crate::mongo::{Server, Spans};
use crate::process::{WatchedProcesses, peak_memory_mb};
use crate::programs;

/// Spans that nothing is done with, so that the indexes are not empty.
const BASE: u64 = 2_000;
/// More stops a second than any system takes over one connection, or in all.
const STOPS_EACH: u64 = 3_000;
const STOPS_ALL: u64 = 15_000;
/// The same for those that write once for each event.
const STOPS_ONE_WRITE: u64 = 5_000;

/// A run of events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventRun {
    pub(crate) system: System,
    pub(crate) mix: Mix,
    pub(crate) connections: usize,
    /// How many are in a batch, where they come in batches.
    pub(crate) batch: usize,
    /// How many a second; as many as there can be, unless given.
    pub(crate) per_second: Option<f64>,
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
        let run = self.on(server, &spans, times, BASE).await?;
        spans.drop().await?;
        Ok(run)
    }

    /// Runs on a database that is there; the numbers from `first` on are not used yet.
    pub(crate) async fn on(
        &self,
        server: &Server,
        spans: &Spans,
        times: Times,
        first: u64,
    ) -> Result<Run> {
        let open = self.stops();
        let values = |number| times.values(number);
        spans.load_open(first..first + open, values).await?;
        let program = match self.system {
            System::Sampler | System::Batched => Some(programs::receiver(&spans.uri).await?),
            System::Overlapping => Some(programs::overlapping_receiver(&spans.uri).await?),
            System::OneWriteHttp => Some(programs::one_write(&spans.uri).await?),
            System::HttpAlone => Some(programs::http_alone().await?),
            System::OneWrite | System::Ceiling | System::Store => None,
        };
        server.settle().await?;
        let feed = Feed::new(self.mix, first + open, first, open);
        let watch = WatchedProcesses {
            server: Some(server.pid),
            programs: program.iter().map(Program::pid).collect(),
        };
        let outcome = self
            .load(spans, program.as_ref(), feed, times, watch)
            .await?;
        let memory = match &program {
            Some(program) => Some(peak_memory_mb(program.pid())?),
            None => None,
        };
        if let Some(program) = program {
            program.kill()?;
        }
        let what = (self.system, self.mix, self.connections);
        let run = Run::new(what, self.per_second, &outcome, memory);
        self.show(&run);
        Ok(run)
    }

    async fn load(
        &self,
        spans: &Spans,
        program: Option<&Program>,
        feed: Feed,
        times: Times,
        watch: WatchedProcesses,
    ) -> Result<Outcome> {
        let run = *self;
        if let Some(program) = program {
            let address = program.address().to_owned();
            return on_own_thread(move || async move {
                if run.system == System::Batched {
                    let senders =
                        BatchSender::open(&address, run.connections, run.batch, times).await?;
                    return run.send(senders, feed, watch).await;
                }
                let senders = HttpSender::open(&address, run.connections, times).await?;
                run.send(senders, feed, watch).await
            })
            .await;
        }
        if self.system == System::Ceiling {
            let senders = Batches::senders(spans, self.mix, times).await?;
            return self.send(senders, feed, watch).await;
        }
        if self.system == System::Store {
            let senders = StoreCalls::senders(spans, self.batch, times)?;
            return self.send(senders, feed, watch).await;
        }
        let senders = OneWrite::senders(spans, self.connections, times).await?;
        self.send(senders, feed, watch).await
    }

    async fn send<S: Sender>(
        &self,
        senders: Vec<S>,
        feed: Feed,
        watch: WatchedProcesses,
    ) -> Result<Outcome> {
        match self.per_second {
            Some(rate) => open::run(senders, feed, rate, self.timing, watch).await,
            None => closed::run(senders, Arc::new(feed), self.timing, watch).await,
        }
    }

    /// How many open spans there must be to stop.
    fn stops(&self) -> u64 {
        let seconds = self.timing.warm_up + self.timing.measured;
        let most = match (self.per_second, self.system) {
            (Some(rate), _) => return self.mix.stops_of(open::events_of(rate, self.timing)),
            (None, System::Ceiling) => STOPS_ALL,
            (None, System::Sampler) => STOPS_ALL.min(STOPS_EACH * self.connections as u64),
            (None, _) => STOPS_ONE_WRITE.min(STOPS_EACH * self.connections as u64),
        };
        self.mix.stops_of(most * seconds.as_secs().max(1))
    }

    fn show(&self, run: &Run) {
        let offered = match self.per_second {
            Some(rate) => format!(" of {rate:.0}"),
            None => String::new(),
        };
        eprintln!(
            "    {:?} {:?}, {} connections: {:.0}{offered} a second, p50 {} p99 {} p99.9 {} ms; \
             server {}, program {}, generator {} µs each; others {} %",
            run.system,
            run.mix,
            run.connections,
            run.per_second,
            run.p50_ms,
            run.p99_ms,
            run.p999_ms,
            run.server_us,
            run.program_us.unwrap_or_default(),
            run.generator_us,
            run.others_share,
        );
    }
}

//! One run, from its beginning to the moment when everything is complete.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::{Arc, Once};

use sampler_domain::{READ_VALID_FOR, Timestamp};
use tokio::runtime::Builder;
use tokio_util::task::TaskTracker;

use super::generate::operations;
use super::mutant::Mutant;
use super::op::{Action, Clocked, Event, Kind, Op, Process, Sending, Way};
use super::operator::Act;
use super::process::Node;
use super::provider::send;
use super::setup::Setup;
use super::world::{Counts, World, target_number};

/// The outcome of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// All violations; empty if there are none.
    pub violations: Vec<String>,
    /// The log, where one was asked for.
    pub log: Vec<String>,
    pub counts: Counts,
}

pub fn run(seed: u64, mutant: Mutant) -> Outcome {
    let setup = Setup::new(seed, mutant);
    let ops = operations(&setup);
    run_operations(setup, ops, false)
}

/// Runs a seed and keeps the log.
pub fn run_with_log(seed: u64, mutant: Mutant) -> Outcome {
    let setup = Setup::new(seed, mutant);
    let ops = operations(&setup);
    run_operations(setup, ops, true)
}

/// Runs a list of operations.
pub(crate) fn run_operations(setup: Setup, ops: Vec<Op>, with_log: bool) -> Outcome {
    let (outcome, panics) = catch_panics(|| {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime of one thread needs nothing");
        runtime.block_on(async {
            let world = Arc::new(World::new(setup, with_log));
            Run::new(world).play(ops).await
        })
    });
    let mut outcome = outcome.unwrap_or_default();
    let panics = panics.into_iter().map(|panic| format!("panic: {panic}"));
    outcome.violations.extend(panics);
    outcome
}

struct Run {
    world: Arc<World>,
    receivers: Vec<Arc<Node>>,
    workers: Vec<Arc<Node>>,
    providers: TaskTracker,
}

impl Run {
    fn new(world: Arc<World>) -> Self {
        let node = |process| Node::new(&world, process);
        let receivers = (0..world.setup.receivers)
            .map(Process::Receiver)
            .map(node)
            .collect();
        let workers = (0..world.setup.workers)
            .map(Process::Worker)
            .map(node)
            .collect();
        Self {
            world,
            receivers,
            workers,
            providers: TaskTracker::new(),
        }
    }

    async fn play(mut self, ops: Vec<Op>) -> Outcome {
        let acting = tokio::spawn(act(Arc::clone(&self.world), self.receivers.clone()));
        for op in ops {
            self.world.until(op.at).await;
            self.world.log("op", || op.to_string());
            self.apply(op.act);
        }
        self.finish().await;
        acting.abort();
        let spans = self.world.check();
        self.world.verify().await;
        self.world.add("spans", spans as u64);
        let usages = self.world.books.counted().len();
        self.world.add("usages", usages as u64);
        let (violations, log) = self.world.findings();
        let counts = self.world.counts();
        Outcome {
            violations,
            log,
            counts,
        }
    }

    fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.receivers.iter().chain(&self.workers)
    }

    fn apply(&mut self, act: Action) {
        match act {
            Action::Send(sending) => self.send(sending),
            Action::Receiver(number, fault) => self.receivers[number].inject(fault),
            Action::Worker(number, fault) => self.workers[number].inject(fault),
            Action::Clock(Clocked::Database, error) => self.world.set_database_clock(error),
            Action::Clock(Clocked::Worker(number), error) => self.workers[number].set_clock(error),
            Action::Store(conditions) => self.world.set_store(conditions),
            Action::Upstream(conditions) => self.world.set_upstream(conditions),
            Action::Operator(seed) => self.world.operate(seed),
            Action::BadStop(seed) => {
                if let Some(event) = self.world.stop_at_a_bad_place(seed) {
                    self.send(Sending {
                        seed,
                        events: vec![event],
                        way: Way::OneByOne,
                        ordered: false,
                        retried: true,
                        must_succeed: false,
                        timeout: 10_000,
                    });
                }
            }
        }
    }

    fn send(&self, sending: Sending) {
        let (world, receivers) = (Arc::clone(&self.world), self.receivers.clone());
        self.providers.spawn(send(world, receivers, sending));
    }

    /// Ends all faults, stops open spans, and waits until all is done.
    async fn finish(&mut self) {
        let scale = self.world.setup.scale;
        self.world.until(scale.horizon).await;
        self.world.end_faults();
        self.nodes().for_each(|node| node.heal());
        self.await_providers().await;
        // Commands under way reach the store.
        self.world.sleep(4 * scale.tick).await;
        self.await_slack().await;
        let ends = self.stop_all();
        self.await_providers().await;
        self.await_completion(ends).await;
        self.world.sleep(5 * scale.tick).await;
        self.nodes().for_each(|node| node.stop());
        self.world.sleep(4 * scale.tick).await;
        if !self.nodes().all(|node| node.is_at_rest()) {
            self.world
                .report_violation("a worker that was told to stop has not ended".to_owned());
        }
    }

    /// Waits until all spans are complete, and operators have had sent again what does not count. Nobody resumes
    /// what is suspended: probes do that.
    async fn await_completion(&self, ends: Timestamp) {
        let (setup, world) = (&self.world.setup, &self.world);
        let scale = setup.scale;
        // The longest possible wait: a retry, a partition that moves to another worker, the grace, a plan for what
        // is not over yet.
        let mut limit = 40 * scale.tick + 4 * setup.heartbeat() + 4 * scale.length + READ_VALID_FOR;
        if let Some(memory) = setup.memory {
            limit +=
                20 * (2 * memory.told.post_timeout + memory.told.settles) + memory.told.horizon;
        }
        let mut deadline = ends.since(setup.base) + limit;
        let mut entries = 0;
        while !self.is_done() {
            // A span that was reported late has tens of thousands of intervals.
            let written = world.truth.facts().entries.len();
            if written > entries {
                entries = written;
                deadline = deadline.max(world.elapsed() + limit);
            }
            if world.elapsed() >= deadline {
                world.report_violation("not all spans get complete".to_owned());
                return;
            }
            self.send_all_again();
            world.sleep(scale.tick).await;
        }
    }

    /// Whether all spans are complete, and nothing that is known not to count is left.
    fn is_done(&self) -> bool {
        let kept = self.world.store.all().into_iter().map(|kept| kept.span);
        let is_whole = |span: sampler_domain::Span| span.processing.excluded.is_empty();
        let is_watched = self.world.knows_of_set_aside();
        self.world.truth.all_complete() && !is_watched && kept.into_iter().all(is_whole)
    }

    fn send_all_again(&self) {
        let world = &self.world;
        let kept = world.store.all().into_iter().map(|kept| kept.span);
        for span in kept.filter(|span| !span.processing.excluded.is_empty()) {
            world.acts.add(Act::resend(&span));
        }
        for usage in world.missing() {
            world.acts.add(Act::resend_missing(&usage));
        }
    }

    /// Waits until all events have their final answer, now that nothing fails any more.
    async fn await_providers(&self) {
        self.providers.close();
        let mut ticks_left = 100;
        while !self.providers.is_empty() {
            if ticks_left == 0 {
                self.world
                    .report_violation("an event was never answered".to_owned());
                return;
            }
            ticks_left -= 1;
            self.world.sleep(self.world.setup.scale.tick).await;
        }
        self.providers.reopen();
    }

    /// Waits until a stop of each open span is within the slack: a receiver whose clock was ahead has taken
    /// starts that are not.
    async fn await_slack(&self) {
        let spans = self.world.store.all().into_iter().map(|kept| kept.span);
        let open = spans.filter(|span| span.end.is_none());
        let within = self.world.now().plus(self.world.setup.slack.future);
        let ahead = open.map(|span| span.start.since(within)).max();
        self.world.sleep(ahead.unwrap_or(0).max(0)).await;
    }

    /// Stops open spans; returns when the last one ends.
    fn stop_all(&self) -> Timestamp {
        let now = self.world.now();
        let mut last = now;
        let kept = self.world.store.all();
        for (number, span) in kept.into_iter().map(|kept| kept.span).enumerate() {
            last = last.max(span.end.unwrap_or(now)).max(span.start);
            let planned = span.processing.planned.as_ref();
            last = last.max(planned.map_or(now, |planned| planned.interval.end));
            if span.end.is_some() {
                continue;
            }
            let event = Event {
                kind: Kind::Stop,
                id: Some(format!("last-{number}")),
                timestamp: now.max(span.start),
                target: target_number(&span.target),
                measures: 0,
                broken: false,
            };
            self.send(Sending {
                seed: number as u64,
                events: vec![event],
                way: Way::OneByOne,
                ordered: true,
                retried: true,
                must_succeed: true,
                timeout: 10_000,
            });
        }
        last
    }
}

/// Sends what operators do, each action to a receiver.
async fn act(world: Arc<World>, receivers: Vec<Arc<Node>>) {
    let mut turn = 0;
    loop {
        let act = world.acts.next().await;
        turn += 1;
        let receiver = Arc::clone(&receivers[turn % receivers.len()]);
        tokio::spawn(act.send(Arc::clone(&world), receiver));
    }
}

thread_local! {
    /// Panics of this thread, while they are caught.
    static CAUGHT: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Runs a function; returns its result, if it has one, and all panics in it.
fn catch_panics<T>(run: impl FnOnce() -> T) -> (Option<T>, Vec<String>) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous = take_hook();
        set_hook(Box::new(move |info| {
            let noted = CAUGHT.with_borrow_mut(|caught| {
                let noted = caught.as_mut().map(|list| list.push(info.to_string()));
                noted.is_some()
            });
            if !noted {
                previous(info);
            }
        }));
    });
    CAUGHT.set(Some(Vec::new()));
    let result = catch_unwind(AssertUnwindSafe(run));
    let caught = CAUGHT.take().unwrap_or_default();
    (result.ok(), caught)
}

//! One run, from its beginning to the moment when everything is complete.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sampler_domain::{SKIP_DELAY, Timestamp};
use tokio::runtime::Builder;
use tokio_util::task::TaskTracker;

use super::generate::operations;
use super::mutant::Mutant;
use super::op::{Action, Event, Kind, Op, Process, Sending, Way};
use super::panics::catch_panics;
use super::process::Node;
use super::provider::send;
use super::setup::Setup;
use super::world::{World, target_number};

/// The outcome of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// All violations; empty if there are none.
    pub violations: Vec<String>,
    /// The log, where one was asked for.
    pub log: Vec<String>,
    /// Counts of what happened.
    pub stats: Stats,
}

/// Counts of what happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    pub spans: u64,
    /// Their length in all, ms.
    pub span_millis: u64,
    /// Usages that counted.
    pub usages: u64,
    /// Posts of usages.
    pub posts: u64,
    /// Questions for usages.
    pub finds: u64,
    /// Calls of the store.
    pub calls: u64,
    /// Requests of providers.
    pub requests: u64,
    /// Processes that crashed.
    pub crashes: u64,
    /// Usages that counted for a month that had ended, and was not closed.
    pub closing: u64,
    /// Usages for a month that was closed before they could be delivered.
    pub excused: u64,
    /// Pieces that take back what never counted, and were not posted.
    pub withheld: u64,
    /// Those of them that counted later, once the usage did that they take back.
    pub released: u64,
    /// How often Abacus set a usage aside that it had accepted.
    pub set_aside: u64,
    /// How often the ledger learnt that of a usage that had been set aside before, and sent again.
    pub set_aside_again: u64,
    /// Usages that counted while the ledger said that they do not, because the answer to a post was lost.
    pub lost_answers: u64,
    /// The same, because a process died before it noted the answer.
    pub deaths: u64,
    /// The same, because the database failed on the note of the answer.
    pub lost_notes: u64,
    /// The same, because a second post came after the usage was set aside.
    pub second_posts: u64,
}

impl Stats {
    /// Adds those of another run.
    pub fn add(&mut self, other: &Self) {
        self.spans += other.spans;
        self.span_millis += other.span_millis;
        self.usages += other.usages;
        self.posts += other.posts;
        self.finds += other.finds;
        self.calls += other.calls;
        self.requests += other.requests;
        self.crashes += other.crashes;
        self.closing += other.closing;
        self.excused += other.excused;
        self.withheld += other.withheld;
        self.released += other.released;
        self.set_aside += other.set_aside;
        self.set_aside_again += other.set_aside_again;
        self.lost_answers += other.lost_answers;
        self.deaths += other.deaths;
        self.lost_notes += other.lost_notes;
        self.second_posts += other.second_posts;
    }
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
        self.revive_before_the_close();
        for op in ops {
            self.world.until(op.at).await;
            self.world.log("op", || op.to_string());
            self.apply(op.act);
        }
        self.finish().await;
        let span_millis = self.world.check();
        let (violations, log) = self.world.findings();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let tally = &self.world.tally;
        let (withheld, released) = self.world.count_withheld();
        let stats = Stats {
            withheld,
            released,
            spans: self.world.truth.facts().sums.len() as u64,
            span_millis: span_millis.unsigned_abs(),
            usages: self.world.abacus.counted().len() as u64,
            posts: count(&tally.posts),
            finds: count(&tally.finds),
            calls: count(&tally.calls),
            requests: count(&tally.requests),
            crashes: count(&tally.crashes),
            closing: count(&tally.closing),
            excused: count(&tally.excused),
            set_aside: count(&tally.set_aside),
            set_aside_again: count(&tally.set_aside_again),
            lost_answers: count(&tally.lost_answers),
            deaths: count(&tally.deaths),
            lost_notes: count(&tally.lost_notes),
            second_posts: count(&tally.second_posts),
        };
        Outcome {
            violations,
            log,
            stats,
        }
    }

    /// When a month is about to be closed, all processes run.
    fn revive_before_the_close(&self) {
        let Some(closing) = self.world.setup.closing else {
            return;
        };
        let world = Arc::clone(&self.world);
        let nodes: Vec<Arc<Node>> = self.nodes().cloned().collect();
        tokio::spawn(async move {
            world
                .until(closing.quiet_from().since(world.setup.base))
                .await;
            world.log("op", || "few faults until the month is closed".to_owned());
            for node in nodes {
                node.revive();
            }
        });
    }

    fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.receivers.iter().chain(&self.workers)
    }

    fn apply(&mut self, act: Action) {
        match act {
            Action::Send(sending) => self.send(sending),
            Action::Receiver(number, fault) => self.receivers[number].inject(fault),
            Action::Worker(number, fault) => self.workers[number].inject(fault),
            Action::Clock(Process::Receiver(number), error) => {
                self.receivers[number].set_clock(error);
            }
            Action::Clock(Process::Worker(number), error) => self.workers[number].set_clock(error),
            Action::Store(conditions) => self.world.set_store(conditions),
            Action::Abacus(conditions) => self.world.set_abacus(conditions),
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

    /// Ends all faults, stops open spans, and waits until all spans are complete.
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
        // The longest possible wait: a retry, a skip, a partition that moves to another worker, the
        // grace, a plan that a fast clock has made ahead.
        let mut limit = 40 * scale.tick + 4 * self.world.setup.heartbeat() + 4 * scale.length;
        if self.world.setup.has_operator {
            limit += 2 * SKIP_DELAY;
        }
        if let Some(memory) = self.world.setup.memory {
            limit +=
                20 * (2 * memory.told.post_timeout + memory.told.settles) + memory.told.horizon;
        }
        let mut deadline = ends.since(self.world.setup.base) + limit;
        let mut entries = 0;
        while !self.world.truth.all_complete() {
            // A span that was reported late has tens of thousands of intervals.
            let written = self.world.truth.facts().entries.len();
            if written > entries {
                entries = written;
                deadline = deadline.max(self.world.elapsed() + limit);
            }
            if self.world.elapsed() >= deadline {
                self.world
                    .report_violation("not all spans get complete".to_owned());
                break;
            }
            self.world.sleep(scale.tick).await;
        }
        self.await_resends().await;
        self.world.sleep(5 * scale.tick).await;
        self.nodes().for_each(|node| node.stop());
        self.world.sleep(4 * scale.tick).await;
        if !self.nodes().all(|node| node.is_at_rest()) {
            self.world
                .report_violation("a worker that was told to stop has not ended".to_owned());
        }
    }

    /// Waits until what counts is no longer skipped or set aside, and no usage is to be sent again or asked
    /// for.
    async fn await_resends(&self) {
        let step = self.world.setup.scale.tick.max(SKIP_DELAY);
        // Where it is asked first, a resend waits until the post before has settled.
        let memory = self.world.setup.memory.map(|memory| memory.told);
        let waits = memory.map_or(0, |it| 12 * (2 * it.post_timeout + it.settles) / step);
        for round in 0..60 + waits.unsigned_abs() {
            if self.world.resend_what_counts(round) {
                return;
            }
            self.world.sleep(step).await;
        }
        self.world
            .report_violation("a resend is never done".to_owned());
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

//! A run from beginning to end: start everything, inject faults, wait until all spans are complete,
//! check.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sampler_testkit::abacus::{Options as AbacusOptions, StandInAbacus};
use sampler_testkit::{now_millis, target_dir};
use tokio::task::{JoinHandle, JoinSet};

use crate::bill;
use crate::client::Client;
use crate::cluster::Cluster;
use crate::fleet::Fleet;
use crate::inject::System;
use crate::journal::{Journal, Report};
use crate::observer::{Backlog, Observer};
use crate::operator::Operator;
use crate::schedule::{Lane, Planned};
use crate::sender::Sender;

/// How long after the faults clients go on asking for a definite answer.
const ANSWER_LIMIT: Duration = Duration::from_mins(2);
/// How long after the faults it may take until all spans are complete.
const QUIET_LIMIT: Duration = Duration::from_mins(10);
/// How long there may be no progress before the run gives up.
/// The upstream is asked for a usage five minutes after the usage was accepted.
const STALL_LIMIT: Duration = Duration::from_mins(6);
/// How many operators act.
const OPERATORS: usize = 2;
/// How often ended programs are restarted, and spans counted.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How often the state is told, in such intervals.
const TOLD_EVERY: u32 = 20;

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// What the faults and the events follow from.
    pub seed: u64,
    /// How long there are faults.
    pub length: Duration,
    /// How many clients send events at once.
    pub clients: usize,
}

/// What all tasks of a run share.
struct Run {
    system: System,
    observer: Observer,
    journal: Arc<Journal>,
    backlog: Arc<Backlog>,
}

/// Runs, and judges.
pub async fn run(options: Options) -> Result<Report> {
    let folder = new_folder(options.seed);
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let journal = Arc::new(Journal::new());
    let title = format!(
        "seed {}, {} s of faults, {} clients",
        options.seed,
        options.length.as_secs(),
        options.clients
    );
    journal.say(&format!("{title}, files in {}", folder.display()));
    let run = Arc::new(Run::start(&folder, Arc::clone(&journal)).await?);
    let watching = run.watch();
    let loaded = run.load(&options).await;
    let settled = match loaded {
        Ok(()) => run.settle(&options).await,
        Err(error) => Err(error),
    };
    watching.abort();
    // Then it holds no reference to the run.
    let _ = watching.await;
    settled?;
    let run = Arc::into_inner(run).context("the run is still used")?;
    let System {
        cluster,
        fleet,
        abacus,
    } = run.system;
    bill::check(&journal, &abacus, &fleet.receivers.get(0), &folder).await?;
    fleet.stop_all().await?;
    let report = journal.report(title, folder);
    // With mistakes, the database stays for inspection.
    cluster.stop(!report.is_right()).await?;
    Ok(report)
}

fn new_folder(seed: u64) -> PathBuf {
    let name = format!("{}-seed-{seed}", now_millis() / 1_000);
    target_dir().join("chaos").join(name)
}

impl Run {
    async fn start(folder: &Path, journal: Arc<Journal>) -> Result<Self> {
        journal.say("starting three servers");
        let cluster = Cluster::start(&folder.join("mongod")).await?;
        let uri = cluster.uri();
        let abacus = StandInAbacus::start(AbacusOptions::default()).await?;
        journal.say("starting the programs");
        let fleet = Fleet::start(&uri, &abacus.base_url(), folder, Arc::clone(&journal)).await?;
        let observer = Observer::new(&uri).await?;
        let system = System {
            cluster,
            fleet,
            abacus,
        };
        Ok(Self {
            system,
            observer,
            journal,
            backlog: Arc::default(),
        })
    }

    /// Counts spans, restarts programs that have ended, and tells, until it is aborted.
    fn watch(self: &Arc<Self>) -> JoinHandle<()> {
        let run = Arc::clone(self);
        tokio::spawn(async move {
            for round in 0_u32.. {
                if let Ok(stopped) = run.observer.stopped().await {
                    run.backlog.set(stopped);
                }
                if let Err(error) = run.system.fleet.restart_ended().await {
                    run.journal.error(&format!("{error:#}"));
                }
                if round.is_multiple_of(TOLD_EVERY) {
                    let usages = run.system.abacus.counted_count();
                    let stopped = run.backlog.stopped();
                    run.journal
                        .draw(&format!("usages {usages}, to complete {stopped}"));
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        })
    }

    /// Events and faults, until the time is over and each event has its answer.
    async fn load(self: &Arc<Self>, options: &Options) -> Result<()> {
        let began = Instant::now();
        let until = began + options.length;
        let receivers = &self.system.fleet.receivers;
        let (sender, backlog) = (
            Sender::new(
                Arc::clone(receivers),
                Arc::clone(&self.journal),
                until + ANSWER_LIMIT,
            )?,
            &self.backlog,
        );
        let sender = Arc::new(sender);
        let mut tasks = JoinSet::new();
        for number in 0..options.clients {
            let (sender, backlog) = (Arc::clone(&sender), Arc::clone(backlog));
            let client = Client::new(number, options.seed, sender, backlog);
            tasks.spawn(client.run(until));
        }
        for number in 0..OPERATORS {
            let operator = self.operator(number, options)?;
            tasks.spawn(operator.run(until));
        }
        let lanes = Lane::ALL.map(|lane| {
            let plan = lane.plan(options.seed, options.length);
            self.clone().run_lane(plan, began, until)
        });
        futures_util::future::join_all(lanes).await;
        self.journal.say("no more faults");
        self.system.heal().await?;
        tasks.join_all().await;
        Ok(())
    }

    fn operator(&self, number: usize, options: &Options) -> Result<Operator> {
        let receivers = Arc::clone(&self.system.fleet.receivers);
        Operator::new(number, options.seed, receivers, Arc::clone(&self.journal))
    }

    async fn run_lane(self: Arc<Self>, plan: Vec<Planned>, began: Instant, until: Instant) {
        for planned in plan {
            tokio::time::sleep_until((began + planned.at).into()).await;
            let begins = Instant::now();
            if begins >= until {
                return;
            }
            let text = format!("{:?}", planned.fault);
            self.journal.say(&text);
            self.journal.fault_begins(planned.fault.kind());
            let ends = (begins + planned.lasts).min(until);
            if let Err(error) = self.system.inject(planned.fault, ends).await {
                // The fault may have met the remains of another one: both are removed.
                self.journal.say(&format!("{text} failed: {error:#}"));
                if let Err(error) = self.system.heal().await {
                    self.journal.say(&format!("healing failed: {error:#}"));
                }
            }
        }
    }

    /// Has all be sent again that was skipped or set aside, and waits until no span has anything left to do, or
    /// nothing moves any more.
    async fn settle(&self, options: &Options) -> Result<()> {
        let mut operator = self.operator(OPERATORS, options)?;
        let began = Instant::now();
        let (mut before, mut moved_at) = (None, began);
        while began.elapsed() < QUIET_LIMIT && moved_at.elapsed() < STALL_LIMIT {
            tokio::time::sleep(POLL_INTERVAL).await;
            let Ok(left) = self.observer.left().await else {
                continue;
            };
            let set_aside = bill::set_aside(&self.system.abacus).len();
            if left.is_nothing() && set_aside == 0 {
                return Ok(());
            }
            operator.mend(&left).await;
            let now = Some((left, set_aside, self.system.abacus.counted_count()));
            if now != before {
                (before, moved_at) = (now, Instant::now());
            }
        }
        self.journal
            .mistake(format!("nothing moves any more: {before:?}"));
        Ok(())
    }
}

//! A run from beginning to end: start everything, inject faults, wait until all spans are complete,
//! check.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sampler_testkit::abacus::{Dates, Options as AbacusOptions, StandInAbacus};
use sampler_testkit::mongod::find;
use sampler_testkit::rng::Rng;
use sampler_testkit::{now_millis, target_dir};
use serde_json::Value;
use tokio::task::{JoinHandle, JoinSet};

use crate::api::Api;
use crate::check::{Rule, check};
use crate::client::Client;
use crate::cluster::Cluster;
use crate::event::RESOURCE;
use crate::evidence::{self, Evidence, HISTORY};
use crate::fleet::Fleet;
use crate::history::{FaultRecord, History, Record};
use crate::inject::System;
use crate::observer::Observer;
use crate::operator::{Operator, resend_one};
use crate::report::Report;
use crate::schedule::{Lane, Planned};
use crate::sender::Sender;
use crate::stats::Stats;
use crate::view::View;

/// How long after the faults clients go on asking for a definite answer.
const ANSWER_LIMIT: Duration = Duration::from_mins(2);
/// How long after the faults it may take until all spans are complete.
const QUIET_LIMIT: Duration = Duration::from_mins(10);
/// How long there may be no progress before the run gives up.
const STALL_LIMIT: Duration = Duration::from_secs(90);
/// How often open spans are read again and stopped: an event that was given up may have been under
/// way still.
const CLOSING_ROUNDS: usize = 5;
/// How long the operators look for a usage to send again, where none was.
const RESEND_LIMIT: Duration = Duration::from_secs(30);
/// How many operators act.
const OPERATORS: usize = 2;
/// How many times as fast as the machine's Abacus's clock runs, and the workers' time with it: a skip
/// waits for five minutes of it. No program is frozen for as long as such a skip takes by the machine's.
const CLOCK_TIMES: i64 = 8;
/// How long after the faults Abacus's clock stays so, until it is right.
const FAST_AFTER: Duration = Duration::from_mins(3);
/// How long before the end of the faults nothing more is skipped, so that the end need not wait for it.
const LAST_SKIPS: Duration = Duration::from_secs(40);
/// How often ended programs are restarted, and spans counted.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

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
    history: Arc<History>,
    stats: Arc<Stats>,
    view: Arc<View>,
    api: Arc<Api>,
    /// How far Abacus's clock was behind that of the machine in the beginning, ms.
    behind: i64,
}

/// Runs, and judges.
pub async fn run(options: Options) -> Result<Report> {
    let folder = new_folder(options.seed);
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let stats = Arc::new(Stats::default());
    let view = Arc::new(View::new(Arc::clone(&stats)));
    view.say(&format!(
        "seed {}, files in {}",
        options.seed,
        folder.display()
    ));
    view.say(&format!("mongod: {}", find()?));
    let run = Arc::new(Run::start(&folder, &options, stats, view).await?);
    let outcome = run.inject_and_settle(&options).await;
    outcome?;
    let entries = run.observer.entries().await;
    let entries = entries.context("reading the ledger")?;
    evidence::write(&folder, &run.system.abacus, &entries, run.answers().await?)?;
    let run = Arc::into_inner(run).context("the run is still used")?;
    run.system.fleet.stop_all().await?;
    let logged = |code| run.system.fleet.logged(code).context("reading the logs");
    let differences = logged("audit.difference")?;
    let logged = [
        ("posts to Abacus", run.system.abacus.post_count()),
        ("pauses of sampling", logged("distress.begun")?),
        ("causes of suspensions", logged("suspension.begun")?),
        ("differences found by the auditor", differences),
    ];
    run.history.flush()?;
    let mut verdict = check(&Evidence::read(&folder)?);
    if differences > 0 {
        let found = Rule::Ledger.broken("the auditor of the workers", "it logged audit.difference");
        verdict.violations.push(found);
    }
    // With violations, the database stays for inspection.
    run.system.cluster.stop(!verdict.is_right()).await?;
    Ok(Report::new(&options, folder, &run.stats, logged, verdict))
}

fn new_folder(seed: u64) -> PathBuf {
    let millis = chrono::DateTime::from_timestamp_millis(now_millis()).unwrap_or_default();
    let name = format!("{}-seed-{seed}", millis.format("%Y%m%d-%H%M%S"));
    target_dir().join("chaos").join(name)
}

impl Run {
    async fn start(
        folder: &Path,
        options: &Options,
        stats: Arc<Stats>,
        view: Arc<View>,
    ) -> Result<Self> {
        let history = Arc::new(History::create(&folder.join(HISTORY))?);
        view.say("starting three servers");
        let cluster = Cluster::start(&folder.join("mongod")).await?;
        let uri = cluster.uri();
        let abacus = StandInAbacus::start(AbacusOptions::default()).await?;
        let fast = i64::try_from((options.length + FAST_AFTER).as_millis())?;
        let behind = fast.saturating_mul(CLOCK_TIMES - 1);
        abacus.date_answers(Dates::Fast {
            since: now_millis(),
            behind,
            times: CLOCK_TIMES,
        });
        view.say("starting the programs");
        let fleet = Fleet::start(&uri, &abacus.base_url(), folder, Arc::clone(&history)).await?;
        let observer = Observer::new(&uri).await?;
        let api = Api::new(Arc::clone(&fleet.receivers), Arc::clone(&history))?;
        let system = System {
            cluster,
            fleet,
            abacus,
        };
        Ok(Self {
            system,
            observer,
            history,
            stats,
            view,
            api: Arc::new(api),
            behind,
        })
    }

    /// All spans and the audit trail, as a client of the API reads them.
    async fn answers(&self) -> Result<[Vec<Value>; 2]> {
        let mut rng = Rng::new(0, 0);
        let spans = format!("/v1/spans?resource_id={RESOURCE}&limit=1000");
        let spans = self.api.all(&spans, &mut rng).await?;
        Ok([spans, self.api.all("/v1/audit?limit=1000", &mut rng).await?])
    }

    async fn inject_and_settle(self: &Arc<Self>, options: &Options) -> Result<()> {
        let began = Instant::now();
        let until = began + options.length;
        let looking = self.watch();
        let outcome = self.load(options, began, until).await;
        let outcome = match outcome {
            Ok(clients) => self.settle(clients).await,
            Err(error) => Err(error),
        };
        looking.abort();
        // Then it holds no reference to the run.
        let _ = looking.await;
        outcome
    }

    /// Counts spans, restarts programs that have ended, and draws, until it is aborted.
    fn watch(self: &Arc<Self>) -> JoinHandle<()> {
        let run = Arc::clone(self);
        tokio::spawn(async move {
            loop {
                // An error here comes again, or shows elsewhere: this is for the display only.
                if let Ok(spans) = run.observer.count().await {
                    run.stats.set_spans(spans);
                }
                if let Err(error) = run.system.fleet.restart_ended().await {
                    run.stats.error(&format!("{error:#}"));
                }
                run.view.draw(run.system.abacus.counted_count());
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        })
    }

    /// Events and faults, until the time is over. Gives the clients back, with what they know.
    async fn load(
        self: &Arc<Self>,
        options: &Options,
        began: Instant,
        until: Instant,
    ) -> Result<Vec<Client>> {
        let sender = Arc::new(Sender::new(
            Arc::clone(&self.system.fleet.receivers),
            Arc::clone(&self.history),
            Arc::clone(&self.stats),
            until + ANSWER_LIMIT,
        )?);
        let mut clients = JoinSet::new();
        let operators = self.operators(options, began, until);
        for number in 0..options.clients {
            let mut client = Client::new(number, options.seed, self.behind, Arc::clone(&sender));
            clients.spawn(async move {
                client.run(until).await;
                client
            });
        }
        let lanes = Lane::ALL.map(|lane| {
            let plan = lane.plan(options.seed, options.length);
            self.clone().run_lane(lane, plan, began, until)
        });
        futures_util::future::join_all(lanes).await;
        let mut operators = operators.join_all().await;
        self.view.say("no more faults");
        self.system.heal().await?;
        let clients = clients.join_all().await;
        resend_one(&mut operators, &self.stats, Instant::now() + RESEND_LIMIT).await;
        Ok(clients)
    }

    /// Operators that act until the time is over.
    fn operators(&self, options: &Options, began: Instant, until: Instant) -> JoinSet<Operator> {
        let (half, late) = (
            options.length / 2,
            options.length.saturating_sub(LAST_SKIPS),
        );
        let skips_until = began + half.max(late);
        let mut operators = JoinSet::new();
        for number in 0..OPERATORS {
            let (api, stats) = (Arc::clone(&self.api), Arc::clone(&self.stats));
            let mut operator = Operator::new(number, options.seed, api, stats);
            operators.spawn(async move {
                operator.run(skips_until, until).await;
                operator
            });
        }
        operators
    }

    async fn run_lane(
        self: Arc<Self>,
        lane: Lane,
        plan: Vec<Planned>,
        began: Instant,
        until: Instant,
    ) {
        for planned in plan {
            tokio::time::sleep_until((began + planned.at).into()).await;
            let begins = Instant::now();
            if begins >= until {
                return;
            }
            let (kind, text) = (planned.fault.kind(), planned.fault.text());
            self.note(&text, "begins");
            self.stats.fault_begins(lane, kind, text.clone());
            let ends = (begins + planned.lasts).min(until);
            if let Err(error) = self.system.inject(planned.fault, ends).await {
                // The fault may have met the remains of another one: both are removed.
                self.note(&text, &format!("failed: {error:#}"));
                self.stats.error(&format!("{text}: {error:#}"));
                if let Err(error) = self.system.heal().await {
                    self.note(&text, &format!("healing failed: {error:#}"));
                }
            }
            self.stats.fault_ends(lane);
            self.note(&text, "is over");
        }
    }

    fn note(&self, fault: &str, phase: &str) {
        let (fault, phase) = (fault.to_owned(), phase.to_owned());
        self.history.note(&Record::Fault(FaultRecord {
            at: now_millis(),
            fault,
            phase,
        }));
    }

    /// Has the clients stop what is open, and waits until all spans are complete.
    async fn settle(self: &Arc<Self>, mut clients: Vec<Client>) -> Result<()> {
        let mut open = BTreeSet::new();
        for round in 0..CLOSING_ROUNDS {
            self.view
                .say(&format!("stopping what is open, round {}", round + 1));
            let closes = clients.iter_mut().map(|client| client.close(&open));
            futures_util::future::join_all(closes).await;
            self.wait_quiet().await;
            open = self
                .observer
                .open()
                .await
                .context("looking for open spans")?;
            if open.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Waits until no stopped span and no usage has anything left to do, or nothing moves any more:
    /// which of them it was is for the checker to say.
    async fn wait_quiet(&self) {
        let began = Instant::now();
        let (mut before, mut moved_at) = (None, began);
        while began.elapsed() < QUIET_LIMIT && moved_at.elapsed() < STALL_LIMIT {
            tokio::time::sleep(POLL_INTERVAL).await;
            let (Ok(spans), Ok(pending)) =
                (self.observer.count().await, self.observer.pending().await)
            else {
                continue;
            };
            if spans.stopped == 0 && pending == 0 {
                return;
            }
            let now = Some((spans, pending, self.system.abacus.counted_count()));
            if now != before {
                (before, moved_at) = (now, Instant::now());
            }
        }
        self.view.say("it does not get quiet");
    }
}

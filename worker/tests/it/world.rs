//! A store, a clock, an Abacus and any number of workers, all in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use sampler_domain::{
    Change, Changed, Entry, Granularity, Id, Measures, Span, SpanId, StartEvent, StopEvent, Target,
    Timestamp,
};
use sampler_service::environment::{Clock, Random};
use sampler_settings::Settings;
use sampler_store::{Arrival, Events, NewSpan, NewStop, Operating, StartOutcome, StopOutcome};
use sampler_store_testing::memory::{MemoryStore, StoredSpan};
use sampler_testkit::rng::SharedRng;
use sampler_worker::{IgnoreProgress, Options, Parts, Periods, Worker};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::abacus::{Abacus, duration};

pub(crate) const MINUTE: i64 = 60_000;
pub(crate) const HOUR: i64 = 60 * MINUTE;
pub(crate) const DAY: i64 = 24 * HOUR;

/// When the world begins: 2026-03-10T12:00:00 UTC.
pub(crate) const NOON: Timestamp = Timestamp::clamped(1_773_144_000_000);

/// Runs with tokio's paused clock, and may be set wrong.
pub(crate) struct VirtualClock {
    began: Instant,
    ahead: AtomicI64,
}

impl VirtualClock {
    fn new(began: Instant) -> Self {
        let ahead = AtomicI64::new(0);
        Self { began, ahead }
    }

    /// From now on it is ahead by this many ms; behind if negative.
    pub(crate) fn step(&self, ahead: i64) {
        self.ahead.store(ahead, Ordering::Relaxed);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        NOON.plus(elapsed(self.began) + self.ahead.load(Ordering::Relaxed))
    }
}

pub(crate) fn elapsed(began: Instant) -> i64 {
    i64::try_from(began.elapsed().as_millis()).unwrap()
}

/// Random bytes, the same every time.
#[derive(Default)]
pub(crate) struct FixedRandom(SharedRng);

impl Random for FixedRandom {
    fn fill(&self, bytes: &mut [u8]) {
        self.0.fill(bytes);
    }
}

pub(crate) struct World {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) abacus: Arc<Abacus>,
    pub(crate) clock: Arc<VirtualClock>,
    pub(crate) began: Instant,
    random: Arc<FixedRandom>,
}

/// A worker that runs.
pub(crate) struct Running {
    pub(crate) stop: CancellationToken,
    pub(crate) worker: Arc<Worker>,
    task: JoinHandle<()>,
}

impl Running {
    /// Tells it to stop, and waits until it has.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }

    /// Ends it at once, as kill -9 does.
    pub(crate) fn kill(self) {
        self.task.abort();
    }
}

pub(crate) fn options(name: &str) -> Options {
    let mut settings = Settings::worker();
    settings.sampling.dimension = Some(Granularity::Hour);
    settings.delivery.concurrency = 4;
    settings.delivery.retry_limit = Duration::from_mins(1);
    settings.processing.concurrency = 8;
    settings.processing.batch_size = 10;
    settings.cleanup.batch_size = 10;
    Options {
        name: name.to_owned(),
        settings,
        periods: Periods {
            notice: Duration::ZERO,
            ..Periods::default()
        },
    }
}

pub(crate) fn target(instance: &str) -> Target {
    Target::from_store([
        "organization",
        "space",
        "consumer",
        "resource",
        "plan",
        instance,
    ])
}

impl World {
    pub(crate) fn new() -> Self {
        let began = Instant::now();
        let clock = Arc::new(VirtualClock::new(began));
        let own = VirtualClock::new(began);
        let store = Arc::new(MemoryStore::new(move || own.now()));
        Self {
            store,
            abacus: Arc::new(Abacus::new(began)),
            clock,
            began,
            random: Arc::default(),
        }
    }

    pub(crate) fn parts(&self) -> Parts {
        Parts {
            work: self.store.clone(),
            ledger: self.store.clone(),
            operating: self.store.clone(),
            upstream: self.abacus.clone(),
            clock: self.clock.clone(),
            random: self.random.clone(),
            processing_progress: Arc::new(IgnoreProgress),
            cleanup_progress: Arc::new(IgnoreProgress),
        }
    }

    pub(crate) fn run(&self, name: &str) -> Running {
        run_with(self.parts(), options(name))
    }

    /// Starts an instance `millis` after noon.
    pub(crate) async fn start(&self, instance: &str, millis: i64) {
        self.start_with(instance, millis, Measures::default()).await;
    }

    /// Starts an instance with these measures `millis` after noon.
    pub(crate) async fn start_with(&self, instance: &str, millis: i64, measures: Measures) {
        let event = StartEvent {
            id: Some(Id::new(format!("start {instance}")).unwrap()),
            timestamp: NOON.plus(millis),
            target: target(instance),
            measures,
        };
        let id = SpanId::new(NOON, self.random.u64());
        let due_at = event.timestamp;
        let span = Span::open(id, event, due_at);
        let new = NewSpan {
            span,
            now: self.clock.now(),
            arrival: Arrival::Alone,
        };
        assert_eq!(self.store.start(new).await.unwrap(), StartOutcome::Opened);
    }

    /// Starts so many instances, from `PREFIX 0` on, `millis` after noon.
    pub(crate) async fn start_all(&self, prefix: &str, count: usize, millis: i64) {
        for number in 0..count {
            self.start(&format!("{prefix} {number}"), millis).await;
        }
    }

    /// Stops an instance `millis` after noon.
    pub(crate) async fn stop(&self, instance: &str, millis: i64) {
        let event = StopEvent {
            id: None,
            timestamp: NOON.plus(millis),
            target: target(instance),
        };
        let stop = NewStop {
            event,
            client: None,
            correlation_id: Uuid::from_u128(7),
            arrival: Arrival::Alone,
        };
        assert_eq!(self.store.stop(stop).await.unwrap(), StopOutcome::Ended);
    }

    pub(crate) fn clock_now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn kept(&self, instance: &str) -> StoredSpan {
        let of = |kept: &StoredSpan| kept.span.target.resource_instance_id.as_str() == instance;
        self.store.all().into_iter().find(of).unwrap()
    }

    pub(crate) fn is_complete(&self, instance: &str) -> bool {
        self.kept(instance).span.processing.complete
    }

    /// The entries of the ledger.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.store.with(|table| table.entries().cloned().collect())
    }

    /// What an operator does to a span.
    async fn act(&self, instance: &str, act: impl FnOnce(&Span, Timestamp) -> Change) {
        let span = self.kept(instance).span;
        let now = self.clock_now();
        let change = act(&span, now);
        let changed = self.store.change_by_operator(&span, &change, now).await;
        assert_eq!(changed.unwrap(), Changed::Made);
    }

    pub(crate) async fn skip(&self, instance: &str) {
        self.act(instance, |span, now| span.to_skip(None, now).unwrap())
            .await;
    }

    pub(crate) async fn resend(&self, instance: &str) {
        let resend = |span: &Span, now| span.to_resend(None, None, now).unwrap();
        self.act(instance, resend).await;
    }

    /// What counts, the entries, and what spans say is billed agree. Spans that were removed are left out.
    pub(crate) fn assert_ledger(&self) {
        let counted = self.abacus.counted.lock().unwrap().clone();
        let entries = self.entries();
        assert_eq!(entries.len(), counted.len());
        for entry in &entries {
            let key = (
                entry.usage_guid.clone(),
                entry.interval.midpoint().as_millis(),
            );
            let usage = &counted[&key];
            assert_eq!(usage.target, entry.target);
            assert_eq!(duration(usage), entry.interval.duration());
        }
        for kept in self.store.all() {
            let span = kept.span;
            let recorded = entries
                .iter()
                .filter(|entry| entry.span == span.id && !span.plans(&entry.usage_guid));
            let durations = recorded.map(|entry| entry.interval.duration());
            let billed = span.proof(self.clock_now()).billed;
            assert_eq!(durations.sum::<i64>(), billed, "{span:?}");
        }
    }

    /// Lets virtual time pass until the condition holds; it must within six hours.
    pub(crate) async fn until(&self, what: &str, condition: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_hours(6);
        while !condition() {
            assert!(Instant::now() < deadline, "never: {what}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until so much of each of these instances is billed, ms.
    pub(crate) async fn until_billed(&self, prefix: &str, count: usize, least: i64) {
        let is_billed = |number| self.abacus.sum(&format!("{prefix} {number}")) >= least;
        let all = || (0..count).all(is_billed);
        self.until("all are billed", all).await;
    }

    pub(crate) async fn until_complete(&self, instance: &str) {
        let is_complete = || self.is_complete(instance);
        self.until("it is complete", is_complete).await;
    }

    pub(crate) async fn until_suspended(&self, instance: &str) {
        let is_suspended = || self.kept(instance).span.suspension().is_some();
        self.until("it is suspended", is_suspended).await;
    }

    /// Lets virtual time pass.
    pub(crate) async fn pass(&self, millis: i64) {
        tokio::time::sleep(Duration::from_millis(millis.unsigned_abs())).await;
    }
}

/// Runs a worker of these parts.
pub(crate) fn run_with(parts: Parts, options: Options) -> Running {
    let stop = CancellationToken::new();
    let worker = Worker::new(parts, options, stop.clone());
    let running = Arc::clone(&worker);
    let task = tokio::spawn(async move { running.run().await });
    Running { stop, worker, task }
}

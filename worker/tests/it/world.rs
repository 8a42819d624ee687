//! A store, a clock, an Abacus and any number of workers, all in virtual time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use sampler_abacus::{Answer, AnswerDate, Asked, Collector, Confirmer, Details, Posted};
use sampler_domain::{
    Granularities, Granularity, Id, Measures, Policy, Span, SpanId, StartEvent, StopEvent, Target,
    Timestamp, Usage,
};
use sampler_service::environment::{Clock, Random};
use sampler_settings::DistressSettings;
use sampler_settings::worker::{
    AbacusSettings, AuditSettings, CleanupSettings, ConfirmSettings, LedgerSettings,
    ProcessingSettings, SuspensionSettings,
};
use sampler_store::memory::{MemoryStore, StoredSpan};
use sampler_store::{Arrival, Events, NewSpan, NewStop, StartOutcome, StopOutcome};
use sampler_testkit::rng::SharedRng;
use sampler_worker::{AbacusTime, Confirming, IgnoreProgress, Intervals, Options, Parts, Worker};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

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

fn elapsed(began: Instant) -> i64 {
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

/// How an answer is dated, given what time it is there; none where it has no date.
type Dates = Box<dyn FnMut(Timestamp) -> Option<Timestamp> + Send>;

type Script = Box<dyn FnMut(&Usage) -> Option<Answer> + Send>;

/// What is known of the usage with this id.
type Documents = Box<dyn FnMut(&str) -> Asked + Send>;

/// An Abacus that counts each usage once, and answers as configured.
pub(crate) struct Abacus {
    began: Instant,
    /// Each post: when, and what.
    pub(crate) posts: Mutex<Vec<(Instant, String)>>,
    counted: Mutex<BTreeMap<(String, i64), Usage>>,
    /// Answers to give instead of taking the usage.
    script: Mutex<Option<Script>>,
    /// Each question for a document: when, and of which usage.
    pub(crate) asked: Mutex<Vec<(Instant, String)>>,
    documents: Mutex<Option<Documents>>,
    in_flight: Mutex<BTreeSet<String>>,
    pub(crate) most_in_flight: Mutex<usize>,
    /// How long each post takes.
    pub(crate) latency: Mutex<Duration>,
    /// How far its clock is behind, ms.
    pub(crate) behind: AtomicI64,
    dates: Mutex<Option<Dates>>,
    /// Nothing is answered.
    pub(crate) is_away: AtomicBool,
    /// How often it was only asked what time it is.
    pub(crate) probes: AtomicU64,
}

impl Abacus {
    fn new(began: Instant) -> Self {
        Self {
            began,
            posts: Mutex::default(),
            counted: Mutex::default(),
            script: Mutex::default(),
            asked: Mutex::default(),
            documents: Mutex::default(),
            in_flight: Mutex::default(),
            most_in_flight: Mutex::default(),
            latency: Mutex::default(),
            behind: AtomicI64::default(),
            dates: Mutex::default(),
            is_away: AtomicBool::default(),
            probes: AtomicU64::default(),
        }
    }

    /// What time it is there.
    pub(crate) fn now(&self) -> Timestamp {
        NOON.plus(elapsed(self.began) - self.behind.load(Ordering::Relaxed))
    }

    /// Dates its answers so from now on.
    pub(crate) fn date(&self, dates: impl FnMut(Timestamp) -> Option<Timestamp> + Send + 'static) {
        *self.dates.lock().unwrap() = Some(Box::new(dates));
    }

    fn dated(&self) -> AnswerDate {
        if self.is_away.load(Ordering::Relaxed) {
            return AnswerDate::NoAnswer;
        }
        let now = self.now();
        let date = match self.dates.lock().unwrap().as_mut() {
            Some(dates) => dates(now),
            None => Some(now),
        };
        let second = |date: Timestamp| date.as_millis().div_euclid(1_000) * 1_000;
        date.map_or(AnswerDate::Undated, |date| {
            AnswerDate::At(Timestamp::clamped(second(date)))
        })
    }

    /// Asks `script` before each usage; it is taken and counted where that answers none.
    pub(crate) fn answer(&self, script: impl FnMut(&Usage) -> Option<Answer> + Send + 'static) {
        *self.script.lock().unwrap() = Some(Box::new(script));
    }

    /// Answers so where it is asked whether a usage counts. Without this no answer has a `Location`.
    pub(crate) fn know(&self, documents: impl FnMut(&str) -> Asked + Send + 'static) {
        *self.documents.lock().unwrap() = Some(Box::new(documents));
    }

    /// How often it was asked whether a usage counts.
    pub(crate) fn asked_count(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    /// Answers with these, one after the other, then takes all.
    pub(crate) fn answer_first(&self, answers: impl Into<VecDeque<Answer>>) {
        let mut answers = answers.into();
        self.answer(move |_| answers.pop_front());
    }

    /// Signed durations that count for an instance.
    pub(crate) fn durations(&self, instance: &str) -> Vec<i64> {
        let counted = self.counted.lock().unwrap();
        let of = |usage: &&Usage| usage.target.resource_instance_id.as_str() == instance;
        counted.values().filter(of).map(duration).collect()
    }

    pub(crate) fn sum(&self, instance: &str) -> i64 {
        self.durations(instance).iter().sum()
    }

    /// How many posts were made for instances whose name holds this, after the first `skipped`.
    pub(crate) fn posts_of(&self, name: &str, skipped: usize) -> usize {
        let posts = self.posts.lock().unwrap();
        let of = |post: &&(Instant, String)| post.1.contains(name);
        posts.iter().skip(skipped).filter(of).count()
    }

    pub(crate) fn post_count(&self) -> usize {
        self.posts.lock().unwrap().len()
    }
}

fn duration(usage: &Usage) -> i64 {
    let measure = usage.measured_usage.last().unwrap();
    assert_eq!(measure.measure.as_str(), "duration");
    measure.quantity.as_json().as_i64().unwrap()
}

#[async_trait]
impl Collector for Abacus {
    async fn post(&self, usage: &Usage, _now: Timestamp) -> Posted {
        let answer = self.take(usage).await;
        let dated = self.dated();
        let is_known = self.documents.lock().unwrap().is_some();
        let location = || format!("https://abacus/{}", usage.dedup_id);
        let details = Details {
            location: is_known.then(location),
            ..Details::default()
        };
        Posted {
            answer,
            dated,
            details,
        }
    }

    async fn probe(&self) -> Result<AnswerDate, String> {
        self.probes.fetch_add(1, Ordering::Relaxed);
        match self.dated() {
            AnswerDate::NoAnswer => Err("it is away".to_owned()),
            dated => Ok(dated),
        }
    }
}

#[async_trait]
impl Confirmer for Abacus {
    async fn ask(&self, location: &str, usage_guid: &str, _now: Timestamp) -> Asked {
        assert_eq!(location, format!("https://abacus/{usage_guid}"));
        let question = (Instant::now(), usage_guid.to_owned());
        self.asked.lock().unwrap().push(question);
        let latency = *self.latency.lock().unwrap();
        tokio::time::sleep(latency).await;
        let mut documents = self.documents.lock().unwrap();
        documents.as_mut().unwrap()(usage_guid)
    }
}

impl Abacus {
    async fn take(&self, usage: &Usage) -> Answer {
        let body = serde_json::to_string(usage).unwrap();
        self.posts.lock().unwrap().push((Instant::now(), body));
        self.in_flight
            .lock()
            .unwrap()
            .insert(usage.dedup_id.clone());
        let count = self.in_flight.lock().unwrap().len();
        let latency = *self.latency.lock().unwrap();
        {
            let mut most = self.most_in_flight.lock().unwrap();
            *most = count.max(*most);
        }
        tokio::time::sleep(latency).await;
        self.in_flight.lock().unwrap().remove(&usage.dedup_id);
        let told = self
            .script
            .lock()
            .unwrap()
            .as_mut()
            .and_then(|script| script(usage));
        if let Some(answer) = told {
            return answer;
        }
        if self.is_away.load(Ordering::Relaxed) {
            let error = "connection refused".into();
            return Answer::TryAgain { after: None, error };
        }
        assert_ne!(duration(usage), 0, "a usage of no length");
        let key = (usage.dedup_id.clone(), usage.end.as_millis());
        self.counted.lock().unwrap().insert(key, usage.clone());
        Answer::Accepted
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
    pub(crate) time: Arc<AbacusTime>,
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
    Options {
        name: name.to_owned(),
        policy: Policy {
            granularities: Granularities::all(Granularity::Hour),
            stop_grace: 0,
        },
        abacus: AbacusSettings {
            concurrency: 4,
            retry_limit: Duration::from_mins(1),
            ..AbacusSettings::default()
        },
        processing: ProcessingSettings {
            concurrency: 8,
            batch_size: 10,
            ..ProcessingSettings::default()
        },
        cleanup: CleanupSettings {
            batch_size: 10,
            ..CleanupSettings::default()
        },
        ledger: LedgerSettings::default(),
        suspension: SuspensionSettings::default(),
        confirm: ConfirmSettings::default(),
        audit: AuditSettings { rate: 0 },
        distress: DistressSettings::default(),
        intervals: Intervals::default(),
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
            resends: self.store.clone(),
            causes: self.store.clone(),
            confirming: Confirming {
                store: self.store.clone(),
                confirmer: self.abacus.clone(),
            },
            span_scan: self.store.clone(),
            upkeep: self.store.clone(),
            membership: self.store.clone(),
            backlogs: self.store.clone(),
            controls: self.store.clone(),
            replication: self.store.clone(),
            collector: self.abacus.clone(),
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
        let span = Span::open(id, event);
        let new = NewSpan {
            span,
            due_at,
            now: self.clock.now(),
            may_overlap: false,
            arrival: Arrival::Alone,
        };
        assert_eq!(self.store.start(new).await.unwrap(), StartOutcome::Opened);
    }

    /// Stops an instance `millis` after noon.
    pub(crate) async fn stop(&self, instance: &str, millis: i64) {
        assert_eq!(
            stop_in(&*self.store, instance, millis).await,
            StopOutcome::Ended
        );
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

    /// Entries, totals, how far spans are sampled, and what counts agree, entry by entry. Spans that
    /// were removed are left out.
    pub(crate) fn assert_ledger(&self) {
        let counted = self.abacus.counted.lock().unwrap().clone();
        let entries: Vec<_> = self
            .store
            .with(|table| table.entries().map(|kept| kept.entry.clone()).collect());
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
            let totals = &span.processing.totals;
            let planned = span.processing.planned.as_ref();
            let planned = planned.map(|planned| &planned.usage_guid);
            let of_span = entries.iter().filter(|entry| {
                let is_noted = Some(&entry.usage_guid) != planned;
                entry.span == span.id && is_noted && Some(entry.version) >= totals.first_version
            });
            let durations = of_span.map(|entry| entry.interval.duration());
            let durations: Vec<i64> = durations.collect();
            assert_eq!(durations.iter().sum::<i64>(), totals.billed, "{span:?}");
            assert_eq!(durations.len() as u64, totals.usages, "{span:?}");
            assert_eq!(span.difference(), 0, "{span:?}");
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

    /// Lets virtual time pass.
    pub(crate) async fn pass(&self, millis: i64) {
        tokio::time::sleep(Duration::from_millis(millis.unsigned_abs())).await;
    }
}

pub(crate) async fn stop_in(store: &dyn Events, instance: &str, millis: i64) -> StopOutcome {
    let event = StopEvent {
        id: None,
        timestamp: NOON.plus(millis),
        target: target(instance),
    };
    let correlation_id = uuid::Uuid::from_u128(7);
    store
        .stop(NewStop {
            event,
            client: None,
            correlation_id,
            arrival: Arrival::Alone,
        })
        .await
        .unwrap()
}

/// Runs a worker of these parts.
pub(crate) fn run_with(parts: Parts, options: Options) -> Running {
    let stop = CancellationToken::new();
    let worker = Worker::new(parts, options, stop.clone());
    let time = worker.time();
    let task = tokio::spawn(async move { worker.run().await });
    Running { stop, time, task }
}

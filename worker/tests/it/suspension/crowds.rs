//! Many suspended spans, and the calls that they cost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use sampler_domain::{Cause, CauseId, Timestamp};
use sampler_settings::worker::{AbacusSettings, CleanupSettings, ProcessingSettings};
use sampler_store::memory::MemoryStore;
use sampler_store::{Causes, KeptCause, Probe, Resumption, StoreError};
use sampler_worker::{Options, Parts};

use super::{causes, refuse, suspend_many, suspended};
use crate::world::{HOUR, MINUTE, World, options, run_with};

#[tokio::test(start_paused = true)]
async fn spans_that_go_on_have_their_turn_behind_what_waits_longer() {
    let world = World::new();
    suspend_many(&world, 50, true);
    for number in 0..50 {
        world.start(&format!("waits {number}"), -20 * HOUR).await;
    }
    *world.abacus.latency.lock().unwrap() = Duration::from_secs(1);
    let id = world
        .kept("many 0")
        .span
        .processing
        .suspended
        .unwrap()
        .cause;
    assert!(
        world
            .store
            .begin_resuming(id, world.clock_now())
            .await
            .unwrap()
    );
    let worker = world.run("w");
    let waiting = || (0..50).all(|number| world.abacus.sum(&format!("waits {number}")) >= HOUR);
    world.until("all that wait had a turn", waiting).await;
    let gone_on = world.abacus.posts_of("many", 0);
    assert!(gone_on <= 8, "{gone_on} of those that went on were first");
    worker.stop().await;
}

/// 100,000 spans of one plan cost one probe in ten minutes; once it is accepted they go on in
/// batches, within minutes.
#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_suspended_spans_cost_one_probe_and_go_on_in_minutes() {
    const SPANS: i64 = 100_000;
    let world = World::new();
    suspend_many(&world, SPANS, true);
    let over = refuse(&world, "many");
    let counting = Arc::new(Counting::new(world.store.clone()));
    let worker = run_with(
        Parts {
            causes: counting.clone(),
            ..world.parts()
        },
        large("w"),
    );
    // The first probe is due at once; a search finds it at once, or after its interval.
    world.pass(6 * MINUTE).await;
    counting.calls.store(0, Ordering::Relaxed);
    let before = world.abacus.post_count();
    world.pass(HOUR).await;
    let posts = world.abacus.post_count() - before;
    assert_eq!(posts, 6, "one for each ten minutes");
    // One call every 5 s, and five for each probe: the claim, the probe, the cause that is kept again,
    // and the searches for causes that are missing and for what others went on with.
    let calls = counting.calls.swap(0, Ordering::Relaxed);
    assert!(calls <= 720 + 5 * 7, "{calls} calls in an hour");
    over.store(true, Ordering::Relaxed);
    let id = causes(&world)[0].id;
    let is_resuming = || causes(&world)[0].resuming.is_some();
    world.until("the first success", is_resuming).await;
    let is_resumed = || world.store.with(|table| table.count_suspended(id)) == 0;
    let began = world.clock_now();
    world.until("all go on", is_resumed).await;
    let took = world.clock_now().since(began);
    assert!(took <= MINUTE, "{took} ms");
    let batches = counting.batches.load(Ordering::Relaxed);
    assert_eq!(
        batches, 101,
        "100 batches of 1,000, and one that finds none"
    );
    worker.kill();
}

fn large(name: &str) -> Options {
    Options {
        abacus: AbacusSettings {
            concurrency: 1_000,
            ..AbacusSettings::default()
        },
        processing: ProcessingSettings {
            concurrency: 10_000,
            batch_size: 10_000,
            // The store in memory reads all spans for each search.
            interval: Duration::from_mins(5),
            adopt_interval: Duration::from_mins(30),
            ..ProcessingSettings::default()
        },
        cleanup: CleanupSettings {
            interval: Duration::from_mins(30),
            ..CleanupSettings::default()
        },
        ..options(name)
    }
}

/// Counts the calls that causes cost.
struct Counting {
    inner: Arc<MemoryStore>,
    calls: AtomicUsize,
    batches: AtomicUsize,
    /// How long the answer to a batch takes.
    latency: Duration,
}

impl Counting {
    fn new(inner: Arc<MemoryStore>) -> Self {
        Self {
            inner,
            calls: AtomicUsize::default(),
            batches: AtomicUsize::default(),
            latency: Duration::ZERO,
        }
    }

    fn count(&self) -> &MemoryStore {
        self.calls.fetch_add(1, Ordering::Relaxed);
        &self.inner
    }
}

#[async_trait]
impl Causes for Counting {
    async fn register(
        &self,
        cause: &Cause,
        now: Timestamp,
        probe_at: Timestamp,
    ) -> Result<(), StoreError> {
        self.count().register(cause, now, probe_at).await
    }
    async fn register_missing(
        &self,
        now: Timestamp,
        probe_at: Timestamp,
    ) -> Result<u64, StoreError> {
        self.count().register_missing(now, probe_at).await
    }
    async fn due_causes(&self, now: Timestamp, limit: usize) -> Result<Vec<KeptCause>, StoreError> {
        self.count().due_causes(now, limit).await
    }
    async fn claim_probe(&self, cause: &KeptCause, next: Timestamp) -> Result<bool, StoreError> {
        self.count().claim_probe(cause, next).await
    }
    async fn probe(
        &self,
        cause: CauseId,
        resumption: Resumption,
        lasts: i64,
    ) -> Result<Probe, StoreError> {
        self.count().probe(cause, resumption, lasts).await
    }
    async fn end_stale_suspensions(&self, now: Timestamp, limit: usize) -> Result<u64, StoreError> {
        self.count().end_stale_suspensions(now, limit).await
    }
    async fn begin_resuming(&self, cause: CauseId, now: Timestamp) -> Result<bool, StoreError> {
        self.count().begin_resuming(cause, now).await
    }
    async fn resume_batch(
        &self,
        cause: CauseId,
        until: Timestamp,
        resumption: Resumption,
        limit: usize,
    ) -> Result<u64, StoreError> {
        self.batches.fetch_add(1, Ordering::Relaxed);
        let store = self.count();
        let resumed = store.resume_batch(cause, until, resumption, limit).await;
        tokio::time::sleep(self.latency).await;
        resumed
    }
    async fn set_resuming(&self, cause: &KeptCause, until: Timestamp) -> Result<(), StoreError> {
        self.count().set_resuming(cause, until).await
    }
    async fn end_resuming(&self, cause: &KeptCause) -> Result<(), StoreError> {
        self.count().end_resuming(cause).await
    }
    async fn remove_cause(&self, cause: &KeptCause) -> Result<bool, StoreError> {
        self.count().remove_cause(cause).await
    }
}

/// The clock of a receiver is ahead: a resumption that it asked for lets each span go on once, also where
/// spans are refused again before the last one goes on.
#[tokio::test(start_paused = true)]
async fn a_resumption_of_the_future_lets_spans_go_on_once() {
    let world = World::new();
    for number in 0..3 {
        world.start(&format!("bad {number}"), -2 * HOUR).await;
    }
    refuse(&world, "bad");
    let slow = Counting {
        latency: Duration::from_mins(1),
        ..Counting::new(world.store.clone())
    };
    let parts = Parts {
        causes: Arc::new(slow),
        ..world.parts()
    };
    let worker = run_with(parts, options("w"));
    world
        .until("all are suspended", || suspended(&world) == 3)
        .await;
    let before = world.abacus.post_count();
    let id = causes(&world)[0].id;
    let ahead = world.clock_now().plus(5 * HOUR);
    world.store.begin_resuming(id, ahead).await.unwrap();
    world.pass(HOUR).await;
    let posts = world.abacus.post_count() - before;
    // Each once, and a probe every ten minutes.
    assert!((3..=3 + 7).contains(&posts), "{posts} posts");
    assert_eq!(causes(&world)[0].resuming, None);
    worker.stop().await;
}

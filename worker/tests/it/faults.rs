//! A store that fails before or after it did what was asked, workers that die, stops that come in
//! between: nothing is billed twice, nothing is forgotten.

use std::future::ready;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::StreamExt;
use sampler_abacus::Answer;
use sampler_domain::{
    Cause, CauseId, Change, Changed, Entry, EntryState, Policy, Span, SpanId, Target, Timestamp,
};
use sampler_store::memory::MemoryStore;
use sampler_store::{
    Adopted, Causes, DuePages, DueQuery, Entries, Finished, KeptCause, Ledger, Membership, Probe,
    Resumption, StoreError, Upkeep, Work,
};
use sampler_worker::Parts;

use crate::world::{HOUR, MINUTE, World, run_with, stop_in};

/// Where a call fails.
#[derive(Clone, Copy, PartialEq)]
enum When {
    Before,
    After,
}

type Hook = Box<dyn Fn(&'static str) + Send + Sync>;

/// A store some of whose calls fail.
struct Faulty {
    inner: Arc<MemoryStore>,
    faults: Arc<Faults>,
}

/// Which calls fail.
struct Faults {
    calls: AtomicUsize,
    /// One call fails of each `every`.
    every: usize,
    /// Called before each call.
    hook: Mutex<Option<Hook>>,
}

impl Faulty {
    fn new(inner: Arc<MemoryStore>, every: usize) -> Arc<Self> {
        Arc::new(Self {
            inner,
            faults: Arc::new(Faults {
                calls: AtomicUsize::new(0),
                every,
                hook: Mutex::default(),
            }),
        })
    }
}

impl Faults {
    fn lost() -> StoreError {
        StoreError::Unknown("the answer was lost".into())
    }

    async fn call<T>(
        &self,
        name: &'static str,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        if let Some(hook) = &*self.hook.lock().unwrap() {
            hook(name);
        }
        let number = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let fails = (number.is_multiple_of(self.every)).then_some(
            if (number / self.every).is_multiple_of(2) {
                When::Before
            } else {
                When::After
            },
        );
        if fails == Some(When::Before) {
            return Err(StoreError::Unavailable("it was not reached".into()));
        }
        let answer = call.await;
        if fails == Some(When::After) {
            Err(Self::lost())
        } else {
            answer
        }
    }
}

#[async_trait]
impl Work for Faulty {
    fn due(&self, query: DueQuery) -> DuePages {
        let faults = Arc::clone(&self.faults);
        let pages = self.inner.due(query);
        pages
            .then(move |page| {
                let faults = Arc::clone(&faults);
                async move { faults.call("due", ready(page)).await }
            })
            .boxed()
    }
    async fn find(&self, id: &SpanId, target: &Target) -> Result<Option<Span>, StoreError> {
        self.faults.call("find", self.inner.find(id, target)).await
    }
    async fn change(
        &self,
        span: &Span,
        change: &Change,
        now: Timestamp,
    ) -> Result<Changed, StoreError> {
        self.faults
            .call(name(change), self.inner.change(span, change, now))
            .await
    }
}

#[async_trait]
impl Ledger for Faulty {
    async fn write_entry(&self, entry: Entry, lifetime: i64) -> Result<EntryState, StoreError> {
        self.faults
            .call("write_entry", self.inner.write_entry(entry, lifetime))
            .await
    }
    async fn expire(&self, finished: &[Finished]) -> Result<(), StoreError> {
        self.faults
            .call("expire", self.inner.expire(finished))
            .await
    }
    async fn entries(
        &self,
        span: &SpanId,
        target: &Target,
        after: Option<i64>,
        limit: usize,
    ) -> Result<Entries, StoreError> {
        self.inner.entries(span, target, after, limit).await
    }
}

#[async_trait]
impl Causes for Faulty {
    async fn register(
        &self,
        cause: &Cause,
        now: Timestamp,
        probe_at: Timestamp,
    ) -> Result<(), StoreError> {
        self.faults
            .call("register", self.inner.register(cause, now, probe_at))
            .await
    }
    async fn register_missing(
        &self,
        now: Timestamp,
        probe_at: Timestamp,
    ) -> Result<u64, StoreError> {
        let call = self.inner.register_missing(now, probe_at);
        self.faults.call("register_missing", call).await
    }
    async fn due_causes(&self, now: Timestamp, limit: usize) -> Result<Vec<KeptCause>, StoreError> {
        self.faults
            .call("due_causes", self.inner.due_causes(now, limit))
            .await
    }
    async fn claim_probe(&self, cause: &KeptCause, next: Timestamp) -> Result<bool, StoreError> {
        self.faults
            .call("claim_probe", self.inner.claim_probe(cause, next))
            .await
    }
    async fn probe(
        &self,
        cause: CauseId,
        resumption: Resumption,
        lasts: i64,
    ) -> Result<Probe, StoreError> {
        self.faults
            .call("probe", self.inner.probe(cause, resumption, lasts))
            .await
    }
    async fn end_stale_suspensions(&self, now: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let call = self.inner.end_stale_suspensions(now, limit);
        self.faults.call("end_stale_suspensions", call).await
    }
    async fn begin_resuming(&self, cause: CauseId, now: Timestamp) -> Result<bool, StoreError> {
        self.faults
            .call("begin_resuming", self.inner.begin_resuming(cause, now))
            .await
    }
    async fn resume_batch(
        &self,
        cause: CauseId,
        until: Timestamp,
        resumption: Resumption,
        limit: usize,
    ) -> Result<u64, StoreError> {
        let call = self.inner.resume_batch(cause, until, resumption, limit);
        self.faults.call("resume_batch", call).await
    }
    async fn set_resuming(&self, cause: &KeptCause, until: Timestamp) -> Result<(), StoreError> {
        self.faults
            .call("set_resuming", self.inner.set_resuming(cause, until))
            .await
    }
    async fn end_resuming(&self, cause: &KeptCause) -> Result<(), StoreError> {
        self.faults
            .call("end_resuming", self.inner.end_resuming(cause))
            .await
    }
    async fn remove_cause(&self, cause: &KeptCause) -> Result<bool, StoreError> {
        self.faults
            .call("remove_cause", self.inner.remove_cause(cause))
            .await
    }
}

#[async_trait]
impl Upkeep for Faulty {
    async fn adopt(
        &self,
        policy: &Policy,
        now: Timestamp,
        limit: usize,
    ) -> Result<Adopted, StoreError> {
        self.faults
            .call("adopt", self.inner.adopt(policy, now, limit))
            .await
    }
    async fn completed_before(
        &self,
        cutoff: Timestamp,
        limit: usize,
    ) -> Result<Vec<Finished>, StoreError> {
        self.faults
            .call(
                "completed_before",
                self.inner.completed_before(cutoff, limit),
            )
            .await
    }
    async fn remove(&self, finished: &[Finished]) -> Result<u64, StoreError> {
        self.faults
            .call("remove", self.inner.remove(finished))
            .await
    }
    async fn largest_slack(&self) -> Result<Option<i64>, StoreError> {
        self.faults
            .call("largest_slack", self.inner.largest_slack())
            .await
    }
}

#[async_trait]
impl Membership for Faulty {
    async fn heartbeat(&self, worker: &str) -> Result<Vec<String>, StoreError> {
        self.faults
            .call("heartbeat", self.inner.heartbeat(worker))
            .await
    }
    async fn leave(&self, worker: &str) -> Result<(), StoreError> {
        self.inner.leave(worker).await
    }
}

/// What a change is called where calls are counted.
fn name(change: &Change) -> &'static str {
    match change {
        Change::Plan { .. } => "plan",
        Change::Executed { .. } => "executed",
        Change::Complete => "complete",
        Change::Postpone { .. } => "postpone",
        Change::Failed { .. } => "failed",
        Change::Skipped { .. } => "skipped",
        Change::KeepSuspended { .. } => "keep_suspended",
        Change::Resume { .. } => "resume",
        Change::RequestSkip { .. } => "skip",
        Change::Resent { .. } => "resent",
    }
}

/// The parts of a worker over this store.
fn over(store: &Arc<Faulty>, parts: Parts) -> Parts {
    Parts {
        work: store.clone(),
        ledger: store.clone(),
        causes: store.clone(),
        upkeep: store.clone(),
        membership: store.clone(),
        ..parts
    }
}

async fn assert_all_is_billed_once(world: &World, spans: i64) {
    let names: Vec<String> = (0..spans).map(|number| format!("{number}")).collect();
    for (number, instance) in (0..).zip(&names) {
        world.start(instance, -5 * HOUR + number).await;
    }
    world.pass(MINUTE).await;
    for instance in &names {
        stop_in(&*world.store, instance, -2 * HOUR).await;
    }
    let all = || names.iter().all(|instance| world.is_complete(instance));
    world.until("all are complete", all).await;
    for (number, instance) in (0..).zip(&names) {
        assert_eq!(world.abacus.sum(instance), 3 * HOUR - number, "{instance}");
    }
    world.assert_ledger();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_every_few_calls_costs_time_but_no_bill() {
    for every in [2, 3, 5, 7] {
        let world = World::new();
        let mut parts = world.parts();
        parts = over(&Faulty::new(world.store.clone(), every), parts);
        let worker = run_with(parts, crate::world::options("w"));
        assert_all_is_billed_once(&world, 12).await;
        worker.stop().await;
    }
}

/// The usage was counted, but its answer was lost: it is posted again with the same bytes.
#[tokio::test(start_paused = true)]
async fn answers_that_are_lost_bill_nothing_twice() {
    let world = World::new();
    let mut turn = 0;
    world.abacus.answer(move |_| {
        turn += 1;
        (turn % 3 == 0).then(|| Answer::TryAgain {
            after: None,
            error: "lost".into(),
        })
    });
    let worker = world.run("w");
    assert_all_is_billed_once(&world, 12).await;
    worker.stop().await;
}

/// Fault 13 of the original, from the other side: whatever dies between two writes, the plan that
/// is kept is the one that is posted.
#[tokio::test(start_paused = true)]
async fn fault_13_workers_that_are_killed_leave_plans_that_others_execute() {
    let world = World::new();
    *world.abacus.latency.lock().unwrap() = std::time::Duration::from_millis(700);
    for number in 0..6 {
        world.start(&format!("{number}"), -20 * HOUR).await;
    }
    for life in 0..30 {
        let worker = world.run(&format!("life {life}"));
        world.pass(1_000 + life * 37).await;
        worker.kill();
    }
    let worker = world.run("last");
    for number in 0..6 {
        world.stop(&format!("{number}"), -HOUR).await;
    }
    let all = || (0..6).all(|number| world.is_complete(&format!("{number}")));
    world.until("all are complete", all).await;
    for number in 0..6 {
        assert_eq!(world.abacus.sum(&format!("{number}")), 19 * HOUR);
    }
    world.assert_ledger();
    let posts = world.abacus.posts.lock().unwrap().len();
    assert!(posts > 6 * 21, "some were posted again: {posts}");
    worker.stop().await;
}

/// A stop that comes between the post of an interval and the note of it: the note is made again,
/// with the end known, and nothing is posted twice.
#[tokio::test(start_paused = true)]
async fn a_stop_between_post_and_note_is_seen_at_once() {
    for call in ["plan", "executed", "postpone"] {
        let world = World::new();
        world.start("i", -2 * HOUR).await;
        let faulty = Faulty::new(world.store.clone(), usize::MAX);
        let store = world.store.clone();
        let mut parts = world.parts();
        parts = over(&faulty, parts);
        let stopped = AtomicUsize::new(0);
        *faulty.faults.hook.lock().unwrap() = Some(Box::new(move |name| {
            if name == call && stopped.fetch_add(1, Ordering::Relaxed) == 0 {
                // The store in memory answers at once, so the first poll is the whole of it.
                let stop = stop_in(&*store, "i", -HOUR - MINUTE);
                let mut stop = std::pin::pin!(stop);
                let mut context = std::task::Context::from_waker(std::task::Waker::noop());
                assert!(stop.as_mut().poll(&mut context).is_ready());
            }
        }));
        let worker = run_with(parts, crate::world::options("w"));
        if call == "postpone" {
            // Nothing more is due. The span is made due all the same, so that the worker postpones it
            // just when the stop comes.
            world.pass(MINUTE).await;
            let span = world.store.all().remove(0).span;
            let now = world.parts().clock.now();
            let change = Change::Postpone { due_at: now };
            let changed = world.store.change(&span, &change, now).await.unwrap();
            assert_eq!(changed, Changed::Made);
        }
        world
            .until("it is complete", || world.is_complete("i"))
            .await;
        assert_eq!(world.abacus.sum("i"), HOUR - MINUTE, "at {call}");
        let posts = world.abacus.posts.lock().unwrap().clone();
        let mut bodies: Vec<_> = posts.iter().map(|(_, body)| body).collect();
        bodies.sort();
        bodies.dedup();
        assert_eq!(
            bodies.len(),
            posts.len(),
            "at {call}: nothing is posted twice"
        );
        worker.stop().await;
    }
}

/// The ledger refuses an entry for good: the usage is not posted again as fast as Abacus answers.
#[tokio::test(start_paused = true)]
async fn a_span_that_the_store_fails_on_pauses_and_delays_no_other() {
    let world = World::new();
    for number in 0..20 {
        world.start(&format!("bad {number}"), -2 * HOUR).await;
    }
    let ledger = Arc::new(Refusing {
        inner: world.store.clone(),
        is_over: AtomicBool::default(),
    });
    let parts = Parts {
        ledger: ledger.clone(),
        ..world.parts()
    };
    // All permits could be held by those that fail.
    let worker = run_with(parts, crate::world::options("w"));
    world.pass(MINUTE).await;
    world.start("good", -2 * HOUR).await;
    world.pass(MINUTE).await;
    assert_eq!(world.abacus.sum("good"), 2 * HOUR);
    // 1 s, 2 s, 4 s, … 30 s, each less up to half: at most eleven posts of each in two minutes.
    let posts = world.abacus.posts_of("bad", 0);
    assert!((100..=220).contains(&posts), "{posts} posts");
    ledger.is_over.store(true, Ordering::Relaxed);
    let done = || (0..20).all(|number| world.abacus.sum(&format!("bad {number}")) == 2 * HOUR);
    let began = world.clock_now();
    world.until("all are through", done).await;
    assert!(world.clock_now().since(began) <= MINUTE);
    worker.stop().await;
}

/// A ledger that refuses entries of some instances.
struct Refusing {
    inner: Arc<MemoryStore>,
    is_over: AtomicBool,
}

#[async_trait]
impl Ledger for Refusing {
    async fn write_entry(&self, entry: Entry, lifetime: i64) -> Result<EntryState, StoreError> {
        let is_bad = entry.target.resource_instance_id.as_str().contains("bad");
        if is_bad && !self.is_over.load(Ordering::Relaxed) {
            return Err(StoreError::Refused("the disk is full".into()));
        }
        self.inner.write_entry(entry, lifetime).await
    }
    async fn expire(&self, finished: &[Finished]) -> Result<(), StoreError> {
        self.inner.expire(finished).await
    }
    async fn entries(
        &self,
        span: &SpanId,
        target: &Target,
        after: Option<i64>,
        limit: usize,
    ) -> Result<Entries, StoreError> {
        self.inner.entries(span, target, after, limit).await
    }
}

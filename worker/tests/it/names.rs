//! A post is named before it is made, and what a run knows is kept, whatever the store, other runs and operators
//! do meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use sampler_domain::partition::{partition_of, partitions_of};
use sampler_domain::{ChangeKind, Changed, Timestamp, Usage};
use sampler_store::StoreError;
use sampler_store_testing::faulty::{Fault, FaultyStore};
use sampler_upstream::{LookupResult, Posted, Promises, Sought, Upstream};
use sampler_worker::Parts;
use tokio::sync::Notify;

use crate::abacus::{refusal, try_again};
use crate::world::{HOUR, MINUTE, Running, World, options, run_with, target};

fn unknown() -> Fault {
    Fault::AnswerLost(StoreError::Unknown("the connection broke".into()))
}

fn unavailable() -> Fault {
    Fault::NotDone(StoreError::Unavailable("nobody answers".into()))
}

/// Counts changes of a kind, and fails those that a test picks by their number.
fn failing(
    world: &World,
    kind: ChangeKind,
    fault: impl Fn(usize) -> Option<Fault> + Send + Sync + 'static,
) -> (Parts, Arc<AtomicUsize>) {
    let count = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&count);
    let kind = format!("kind: {kind:?},");
    let faults = move |method: &str, arguments: String| {
        if method != "change" || !arguments.contains(&kind) {
            return None;
        }
        fault(counted.fetch_add(1, Ordering::Relaxed))
    };
    let parts = Parts {
        work: FaultyStore::new(world.store.clone(), faults),
        ..world.parts()
    };
    (parts, count)
}

#[tokio::test(start_paused = true)]
async fn a_run_that_takes_a_plan_over_names_itself_and_flags_the_usage() {
    let world = World::new();
    world.start("a", -HOUR).await;
    world
        .abacus
        .answer(|_| Some(refusal("Abacus answered 400")));
    let worker = world.run("w");
    let has_failed = || world.kept("a").span.attempts() == 1;
    world.until("it has failed", has_failed).await;
    worker.stop().await;
    let planned = world.kept("a").span.processing.planned.unwrap();
    assert!(planned.by.is_some() && !planned.unanswered);
    // The run before may have posted it once more.
    let worker = world.run("w");
    let has_failed = || world.kept("a").span.attempts() == 2;
    world.until("it has failed", has_failed).await;
    let after = world.kept("a").span.processing.planned.unwrap();
    assert!(after.by.is_some() && after.by != planned.by);
    assert!(after.unanswered);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_run_that_is_named_tries_again_without_another_name_and_without_a_flag() {
    let world = World::new();
    world.start("a", -HOUR).await;
    world
        .abacus
        .answer(|_| Some(refusal("Abacus answered 400")));
    let (parts, names) = failing(&world, ChangeKind::Name, |_| None);
    let worker = run_with(parts, options("w"));
    world.until_suspended("a").await;
    assert_eq!(world.abacus.post_count(), 3);
    assert_eq!(names.load(Ordering::Relaxed), 0);
    let planned = world.kept("a").span.processing.planned.unwrap();
    assert_eq!((planned.by, planned.unanswered), (None, false));
    worker.stop().await;
}

/// A change that is made late must not hide that a post is under way.
#[tokio::test(start_paused = true)]
async fn after_a_change_without_an_answer_a_run_writes_its_name_again() {
    for is_made in [true, false] {
        let world = World::new();
        world.start("a", -HOUR).await;
        world.abacus.answer_first([refusal("Abacus answered 400")]);
        let (parts, failures) = failing(&world, ChangeKind::Fail, move |number| {
            let lost = if is_made { unknown() } else { unavailable() };
            (number == 0).then_some(lost)
        });
        let version = world.kept("a").span.processing.version;
        let worker = run_with(parts, options("w"));
        world
            .until("it is sampled", || world.abacus.sum("a") == HOUR)
            .await;
        world.pass(1_000).await;
        worker.stop().await;
        assert_eq!(failures.load(Ordering::Relaxed), 1);
        // Plan, name and record; and the failure, if it was made.
        let span = world.kept("a").span;
        let changes = span.processing.version - version;
        assert_eq!(changes, 3 + i64::from(is_made), "{span:?}");
        world.assert_ledger();
    }
}

/// The store is away when the acceptance is to be recorded. The run knows it, and does not post again.
#[tokio::test(start_paused = true)]
async fn an_acceptance_that_could_not_be_recorded_is_not_posted_again_by_the_same_run() {
    for kind in ["write_entry", "change"] {
        let world = World::new();
        world.start("a", -HOUR).await;
        let is_over = Arc::<AtomicBool>::default();
        let over = Arc::clone(&is_over);
        let faults = move |method: &str, arguments: String| {
            let is_meant =
                method == kind && (kind == "write_entry" || arguments.contains("kind: Record"));
            (is_meant && !over.load(Ordering::Relaxed)).then(unavailable)
        };
        let store = FaultyStore::new(world.store.clone(), faults);
        let parts = Parts {
            work: store.clone(),
            ledger: store,
            ..world.parts()
        };
        let worker = run_with(parts, options("w"));
        world.pass(10 * MINUTE).await;
        assert_eq!(world.abacus.post_count(), 1);
        assert!(world.kept("a").span.processing.planned.is_some());
        is_over.store(true, Ordering::Relaxed);
        world.pass(MINUTE).await;
        worker.stop().await;
        assert_eq!(world.abacus.post_count(), 1);
        assert_eq!(world.kept("a").span.processing.planned, None);
        world.assert_ledger();
    }
}

/// A post that had no answer, and whose failure could not be recorded.
#[tokio::test(start_paused = true)]
async fn a_run_flags_later_what_it_could_not_record() {
    let world = World::new();
    world.start("a", -HOUR).await;
    let mut posts = 0;
    world.abacus.answer(move |_| {
        posts += 1;
        Some(match posts {
            1 => try_again("connection lost"),
            _ => refusal("Abacus answered 400"),
        })
    });
    let (parts, _) = failing(&world, ChangeKind::Fail, |number| {
        (number == 0).then(unavailable)
    });
    let worker = run_with(parts, options("w"));
    world.until_suspended("a").await;
    worker.stop().await;
    let planned = world.kept("a").span.processing.planned.unwrap();
    assert!(planned.unanswered);
}

/// An upstream whose caller falls asleep when it is about to post a usage for the first time.
struct FallsAsleep {
    world: Arc<World>,
    is_asleep: AtomicBool,
    woken: Notify,
}

#[async_trait]
impl Upstream for FallsAsleep {
    fn promises(&self) -> Promises {
        self.world.abacus.promises()
    }

    async fn look_up(&self, sought: Sought<'_>, now: Timestamp) -> LookupResult {
        self.world.abacus.look_up(sought, now).await
    }

    async fn post(&self, usage: &Usage, now: Timestamp) -> Posted {
        if !self.is_asleep.swap(true, Ordering::Relaxed) {
            self.woken.notified().await;
        }
        self.world.abacus.post(usage, now).await
    }
}

/// The name of a worker that owns the span beside this other one.
fn successor_of(other: &str) -> String {
    let (partition, others) = (partition_of(&target("a")), [other.to_owned()]);
    let owns = |name: &String| partitions_of(name, &others).contains(&partition);
    let mut names = (0..).map(|number| format!("w{number}"));
    names.find(owns).expect("one of them does")
}

/// A worker sleeps with a usage in its hands; another one sees the usage refused, and an operator skips it.
async fn skipped_while_one_sleeps() -> (Arc<World>, Arc<FallsAsleep>, Running) {
    let world = Arc::new(World::new());
    world.start("a", -2 * HOUR).await;
    let asleep = Arc::new(FallsAsleep {
        world: world.clone(),
        is_asleep: AtomicBool::new(false),
        woken: Notify::new(),
    });
    let parts = Parts {
        upstream: asleep.clone(),
        ..world.parts()
    };
    let sleeping = run_with(parts, options("a sleeper"));
    let is_asleep = || asleep.is_asleep.load(Ordering::Relaxed);
    world.until("it sleeps", is_asleep).await;
    let guid = world.kept("a").span.processing.planned.unwrap().usage_guid;
    world
        .abacus
        .answer(move |usage| (usage.dedup_id == guid).then(|| refusal("Abacus answered 400")));
    let worker = world.run(&successor_of("a sleeper"));
    world.until_suspended("a").await;
    world.skip("a").await;
    let excluded = world.kept("a").span.processing.excluded;
    assert!(excluded[0].unanswered, "another run was named before");
    world
        .until("it goes on", || world.abacus.sum("a") == HOUR)
        .await;
    world.pass(1_000).await;
    worker.stop().await;
    world.abacus.answer(|_| None);
    (world, asleep, sleeping)
}

/// It is posted after all that. What counts upstream is billed.
#[tokio::test(start_paused = true)]
async fn an_acceptance_beats_a_skip() {
    let (world, asleep, sleeping) = skipped_while_one_sleeps().await;
    asleep.woken.notify_waiters();
    let is_billed = || {
        let processing = world.kept("a").span.processing;
        processing.excluded.is_empty() && processing.again.is_empty()
    };
    world.until("it is billed", is_billed).await;
    sleeping.stop().await;
    assert_eq!(world.abacus.sum("a"), 2 * HOUR);
    world.assert_ledger();
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_comes_too_late_is_dropped() {
    let (world, asleep, sleeping) = skipped_while_one_sleeps().await;
    world.abacus.answer_first([refusal("Abacus answered 451")]);
    let before = world.kept("a").span;
    asleep.woken.notify_waiters();
    world.pass(MINUTE).await;
    sleeping.stop().await;
    assert_eq!(world.kept("a").span, before);
}

/// An operator has skipped the usage of a run that knows nothing of it.
#[tokio::test(start_paused = true)]
async fn a_post_without_an_answer_flags_what_was_excluded_meanwhile() {
    let world = World::new();
    world.start("a", -HOUR).await;
    world
        .abacus
        .answer(|_| Some(refusal("Abacus answered 400")));
    let worker = world.run("w");
    world.until_suspended("a").await;
    let suspended = world.kept("a").span;
    // A probe is under way when its answer is lost and an operator resumes and skips the span.
    *world.abacus.latency.lock().unwrap() = std::time::Duration::from_secs(10);
    world.abacus.answer_first([try_again("connection lost")]);
    let resumed = world.act("a", |span, now| span.to_resume(now).unwrap());
    assert_eq!(resumed.await, Changed::Made);
    let posts = world.abacus.post_count();
    world
        .until("it posts", || world.abacus.post_count() > posts)
        .await;
    let mut again = world.kept("a").span;
    again.processing.failure = suspended.processing.failure;
    world.store.put(again);
    world.skip("a").await;
    assert!(!world.kept("a").span.processing.excluded[0].unanswered);
    let is_flagged = || world.kept("a").span.processing.excluded[0].unanswered;
    world.until("it is flagged", is_flagged).await;
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn where_the_upstream_forgets_nothing_is_posted_by_what_was_read_long_ago() {
    let world = World::new();
    world.abacus.forget_after(24 * HOUR);
    world
        .abacus
        .know(|_| sampler_upstream::LookupAnswer::NotFound);
    world.start("a", -HOUR).await;
    world.abacus.answer_first([sampler_upstream::Answer::Wait {
        after: std::time::Duration::from_mins(20),
    }]);
    let worker = world.run("w");
    world
        .until("it waits", || world.abacus.post_count() == 1)
        .await;
    // Another worker has dealt with it.
    let mut span = world.kept("a").span;
    let planned = span.processing.planned.take().unwrap();
    span.processing.last = planned.interval;
    span.processing.version += 1;
    world.store.put(span);
    world.pass(HOUR / 2).await;
    worker.stop().await;
    assert_eq!(world.abacus.posts_of(&planned.usage_guid, 0), 1);
}

//! A usage that was skipped or set aside is sent again: the same bytes, counted once, and the totals say
//! so, whatever dies in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use sampler_domain::partition::{partition_of, partitions_of};
use sampler_domain::{
    Change, Changed, Entry, EntryState, Id, Interval, Measure, Measures, Planned, Quantity, Span,
    SpanId, StartEvent, Timestamp, Usage,
};
use sampler_store::{EntryKey, Work};
use sampler_store_testing::faulty::{Fault, Faults, FaultyStore};
use sampler_upstream::{Answer, AnswerDate, LookupResult, Posted, Promises, Sought, Upstream};
use sampler_worker::Parts;
use serde_json::json;
use tokio::sync::Notify;
use uuid::Uuid;

use crate::abacus::{refusal, try_again};
use crate::skip::{skip, suspended};
use crate::world::{DAY, HOUR, MINUTE, NOON, World, options, run_with, target};

mod crashes;

/// A span with a usage that was given up, and the entry of that.
async fn skipped(world: &World) -> Entry {
    let span = suspended(world).await;
    let guid = span.processing.planned.clone().unwrap().usage_guid;
    assert_eq!(skip(world, &span).await, Changed::Made);
    let worker = world.run("w");
    world.until_skipped("a").await;
    worker.stop().await;
    world.abacus.answer(|_| None);
    world.entry(&guid)
}

/// The law, when nothing is under way.
fn assert_right(world: &World) {
    let span = world.kept("a").span;
    let totals = &span.processing.totals;
    assert_eq!(totals.billed, world.abacus.sum("a"), "{span:?}");
    assert_eq!(span.difference(), 0);
    let is_noted = |entry: &Entry| entry.span == span.id && entry.version < span.processing.version;
    let noted = world.entries().into_iter().filter(is_noted);
    let (mut billed, mut skipped, mut usages) = (0, 0, 0);
    for entry in noted {
        assert_eq!(entry.resend, None);
        let length = entry.interval.duration();
        if entry.state == EntryState::Skipped {
            skipped += length;
        } else {
            billed += length;
            usages += 1;
        }
    }
    assert_eq!(
        (billed, skipped, usages),
        (totals.billed, totals.skipped, totals.usages)
    );
}

#[tokio::test(start_paused = true)]
async fn a_usage_that_was_given_up_is_sent_again_with_the_same_bytes() {
    let world = World::new();
    let entry = skipped(&world).await;
    let bodies = || {
        let posts = world.abacus.posts.lock().unwrap().clone();
        let of_it = posts.into_iter().map(|(_, body)| body);
        let of_it = of_it.filter(|body| body.contains(&entry.usage_guid));
        of_it.collect::<Vec<String>>()
    };
    let refused = bodies().len();
    assert!(world.send_again(&entry, 7, None).await);
    assert!(!world.send_again(&entry, 8, None).await, "once is enough");
    let worker = world.run("w");
    world.until_settled().await;
    worker.stop().await;
    let mut bodies = bodies();
    assert_eq!(bodies.len(), refused + 1);
    bodies.dedup();
    assert_eq!(bodies.len(), 1, "the same bytes");
    let after = world.entry(&entry.usage_guid);
    assert_eq!(after.state, EntryState::Accepted);
    assert_eq!((after.error, after.skipped_at), (None, entry.skipped_at));
    assert_eq!(world.kept("a").span.processing.totals.skipped, 0);
    assert_right(&world);
    assert!(!world.send_again(&entry, 9, None).await, "Abacus has it");
}

/// What is rebuilt from the ledger is what was planned for the span, whatever was measured.
#[test]
fn a_usage_of_the_ledger_is_that_of_the_span() {
    let quantities = [
        json!(512),
        json!(-0.0),
        json!(1e300),
        json!(0.1),
        json!(u64::MAX),
        json!(i64::MIN),
    ];
    let measure = |(number, quantity): (usize, _)| Measure {
        measure: Id::from_store(format!("m{number}")),
        quantity: Quantity::from_store(quantity),
    };
    let measures: Vec<Measure> = (0..).zip(quantities).map(measure).collect();
    let measures = Measures::from_store(measures);
    let event = StartEvent {
        id: None,
        timestamp: NOON.plus(-2 * HOUR),
        target: target("a"),
        measures,
    };
    let span = Span::open(SpanId::new(NOON, 1), event);
    let interval = Interval {
        start: span.start,
        end: NOON.plus(-HOUR),
    };
    let planned = Planned::new(&span, interval, NOON);
    let usage = Usage::new(&span, &planned);
    let due_at = NOON;
    let span = span.after(&Change::Plan { planned, due_at });
    let entry = Entry::of_planned(&span).unwrap();
    let bytes = |usage: &Usage| serde_json::to_string(usage).unwrap();
    assert_eq!(bytes(&Usage::of_entry(&entry)), bytes(&usage));
}

/// The totals of a complete span are corrected, and nothing is left to do for one that is gone.
#[tokio::test(start_paused = true)]
async fn a_complete_span_is_corrected_and_one_that_is_gone_is_not_needed() {
    for is_gone in [false, true] {
        let world = World::new();
        let entry = skipped(&world).await;
        world.stop("a", 30 * MINUTE).await;
        let worker = world.run("w");
        world.until_complete("a").await;
        worker.stop().await;
        if is_gone {
            let id = world.kept("a").span.id;
            world.store.with(|table| table.remove(&[id]));
        }
        assert!(world.send_again(&entry, 7, None).await);
        let worker = world.run("w");
        world.until_settled().await;
        worker.stop().await;
        let after = world.entry(&entry.usage_guid);
        assert_eq!((after.state, after.resend), (EntryState::Accepted, None));
        let expires_at = world
            .store
            .with(|table| table.entry(&entry.usage_guid).unwrap().expires_at);
        let kept = expires_at.unwrap().since(after.accepted_at.unwrap());
        assert_eq!(kept, 93 * DAY, "from its last answer on");
        if !is_gone {
            assert_right(&world);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_ends_a_resend_and_a_failure_does_not() {
    let world = World::new();
    let entry = skipped(&world).await;
    world.abacus.answer_first([
        try_again("Abacus answered 503"),
        refusal("Abacus answered 422"),
    ]);
    let posts = world.abacus.post_count();
    assert!(world.send_again(&entry, 7, None).await);
    let worker = world.run("w");
    world
        .until("it has failed", || world.abacus.post_count() > posts)
        .await;
    world.pass(MINUTE / 2).await;
    assert_eq!(world.abacus.post_count(), posts + 1, "it waits");
    world.until_settled().await;
    assert_eq!(world.abacus.post_count(), posts + 2);
    let after = world.entry(&entry.usage_guid);
    assert_eq!(after.state, EntryState::Skipped);
    assert_eq!(after.error.as_deref(), Some("Abacus answered 422"));
    world.pass(10 * MINUTE).await;
    assert_eq!(world.abacus.posts_of(&entry.usage_guid, posts), 2);
    assert!(
        world.send_again(&entry, 8, None).await,
        "it can be asked for again"
    );
    world.until_settled().await;
    worker.stop().await;
    assert_right(&world);
}

/// One more usage of the span that is given up: what it has planned next.
async fn another_skipped(world: &World) -> Entry {
    let before = world.kept("a").span.processing.totals.skipped;
    world
        .abacus
        .answer(|_| Some(refusal("Abacus answered 400")));
    let worker = world.run("w");
    world.until_suspended("a").await;
    worker.stop().await;
    let span = world.kept("a").span;
    let guid = span.processing.planned.clone().unwrap().usage_guid;
    assert_eq!(skip(world, &span).await, Changed::Made);
    world.abacus.answer(|_| None);
    let worker = world.run("w");
    let is_noted = || world.kept("a").span.processing.totals.skipped > before;
    world.until("it is skipped", is_noted).await;
    worker.stop().await;
    world.entry(&guid)
}

/// A worker that sleeps between what it has read and the correction counts nothing twice: the other one
/// has done everything, and has corrected another usage after that.
#[tokio::test(start_paused = true)]
async fn a_worker_that_sleeps_counts_no_resend_twice() {
    let world = World::new();
    let first = skipped(&world).await;
    let second = another_skipped(&world).await;
    assert!(world.send_again(&first, 7, None).await);
    let sleeper = Sleeper::default();
    let parts = Parts {
        work: FaultyStore::new(world.store.clone(), sleeper.clone()),
        ..world.parts()
    };
    let sleeping = run_with(parts, options("a sleeper"));
    let is_asleep = || sleeper.is_asleep.load(Ordering::Relaxed);
    world.until("it sleeps", is_asleep).await;
    let worker = world.run("w");
    let key = EntryKey::of(&first);
    // The other one may not own the first partition.
    world
        .store
        .with(|table| table.postpone_resend(&key, Uuid::from_u128(7), first.planned_at));
    let other = run_with(world.parts(), options("another"));
    world.store.leave("a sleeper").await.unwrap();
    world.pass(HOUR / 2).await;
    assert!(world.send_again(&second, 8, None).await);
    world.pass(HOUR / 2).await;
    sleeper.woken.notify_waiters();
    world.pass(MINUTE).await;
    sleeping.stop().await;
    worker.stop().await;
    other.stop().await;
    assert_eq!(world.kept("a").span.processing.totals.skipped, 0);
    assert_right(&world);
}

/// Makes the first correction of totals wait.
#[derive(Clone, Default)]
struct Sleeper {
    is_asleep: Arc<AtomicBool>,
    woken: Arc<Notify>,
}

#[async_trait]
impl Faults for Sleeper {
    async fn fault(&self, method: &'static str, arguments: String) -> Option<Fault> {
        let is_correction = method == "change" && arguments.contains("Resent");
        if is_correction && !self.is_asleep.swap(true, Ordering::Relaxed) {
            self.woken.notified().await;
        }
        None
    }
}

/// A collector whose caller falls asleep when it is about to post a usage for the first time.
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

    async fn ask_time(&self) -> Result<AnswerDate, String> {
        self.world.abacus.ask_time().await
    }
}

/// The gap of a skip: a worker sleeps with a usage in its hands, others see it refused, an operator gives
/// it up, and it is posted after all that. What counts upstream is accepted.
#[tokio::test(start_paused = true)]
async fn a_usage_that_is_posted_after_it_was_given_up_is_accepted() {
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
    let entry = skipped_while_one_sleeps(&world).await;
    assert_eq!(entry.state, EntryState::Skipped);
    let sum = world.abacus.sum("a");
    asleep.woken.notify_waiters();
    let is_accepted = || world.entry(&entry.usage_guid).state == EntryState::Accepted;
    world.until("the ledger says so", is_accepted).await;
    world.until_settled().await;
    sleeping.stop().await;
    assert!(world.abacus.sum("a") >= sum + entry.interval.duration());
    assert_eq!(world.kept("a").span.processing.totals.skipped, 0);
    assert_right(&world);
}

/// The name of a worker that owns the span beside this other one.
fn successor_of(other: &str) -> String {
    let (partition, others) = (partition_of(&target("a")), [other.to_owned()]);
    let owns = |name: &String| partitions_of(name, &others).contains(&partition);
    let mut names = (0..).map(|number| format!("w{number}"));
    names.find(owns).expect("one of them does")
}

async fn skipped_while_one_sleeps(world: &World) -> Entry {
    let guid = world.kept("a").span.processing.planned.unwrap().usage_guid;
    let refused = guid.clone();
    world
        .abacus
        .answer(move |usage| (usage.dedup_id == refused).then(|| refusal("Abacus answered 400")));
    let worker = world.run(&successor_of("a sleeper"));
    world.until_suspended("a").await;
    let span = world.kept("a").span;
    assert_eq!(skip(world, &span).await, Changed::Made);
    world.until_skipped("a").await;
    worker.stop().await;
    world.abacus.answer(|_| None);
    world.entry(&guid)
}

/// Nothing is given up while a post of it may be on its way, and nothing is posted by what was read long
/// ago.
#[tokio::test(start_paused = true)]
async fn a_usage_is_given_up_once_no_post_of_it_is_on_its_way() {
    let world = World::new();
    let span = suspended(&world).await;
    let guid = span.processing.planned.clone().unwrap().usage_guid;
    let suspended_at = span.processing.suspended.unwrap().since;
    assert_eq!(skip(&world, &span).await, Changed::Made);
    // A stop makes the span due before that.
    world.stop("a", -HOUR).await;
    let worker = world.run("w");
    world.until_skipped("a").await;
    worker.stop().await;
    let waited = world.clock_now().since(suspended_at);
    assert!(waited >= sampler_domain::SKIP_DELAY, "{waited} ms");
    // All the while the ledger says that it is refused, also when it is asked later.
    let entry = world.entry(&guid);
    let not_before = suspended_at.plus(sampler_domain::SKIP_DELAY);
    assert_eq!(entry.as_of(not_before.plus(-1)), Some(EntryState::Refused));
    assert_eq!(entry.as_of(world.clock_now()), Some(EntryState::Skipped));
}

/// A worker that waits for its turn to post for long reads the span again before it does.
#[tokio::test(start_paused = true)]
async fn nothing_is_posted_by_what_was_read_long_ago() {
    let world = World::new();
    world.start("a", -2 * HOUR).await;
    world.abacus.answer_first([Answer::Wait {
        after: Duration::from_mins(20),
    }]);
    let worker = world.run("w");
    world
        .until("it waits", || world.abacus.post_count() == 1)
        .await;
    let span = world.kept("a").span;
    let planned = span.processing.planned.clone().unwrap();
    // Others have dealt with it: the usage is refused, suspended, and given up.
    let failure = sampler_store_testing::support::last_refusal("none", 0);
    let failed = Change::failed(&span, failure);
    let changed = world.store.change(&span, &failed, world.clock_now()).await;
    assert_eq!(changed.unwrap(), Changed::Made);
    assert_eq!(skip(&world, &world.kept("a").span).await, Changed::Made);
    world.until_skipped("a").await;
    world.pass(HOUR / 2).await;
    worker.stop().await;
    let posts = world.abacus.posts_of(&planned.usage_guid, 0);
    assert_eq!(posts, 1, "what was given up is not posted");
    let entry = world.entry(&planned.usage_guid);
    assert_eq!(entry.state, EntryState::Skipped);
    assert_right(&world);
}

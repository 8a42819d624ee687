//! Usages that Abacus has accepted are watched until they count or are missing. No span changes by it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use sampler_service::environment::Clock;
use sampler_settings::ConfirmSettings;
use sampler_store::{Operating, Watch};
use sampler_store_testing::faulty::{Fault, Faults, FaultyStore};
use sampler_store_testing::memory::MemoryStore;
use sampler_upstream::{Answer, LookupAnswer};
use sampler_worker::{Options, Parts};

use crate::abacus::{refusal, try_again};
use crate::world::{HOUR, MINUTE, Running, World, options, run_with};

/// Asks after a minute, each minute, for two hours.
fn watching(name: &str) -> Options {
    let mut options = options(name);
    options.periods.confirmation = Duration::from_mins(1);
    options.settings.confirm = ConfirmSettings {
        enabled: true,
        timeout: Duration::from_hours(2),
    };
    options
}

fn run(world: &World, name: &str) -> Running {
    run_with(world.parts(), watching(name))
}

fn failed(after: Option<Duration>) -> LookupAnswer {
    LookupAnswer::Failed {
        after,
        error: "Abacus answered 503".to_owned(),
    }
}

fn watches(world: &World) -> Vec<Watch> {
    world.store.with(|table| table.watches().cloned().collect())
}

fn missing(world: &World) -> usize {
    let watches = watches(world);
    watches.iter().filter(|it| it.missing.is_some()).count()
}

async fn until_missing(world: &World, count: usize) {
    let are_missing = || missing(world) == count;
    world.until("they are missing", are_missing).await;
}

async fn until_all_count(world: &World) {
    let all_count = || watches(world).is_empty();
    world.until("all count", all_count).await;
}

/// Abacus does not find usages until they are known.
fn know_later(world: &World, before: LookupAnswer) -> Arc<AtomicBool> {
    let is_known = Arc::new(AtomicBool::new(false));
    let known = Arc::clone(&is_known);
    world.abacus.know(move |_| {
        if known.load(Ordering::Relaxed) {
            LookupAnswer::Counts
        } else {
            before.clone()
        }
    });
    is_known
}

#[tokio::test(start_paused = true)]
async fn a_usage_is_asked_for_until_abacus_knows_it() {
    let world = World::new();
    let is_known = know_later(&world, LookupAnswer::NotFound);
    world.start("i", -3 * HOUR).await;
    let worker = run(&world, "w");
    world.pass(10 * MINUTE).await;
    assert_eq!(watches(&world).len(), 3);
    let mut questions: BTreeMap<String, usize> = BTreeMap::new();
    for usage in world.abacus.asked.lock().unwrap().iter() {
        *questions.entry(usage.clone()).or_default() += 1;
    }
    for (usage, times) in questions {
        assert!((8..=10).contains(&times), "{usage} {times} times");
    }
    let before = world.kept("i");
    is_known.store(true, Ordering::Relaxed);
    until_all_count(&world).await;
    let asked = world.abacus.asked_count();
    world.pass(30 * MINUTE).await;
    assert_eq!(world.abacus.asked_count(), asked, "nothing is asked again");
    worker.stop().await;
    assert_eq!(world.kept("i"), before);
    world.assert_ledger();
}

#[tokio::test(start_paused = true)]
async fn a_usage_that_was_set_aside_is_missing_and_the_span_stays_as_it_is() {
    let world = World::new();
    let mut first = None;
    world.abacus.know(move |usage| {
        let first = first.get_or_insert_with(|| usage.to_owned());
        if first == usage {
            let error = "the month is closed".to_owned();
            LookupAnswer::SetAside { error }
        } else {
            LookupAnswer::Counts
        }
    });
    world.start("i", -4 * HOUR).await;
    let worker = run(&world, "w");
    until_missing(&world, 1).await;
    world
        .until("the rest counts", || watches(&world).len() == 1)
        .await;
    let asked = world.abacus.asked_count();
    world.pass(30 * MINUTE).await;
    assert_eq!(world.abacus.asked_count(), asked);
    let watch = watches(&world).remove(0);
    let missing = watch.missing.unwrap();
    assert_eq!(missing.error, "the month is closed");
    assert!(missing.since > watch.accepted_at);
    let span = world.kept("i").span;
    assert_eq!(span.suspension(), None);
    assert!(span.processing.excluded.is_empty());
    worker.stop().await;
    world.assert_ledger();
}

#[tokio::test(start_paused = true)]
async fn a_usage_that_is_not_there_in_time_is_missing() {
    let world = World::new();
    world.abacus.know(|usage| match usage.as_bytes()[0] % 2 {
        0 => LookupAnswer::NotFound,
        _ => LookupAnswer::Mismatch {
            error: "the answer is the document of another usage".to_owned(),
        },
    });
    for instance in 0..8 {
        let instance = instance.to_string();
        world.start(&instance, -HOUR).await;
        world.stop(&instance, 0).await;
    }
    let worker = run(&world, "w");
    world.pass(HOUR + 50 * MINUTE).await;
    assert_eq!((watches(&world).len(), missing(&world)), (8, 0));
    world.pass(15 * MINUTE).await;
    assert_eq!(missing(&world), 8);
    worker.stop().await;
}

/// What nobody answers says nothing about a usage.
#[tokio::test(start_paused = true)]
async fn while_abacus_is_away_nothing_is_missing_and_little_is_asked() {
    let world = World::new();
    let is_back = know_later(&world, failed(None));
    world.start("i", -40 * HOUR).await;
    world.stop("i", 0).await;
    let worker = run(&world, "w");
    world.pass(3 * HOUR).await;
    assert_eq!((watches(&world).len(), missing(&world)), (40, 0));
    let rate = world.abacus.asked_count() / (3 * 60);
    assert!(rate <= 100, "{rate} questions in a minute");
    is_back.store(true, Ordering::Relaxed);
    until_all_count(&world).await;
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_respected_for_questions_alone() {
    let after = Duration::from_mins(20);
    for answer in [LookupAnswer::Wait { after }, failed(Some(after))] {
        let world = World::new();
        let is_over = know_later(&world, answer);
        world.start_all("i", 40, -HOUR).await;
        let worker = run(&world, "w");
        world
            .until("something is asked", || world.abacus.asked_count() > 0)
            .await;
        world.pass(19 * MINUTE).await;
        let asked = world.abacus.asked_count();
        assert!(asked <= 16, "{asked} questions");
        is_over.store(true, Ordering::Relaxed);
        world.start("new", -HOUR).await;
        world
            .until("posts go on", || world.abacus.sum("new") == HOUR)
            .await;
        until_all_count(&world).await;
        worker.stop().await;
    }
}

/// It says nowhere where the usage is.
#[tokio::test(start_paused = true)]
async fn without_a_location_and_where_nothing_is_watched_there_is_no_watch() {
    for is_on in [true, false] {
        let world = World::new();
        if !is_on {
            world.abacus.know(|_| LookupAnswer::Counts);
        }
        world.start("i", -HOUR).await;
        let mut options = watching("w");
        options.settings.confirm.enabled = is_on;
        let worker = run_with(world.parts(), options);
        world
            .until("it is posted", || world.abacus.sum("i") == HOUR)
            .await;
        world.pass(MINUTE).await;
        assert_eq!(watches(&world), []);
        worker.stop().await;
    }
}

/// Then nobody asks any more.
#[tokio::test(start_paused = true)]
async fn a_worker_that_is_not_to_watch_ends_the_watches_of_others() {
    let world = World::new();
    world.abacus.know(|_| LookupAnswer::NotFound);
    world.start("i", -HOUR).await;
    let worker = run(&world, "w");
    world
        .until("it is watched", || watches(&world).len() == 1)
        .await;
    worker.stop().await;
    let worker = world.run("w");
    until_all_count(&world).await;
    worker.stop().await;
    assert_eq!(world.abacus.asked_count(), 0);
}

/// Others read a watch before it is claimed.
struct SlowClaims;

#[async_trait]
impl Faults for SlowClaims {
    async fn fault(&self, method: &'static str, _: String) -> Option<Fault> {
        if method == "claim_watch" {
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        None
    }
}

/// A worker that knows of no other, and owns all partitions.
fn run_alone(world: &World, name: &str) -> Running {
    let clock = world.clock.clone();
    let parts = Parts {
        work: Arc::new(MemoryStore::new(move || clock.now())),
        ledger: FaultyStore::new(world.store.clone(), SlowClaims),
        ..world.parts()
    };
    run_with(parts, watching(name))
}

/// A usage of a complete span that was set aside, and is to be sent again. Its span may be gone.
async fn set_aside(is_gone: bool) -> (World, String) {
    let world = World::new();
    world.abacus.know(|_| LookupAnswer::SetAside {
        error: "the plan is unknown".to_owned(),
    });
    world.start("i", -HOUR).await;
    world.stop("i", 0).await;
    let worker = run(&world, "w");
    until_missing(&world, 1).await;
    worker.stop().await;
    if is_gone {
        let id = world.kept("i").span.id;
        world.store.with(|table| table.remove(&[id]));
    }
    let usage = watches(&world).remove(0).usage_guid;
    let now = world.clock_now();
    assert!(world.store.resend_missing(&usage, now).await.unwrap());
    (world, usage)
}

#[tokio::test(start_paused = true)]
async fn a_missing_usage_is_sent_again_with_the_same_bytes_and_watched_anew() {
    for is_gone in [true, false] {
        let (world, usage) = set_aside(is_gone).await;
        let is_known = know_later(&world, LookupAnswer::NotFound);
        let workers = ["w", "x", "y"].map(|name| run_alone(&world, name));
        world
            .until("it is sent", || world.abacus.post_count() == 2)
            .await;
        world.pass(2 * MINUTE).await;
        let bodies = world.abacus.bodies(&usage);
        assert_eq!(bodies.len(), 2, "one worker alone sends it");
        assert_eq!(bodies[0], bodies[1]);
        let watch = watches(&world).remove(0);
        assert_eq!((watch.missing, watch.is_resent), (None, false));
        assert!(world.clock_now().since(watch.accepted_at) < 3 * MINUTE);
        is_known.store(true, Ordering::Relaxed);
        until_all_count(&world).await;
        for worker in workers {
            worker.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_ends_a_resend_and_a_failure_does_not() {
    let (world, usage) = set_aside(false).await;
    world
        .abacus
        .answer_first([try_again("Abacus answered 503"), refusal("no plan")]);
    let worker = run(&world, "w");
    world
        .until("it has failed", || world.abacus.post_count() == 2)
        .await;
    world.pass(MINUTE / 2).await;
    assert_eq!(world.abacus.post_count(), 2, "it waits");
    let is_refused = || {
        let watch = watches(&world).remove(0);
        !watch.is_resent && watch.missing.is_some_and(|it| it.error == "no plan")
    };
    world.until("it is refused", is_refused).await;
    world.pass(10 * MINUTE).await;
    assert_eq!(world.abacus.bodies(&usage).len(), 3);
    worker.stop().await;
}

/// Posts and questions have limits of their own.
#[tokio::test(start_paused = true)]
async fn a_resend_waits_as_the_upstream_asks() {
    let (world, _) = set_aside(false).await;
    world.abacus.answer_first([Answer::Wait {
        after: Duration::from_mins(30),
    }]);
    let worker = run(&world, "w");
    world.pass(29 * MINUTE).await;
    assert_eq!(world.abacus.post_count(), 2);
    until_missing(&world, 0).await;
    worker.stop().await;
}

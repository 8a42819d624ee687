//! Spans that Abacus refuses are suspended by cause, probed one at a time, and go on together.

mod crowds;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sampler_domain::{SUSPENDED_DUE_AT, Span, SpanId, StartEvent};
use sampler_store_testing::memory::StoredSpan;
use sampler_store_testing::support;
use sampler_upstream::Answer;

use crate::abacus::{refusal, try_again};
use crate::world::{DAY, HOUR, MINUTE, NOON, World, target};

/// Abacus refuses all usages of instances whose names begin so, until that is over.
fn refuse(world: &World, prefix: &'static str) -> Arc<AtomicBool> {
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    world.abacus.answer(move |usage| {
        let is_meant = usage
            .target
            .resource_instance_id
            .as_str()
            .starts_with(prefix);
        (is_meant && !over.load(Ordering::Relaxed))
            .then(|| refusal("Abacus answered 404: no mapping"))
    });
    is_over
}

fn suspended(world: &World) -> usize {
    let of = |kept: &&StoredSpan| kept.span.suspension().is_some();
    world.store.all().iter().filter(of).count()
}

#[tokio::test(start_paused = true)]
async fn a_span_is_suspended_after_three_refusals_and_goes_on_when_one_is_accepted() {
    let world = World::new();
    for number in 0..5 {
        world.start(&format!("bad {number}"), -2 * HOUR).await;
    }
    let over = refuse(&world, "bad");
    let worker = world.run("w");
    world
        .until("all are suspended", || suspended(&world) == 5)
        .await;
    assert_eq!(world.abacus.post_count(), 15);
    assert_eq!(world.causes().await.len(), 1);
    // Of five there is one post in ten minutes.
    world.pass(61 * MINUTE).await;
    let probes = world.abacus.post_count() - 15;
    assert!((5..=6).contains(&probes), "{probes} probes");
    assert_eq!(suspended(&world), 5);
    over.store(true, Ordering::Relaxed);
    let done = || (0..5).all(|number| world.abacus.sum(&format!("bad {number}")) >= 3 * HOUR);
    let began = world.clock_now();
    world.until("all are through", done).await;
    let took = world.clock_now().since(began);
    assert!(took <= 11 * MINUTE, "{took} ms");
    worker.stop().await;
}

/// A probe that finds nobody there neither ends nor renews the suspension. While Abacus is away, one
/// more span is tried in each interval.
#[tokio::test(start_paused = true)]
async fn a_probe_that_finds_nobody_there_gives_way_after_an_interval() {
    let world = World::new();
    for number in 0..20 {
        world.start(&format!("bad {number}"), -HOUR).await;
    }
    refuse(&world, "bad");
    let worker = world.run("w");
    world
        .until("all are suspended", || suspended(&world) == 20)
        .await;
    world
        .abacus
        .answer(|_| Some(try_again("Abacus answered 503")));
    world.pass(2 * HOUR).await;
    let probing = |kept: &&StoredSpan| kept.span.processing.probe.is_some();
    let count = world.store.all().iter().filter(probing).count();
    assert!((11..=12).contains(&count), "{count} probes");
    assert_eq!(suspended(&world), 20 - count);
    world.abacus.answer(|_| None);
    let done = || (0..20).all(|number| world.abacus.sum(&format!("bad {number}")) >= 2 * HOUR);
    world.until("all are through", done).await;
    worker.stop().await;
}

/// One span whose own usage always fails does not keep all others of its cause waiting.
#[tokio::test(start_paused = true)]
async fn a_probe_that_never_gets_an_answer_blocks_no_other() {
    let world = World::new();
    for number in 0..5 {
        world.start(&format!("bad {number}"), -HOUR).await;
    }
    refuse(&world, "bad");
    let worker = world.run("w");
    world
        .until("all are suspended", || suspended(&world) == 5)
        .await;
    let first = Mutex::new(None);
    world.abacus.answer(move |usage| {
        let instance = usage.target.resource_instance_id.clone();
        let mut first = first.lock().unwrap();
        (*first.get_or_insert_with(|| instance.clone()) == instance)
            .then(|| try_again("Abacus answered 503"))
    });
    world.pass(25 * MINUTE).await;
    assert_eq!(suspended(&world), 0);
    let billed = (0..5).filter(|number| world.abacus.sum(&format!("bad {number}")) >= HOUR);
    assert_eq!(billed.count(), 4);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn causes_are_told_apart_by_error_and_plan_and_go_on_alone() {
    let world = World::new();
    for name in ["licence", "mapping"] {
        for number in 0..3 {
            world.start(&format!("{name} {number}"), -HOUR).await;
        }
    }
    world.abacus.answer(|usage| {
        let instance = usage.target.resource_instance_id.as_str();
        let name = instance.split(' ').next().unwrap_or_default();
        let error = format!("Abacus answered 400: no {name}");
        Some(Answer::Refused { error })
    });
    let worker = world.run("w");
    world
        .until("all are suspended", || suspended(&world) == 6)
        .await;
    assert_eq!(world.causes().await.len(), 2);
    refuse(&world, "licence");
    world.pass(30 * MINUTE).await;
    assert_eq!(suspended(&world), 3);
    assert_eq!(world.abacus.sum("mapping 2"), HOUR);
    assert_eq!(world.abacus.sum("licence 2"), 0);
    worker.stop().await;
}

/// The stop makes the span due; nothing is posted for it before its cause has gone.
#[tokio::test(start_paused = true)]
async fn a_stop_of_a_suspended_span_is_kept_and_waits() {
    let world = World::new();
    world.start("bad", -2 * HOUR).await;
    let over = refuse(&world, "bad");
    let worker = world.run("w");
    world
        .until("it is suspended", || suspended(&world) == 1)
        .await;
    let before = world.abacus.post_count();
    world.stop("bad", -HOUR - MINUTE).await;
    world.pass(MINUTE).await;
    assert_eq!(world.abacus.post_count(), before);
    let due_at = world.kept("bad").span.processing.due_at;
    assert_eq!(due_at, SUSPENDED_DUE_AT);
    over.store(true, Ordering::Relaxed);
    world.until_complete("bad").await;
    assert_eq!(world.abacus.sum("bad"), HOUR - MINUTE);
    worker.stop().await;
}

/// Whatever dies between the success of the probe and the others: the next worker continues.
#[tokio::test(start_paused = true)]
async fn workers_that_die_lose_no_success_of_a_probe() {
    let world = World::new();
    for number in 0..30 {
        world.start(&format!("bad {number}"), -HOUR).await;
    }
    let over = refuse(&world, "bad");
    let first = world.run("first");
    world
        .until("all are suspended", || suspended(&world) == 30)
        .await;
    over.store(true, Ordering::Relaxed);
    first.kill();
    *world.abacus.latency.lock().unwrap() = Duration::from_millis(300);
    for life in 0..20 {
        let worker = world.run(&format!("life {life}"));
        world.pass(35_000 + life * 97).await;
        worker.kill();
    }
    let worker = world.run("last");
    let done = || (0..30).all(|number| world.abacus.sum(&format!("bad {number}")) >= HOUR);
    let began = world.clock_now();
    world.until("all are through", done).await;
    assert_eq!(suspended(&world), 0);
    // One by one, with a probe for each, they would take hours.
    let took = world.clock_now().since(began);
    assert!(took <= 11 * MINUTE, "{took} ms");
    worker.stop().await;
}

/// A run probes what it finds at first at once; what is suspended later waits for an interval.
#[tokio::test(start_paused = true)]
async fn a_cause_is_probed_by_a_run_that_has_not_seen_it_begin() {
    let world = World::new();
    suspend_many(&world, 3);
    let worker = world.run("w");
    world.pass(MINUTE).await;
    assert_eq!(suspended(&world), 0);
    world.start("bad", -HOUR).await;
    world
        .abacus
        .answer(|_| Some(refusal("Abacus answered 451: licence")));
    world
        .until("it is suspended", || suspended(&world) == 1)
        .await;
    let posts = world.abacus.post_count();
    world.pass(9 * MINUTE).await;
    assert_eq!(world.abacus.post_count(), posts);
    world.pass(2 * MINUTE).await;
    assert_eq!(world.abacus.post_count(), posts + 1);
    worker.stop().await;
}

/// Puts spans in that were suspended a day ago, each an hour long.
fn suspend_many(world: &World, count: i64) {
    let then = NOON.plus(-DAY);
    for number in 0..count {
        let event = StartEvent {
            id: None,
            timestamp: then,
            target: target(&format!("many {number}")),
            measures: sampler_domain::Measures::default(),
        };
        let id = SpanId::new(NOON, number.unsigned_abs());
        let mut span = Span::open(id, event, then);
        span.end = Some(then.plus(HOUR));
        let span = support::next(&span, 0).after;
        let refusal = support::refusal("Abacus answered 404: no mapping", -DAY);
        world.store.put(support::failed(&span, refusal).after);
    }
}

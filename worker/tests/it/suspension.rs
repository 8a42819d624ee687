//! Spans that Abacus refuses are suspended by cause, probed one at a time, and go on together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sampler_domain::{Measures, Span, SpanId, StartEvent};
use sampler_settings::Settings;
use sampler_store::Work;
use sampler_store_testing::memory::StoredSpan;
use sampler_store_testing::support;
use sampler_worker::Options;

use crate::abacus::{refusal, try_again};
use crate::world::{DAY, HOUR, MINUTE, NOON, World, options, run_with, target};

/// Abacus refuses all usages until that is over.
fn refuse(world: &World) -> Arc<AtomicBool> {
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    world.abacus.answer(move |_| {
        let refuses = !over.load(Ordering::Relaxed);
        refuses.then(|| refusal("Abacus answered 404: no mapping"))
    });
    is_over
}

fn suspended(world: &World) -> usize {
    let of = |kept: &&StoredSpan| kept.span.suspension().is_some();
    world.store.all().iter().filter(of).count()
}

async fn until_suspended(world: &World, count: usize) {
    let are_suspended = || suspended(world) == count;
    world.until("all are suspended", are_suspended).await;
}

#[tokio::test(start_paused = true)]
async fn a_span_is_suspended_after_three_refusals_and_goes_on_when_one_is_accepted() {
    let world = World::new();
    world.start_all("bad", 5, -2 * HOUR).await;
    let over = refuse(&world);
    let worker = world.run("w");
    until_suspended(&world, 5).await;
    assert_eq!(world.abacus.post_count(), 15);
    assert_eq!(world.store.suspended_causes(100).await.unwrap().len(), 1);
    // Of five there is one post in ten minutes.
    world.pass(61 * MINUTE).await;
    let probes = world.abacus.post_count() - 15;
    assert!((5..=6).contains(&probes), "{probes} probes");
    assert_eq!(suspended(&world), 5);
    over.store(true, Ordering::Relaxed);
    let began = world.clock_now();
    world.until_billed("bad", 5, 3 * HOUR).await;
    let took = world.clock_now().since(began);
    assert!(took <= 11 * MINUTE, "{took} ms");
    worker.stop().await;
}

/// A probe that finds nobody there neither ends nor renews the suspension, and keeps no other span of its cause
/// waiting. While Abacus is away, one more span is tried in each interval.
#[tokio::test(start_paused = true)]
async fn a_probe_that_finds_nobody_there_gives_way_after_an_interval() {
    let world = World::new();
    world.start_all("bad", 20, -HOUR).await;
    refuse(&world);
    let worker = world.run("w");
    until_suspended(&world, 20).await;
    world
        .abacus
        .answer(|_| Some(try_again("Abacus answered 503")));
    world.pass(2 * HOUR).await;
    let probing = |kept: &&StoredSpan| kept.span.processing.probe.is_some();
    let count = world.store.all().iter().filter(probing).count();
    assert!((11..=12).contains(&count), "{count} probes");
    assert_eq!(suspended(&world), 20 - count);
    world.abacus.answer(|_| None);
    world.until_billed("bad", 20, 2 * HOUR).await;
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn causes_are_told_apart_by_error_and_plan_and_go_on_alone() {
    let world = World::new();
    for name in ["licence", "mapping"] {
        world.start_all(name, 3, -HOUR).await;
    }
    let is_mapped = Arc::new(AtomicBool::new(false));
    let mapped = Arc::clone(&is_mapped);
    world.abacus.answer(move |usage| {
        let instance = usage.target.resource_instance_id.as_str();
        let lacks = instance.split(' ').next().unwrap_or_default();
        let is_refused = lacks == "licence" || !mapped.load(Ordering::Relaxed);
        is_refused.then(|| refusal(&format!("Abacus answered 400: no {lacks}")))
    });
    let worker = world.run("w");
    until_suspended(&world, 6).await;
    assert_eq!(world.store.suspended_causes(100).await.unwrap().len(), 2);
    is_mapped.store(true, Ordering::Relaxed);
    world.pass(30 * MINUTE).await;
    assert_eq!(suspended(&world), 3);
    assert_eq!(world.abacus.sum("mapping 2"), HOUR);
    assert_eq!(world.abacus.sum("licence 2"), 0);
    worker.stop().await;
}

/// Whatever dies between the success of the probe and the others: the next worker continues.
#[tokio::test(start_paused = true)]
async fn workers_that_die_lose_no_success_of_a_probe() {
    let world = World::new();
    world.start_all("bad", 30, -HOUR).await;
    let over = refuse(&world);
    let first = world.run("first");
    until_suspended(&world, 30).await;
    over.store(true, Ordering::Relaxed);
    first.kill();
    *world.abacus.latency.lock().unwrap() = Duration::from_millis(300);
    for life in 0..20 {
        let worker = world.run(&format!("life {life}"));
        world.pass(35_000 + life * 97).await;
        worker.kill();
    }
    let worker = world.run("last");
    let began = world.clock_now();
    world.until_billed("bad", 30, HOUR).await;
    assert_eq!(suspended(&world), 0);
    // One by one, with a probe for each, they would take hours.
    let took = world.clock_now().since(began);
    assert!(took <= 11 * MINUTE, "{took} ms");
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_suspended_spans_cost_one_probe_and_resume_within_a_minute() {
    let world = World::new();
    for number in 0..10_000 {
        world.store.put(suspended_yesterday(number));
    }
    let over = refuse(&world);
    let worker = run_with(world.parts(), large("w"));
    // The first probe is due at once; a search finds it at once, or after its interval.
    world.pass(6 * MINUTE).await;
    let before = world.abacus.post_count();
    world.pass(HOUR).await;
    let posts = world.abacus.post_count() - before;
    assert_eq!(posts, 6, "one for each ten minutes");
    over.store(true, Ordering::Relaxed);
    let counted = || world.abacus.counted.lock().unwrap().len();
    world.until("the first success", || counted() > 0).await;
    let began = world.clock_now();
    until_suspended(&world, 0).await;
    let took = world.clock_now().since(began);
    assert!(took <= MINUTE, "{took} ms");
    worker.kill();
}

/// An hour long.
fn suspended_yesterday(number: u64) -> Span {
    let then = NOON.plus(-DAY);
    let event = StartEvent {
        id: None,
        timestamp: then,
        target: target(&format!("many {number}")),
        measures: Measures::default(),
    };
    let mut span = Span::open(SpanId::new(NOON, number), event, then);
    span.end = Some(then.plus(HOUR));
    let span = support::next(&span, 0).after;
    let refusal = support::refusal("Abacus answered 404: no mapping", -DAY);
    support::failed(&span, refusal).after
}

fn large(name: &str) -> Options {
    let mut options = options(name);
    let defaults = Settings::worker();
    let settings = &mut options.settings;
    (settings.delivery, settings.cleanup) = (defaults.delivery, defaults.cleanup);
    settings.delivery.concurrency = 1_000;
    settings.processing = defaults.processing;
    settings.processing.concurrency = 10_000;
    settings.processing.batch_size = 10_000;
    // The store in memory reads all spans for each search.
    settings.processing.interval = Duration::from_mins(5);
    settings.cleanup.interval = Duration::from_mins(30);
    options
}

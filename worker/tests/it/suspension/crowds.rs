//! Many suspended spans.

use std::sync::atomic::Ordering;
use std::time::Duration;

use sampler_settings::worker::{CleanupSettings, DeliverySettings, ProcessingSettings};
use sampler_store::Causes;
use sampler_worker::Options;

use super::{refuse, suspend_many};
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

#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_suspended_spans_cost_one_probe_and_resume_within_a_minute() {
    const SPANS: i64 = 100_000;
    let world = World::new();
    suspend_many(&world, SPANS, true);
    let over = refuse(&world, "many");
    let worker = run_with(world.parts(), large("w"));
    // The first probe is due at once; a search finds it at once, or after its interval.
    world.pass(6 * MINUTE).await;
    let before = world.abacus.post_count();
    world.pass(HOUR).await;
    let posts = world.abacus.post_count() - before;
    assert_eq!(posts, 6, "one for each ten minutes");
    over.store(true, Ordering::Relaxed);
    let id = world.causes()[0].id;
    let is_resuming = || world.causes()[0].resuming.is_some();
    world.until("the first success", is_resuming).await;
    let is_resumed = || world.store.with(|table| table.count_suspended(id)) == 0;
    let began = world.clock_now();
    world.until("all go on", is_resumed).await;
    let took = world.clock_now().since(began);
    assert!(took <= MINUTE, "{took} ms");
    worker.kill();
}

fn large(name: &str) -> Options {
    let mut options = options(name);
    let settings = &mut options.settings;
    settings.delivery = DeliverySettings {
        concurrency: 1_000,
        ..DeliverySettings::default()
    };
    settings.processing = ProcessingSettings {
        concurrency: 10_000,
        batch_size: 10_000,
        // The store in memory reads all spans for each search.
        interval: Duration::from_mins(5),
        ..ProcessingSettings::default()
    };
    settings.cleanup = CleanupSettings {
        interval: Duration::from_mins(30),
        ..CleanupSettings::default()
    };
    options
}

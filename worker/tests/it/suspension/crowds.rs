//! Many suspended spans.

use std::sync::atomic::Ordering;
use std::time::Duration;

use sampler_settings::Settings;
use sampler_store::{Operating, Resumption};
use sampler_worker::Options;

use super::{refuse, suspend_many};
use crate::world::{HOUR, MINUTE, World, options, run_with};

#[tokio::test(start_paused = true)]
async fn spans_that_go_on_have_their_turn_behind_what_waits_longer() {
    let world = World::new();
    suspend_many(&world, 50);
    for number in 0..50 {
        world.start(&format!("waits {number}"), -20 * HOUR).await;
    }
    *world.abacus.latency.lock().unwrap() = Duration::from_secs(1);
    let cause = world.causes().await[0];
    let now = world.clock_now();
    let terms = Resumption { now, refusals: 2 };
    let resumed = world.store.resume_batch(cause, now, terms, 1_000);
    assert_eq!(resumed.await.unwrap(), 50);
    let worker = world.run("w");
    let waiting = || (0..50).all(|number| world.abacus.sum(&format!("waits {number}")) >= HOUR);
    world.until("all that wait had a turn", waiting).await;
    let gone_on = world.abacus.posts_of("many", 0);
    assert!(gone_on <= 8, "{gone_on} of those that went on were first");
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_suspended_spans_cost_one_probe_and_resume_within_a_minute() {
    const SPANS: i64 = 10_000;
    let world = World::new();
    suspend_many(&world, SPANS);
    let over = refuse(&world, "many");
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
    let is_resumed = || super::suspended(&world) == 0;
    let began = world.clock_now();
    world.until("all go on", is_resumed).await;
    let took = world.clock_now().since(began);
    assert!(took <= MINUTE, "{took} ms");
    worker.kill();
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

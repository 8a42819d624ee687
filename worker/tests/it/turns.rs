//! How long a span keeps its permit: a long backlog keeps no other span waiting.

use std::time::Duration;

use sampler_domain::{Granularity, Timestamp};
use sampler_worker::Options;
use tokio::time::Instant;

use crate::world::{DAY, HOUR, MINUTE, NOON, Running, World, options, run_with};

/// From the noon at which the world begins to the end of its month.
const MONTH_END: i64 = 21 * DAY + 12 * HOUR;

/// How long Abacus takes for a usage, ms.
const POST: i64 = 20;

/// Slots of the worker, which are also the posts that it may have in flight.
const SLOTS: i64 = 8;

/// Intervals of a turn.
const TURN: i64 = 32;

/// By minutes, with as many posts in flight as there are permits.
fn by_minutes() -> Options {
    let mut options = options("w");
    options.settings.sampling.dimension = Some(Granularity::Minute);
    options.settings.delivery.concurrency = usize::try_from(SLOTS).unwrap();
    options.settings.processing.concurrency = usize::try_from(SLOTS).unwrap();
    options
}

fn names(what: &str, count: i64) -> Vec<String> {
    (0..count)
        .map(|number| format!("{what} {number}"))
        .collect()
}

/// A world whose Abacus takes its time, `before_end` ms before the end of the month.
async fn world_before_the_end(before_end: i64) -> World {
    let world = World::new();
    *world.abacus.latency.lock().unwrap() = Duration::from_millis(POST.unsigned_abs());
    world.pass(MONTH_END - before_end).await;
    world
}

/// Starts `ago` ms before the end of the month.
async fn start_all(world: &World, names: &[String], ago: i64) {
    for name in names {
        world.start(name, MONTH_END - ago).await;
    }
}

fn run(world: &World) -> Running {
    run_with(world.parts(), by_minutes())
}

fn sampled_to(world: &World, name: &str) -> Timestamp {
    world.kept(name).span.sampled_to()
}

/// When, in ms after the end of the month, the last of these was sampled to it.
async fn all_through(world: &World, names: &[String]) -> i64 {
    let end = NOON.plus(MONTH_END);
    let mut behind: Vec<&String> = names.iter().collect();
    while let Some(name) = behind.last() {
        if sampled_to(world, name) >= end {
            behind.pop();
        } else {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let waited = world.clock_now().since(end);
        assert!(waited < 2 * HOUR, "{} wait for ever", behind.len());
    }
    world.clock_now().since(end)
}

/// Late starts of 20 days by minutes, and ordinary spans, each with one interval of the month when
/// it ends: how long after that all of the ordinary ones are through.
async fn ordinary_spans_behind(backlogs: i64, ordinary: i64) -> i64 {
    let world = world_before_the_end(10_000).await;
    let ordinary = names("ordinary", ordinary);
    start_all(&world, &ordinary, MINUTE).await;
    start_all(&world, &names("late", backlogs), 20 * DAY).await;
    let worker = run(&world);
    world.pass(10_000).await;
    let waited = all_through(&world, &ordinary).await;
    worker.kill();
    waited
}

/// What `docs/architecture.md` promises, in ms: the interval in hand, the pause of a search, one turn
/// of each backlog that had none yet, and the ordinary intervals themselves; and 200 ms for what
/// the test itself cannot see.
fn promised(backlogs: i64, ordinary: i64) -> i64 {
    POST + 1_000 + (backlogs * TURN + ordinary) * POST / SLOTS + 200
}

#[tokio::test(start_paused = true)]
async fn late_starts_keep_no_ordinary_span_from_its_month() {
    for backlogs in [SLOTS, 100] {
        let waited = ordinary_spans_behind(backlogs, 400).await;
        let promised = promised(backlogs, 400);
        assert!(waited <= promised, "{backlogs} of them: {waited} ms");
    }
}

/// At any other time, too, and in each round again.
#[tokio::test(start_paused = true)]
async fn backlogs_take_turns_with_all_others() {
    let world = world_before_the_end(10 * DAY).await;
    let late = names("late", 30);
    start_all(&world, &late, 20 * DAY).await;
    let ordinary = names("ordinary", 40);
    start_all(&world, &ordinary, 10 * DAY).await;
    let worker = run(&world);
    for minute in 1..=2 {
        world.pass(MINUTE).await;
        let now = MONTH_END - 10 * DAY + minute * MINUTE;
        for name in &ordinary {
            let behind = NOON.plus(now).since(sampled_to(&world, name));
            // A minute that is not over, and one round.
            assert!(behind <= MINUTE + promised(30, 40), "{name}: {behind} ms");
        }
        // And no span that yielded its permit waits for ever.
        for name in &late {
            let done = sampled_to(&world, name).since(NOON.plus(MONTH_END - 20 * DAY));
            let rounds = minute * MINUTE / promised(30, 40);
            assert!(done >= (rounds - 1) * TURN * MINUTE, "{name}: {done} ms");
        }
    }
    // No permit is unused: as many posts as there can be, but for a second here and there.
    let posts = i64::try_from(world.abacus.post_count()).unwrap();
    assert!(posts >= (2 * MINUTE - 3_000) * SLOTS / POST, "{posts}");
    worker.stop().await;
}

/// No span waits: backlogs are worked off without a pause, whether or not there are permits left.
#[tokio::test(start_paused = true)]
async fn backlogs_for_which_no_other_waits_never_pause() {
    for count in [1, SLOTS] {
        let world = world_before_the_end(10 * DAY).await;
        let began = Instant::now();
        let late = names("late", count);
        start_all(&world, &late, 11 * DAY).await;
        let worker = run(&world);
        world
            .until("all are through", || {
                late.iter()
                    .all(|name| sampled_to(&world, name) >= NOON.plus(MONTH_END - 10 * DAY))
            })
            .await;
        let least = Duration::from_millis((24 * 60 * POST).unsigned_abs());
        assert!(began.elapsed() <= least + Duration::from_secs(1));
        worker.stop().await;
    }
}

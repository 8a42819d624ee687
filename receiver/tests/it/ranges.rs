//! Two ranges of the collection, as two shards have them, one of which does not answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sampler_domain::Target;
use sampler_store::Events;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::event::{TARGET, on, start, stop};
use crate::world::{NOW, START, STOP, World};

/// Each range answers so many calls in a step.
const CALLS_IN_STEP: usize = 20;
const STEP: Duration = Duration::from_millis(10);

/// For how long events are sent: 2,000 are kept, enough to compare one in a hundred.
const LOAD: Duration = Duration::from_secs(1);

/// Connections that send events of one range.
const CONNECTIONS: u64 = 600;

fn target(instance: &str) -> Target {
    let event = on(instance, &stop(NOW));
    Target::from_store(TARGET.map(|name| event[name].as_str().unwrap()))
}

fn instance(world: &World, range: usize, number: u64) -> String {
    let mut names = (0..).map(|attempt| format!("{number} {attempt}"));
    let is_there = |name: &String| world.store.range_of(&target(name)) == range;
    names.find(is_there).unwrap()
}

/// A start and a stop; or a large start.
fn events(is_large: bool) -> Vec<(&'static str, Value)> {
    let mut start = start(NOW);
    if is_large {
        let measure = |number| json!({ "measure": format!("measure {number}"), "quantity": 1 });
        start["measured_usage"] = (0..100).map(measure).collect();
        return vec![(START, start)];
    }
    vec![(START, start), (STOP, stop(NOW))]
}

/// Sends events of a range over many connections; counts those that are kept.
fn load(world: &Arc<World>, range: usize, is_large: bool, end: Instant) -> Arc<AtomicU64> {
    let created = Arc::new(AtomicU64::new(0));
    for connection in 0..CONNECTIONS {
        let (world, created) = (Arc::clone(world), Arc::clone(&created));
        tokio::spawn(async move {
            let instance = instance(&world, range, connection);
            for (path, event) in events(is_large).iter().cycle() {
                let event = on(&instance, event);
                let Ok(answer) = timeout_at(end, world.post(path, &event)).await else {
                    return;
                };
                created.fetch_add(u64::from(answer.status == 201), Ordering::Relaxed);
                if answer.status == 503 {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        });
    }
    created
}

/// How many events of the second range are kept while the first is well, or frozen.
async fn kept_beside(is_frozen: bool, is_large: bool) -> u64 {
    let world = Arc::new(World::divided(2));
    if is_frozen {
        world.store.freeze(0);
    }
    let mut pace = JoinSet::new();
    let store = Arc::clone(&world.store);
    pace.spawn(async move { store.keep_pace(CALLS_IN_STEP, STEP).await });
    let end = Instant::now() + LOAD;
    let first = load(&world, 0, is_large, end);
    tokio::time::sleep(STEP).await;
    let second = load(&world, 1, is_large, end);
    tokio::time::sleep_until(end).await;
    assert_eq!(first.load(Ordering::Relaxed) == 0, is_frozen);
    second.load(Ordering::Relaxed)
}

/// What is large needs a permit of its own, before its range is known.
#[tokio::test(start_paused = true)]
async fn a_frozen_range_holds_up_no_event_of_the_other_however_large() {
    for (is_large, percent) in [(false, 99), (true, 90)] {
        let usual = kept_beside(false, is_large).await;
        let beside_frozen = kept_beside(true, is_large).await;
        assert!(
            beside_frozen * 100 >= usual * percent,
            "{is_large}: {beside_frozen} of {usual}"
        );
    }
}

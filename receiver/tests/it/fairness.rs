//! Many requests of one client beside a few of another, at a store of a fixed rate, in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep_until};

use crate::answer::Answer;
use crate::event::{by, on, start, stop, with};
use crate::store::Behaviour;
use crate::world::{EVENTS, MAPPINGS, NOW, START, STOP, World, request};

/// The store answers so many calls a second, in steps.
const STEP: Duration = Duration::from_millis(10);
const CALLS_IN_STEP: usize = 50;
const CALLS_PER_SECOND: f64 = 5_000.0;

/// For how long the load lasts.
const LOAD: Duration = Duration::from_secs(1);

/// Between two requests of the quiet client.
const PAUSE: Duration = Duration::from_millis(20);

fn of(event: &Value, resource: &str, instance: u64) -> Value {
    let event = with(event, "resource_id", resource);
    let event = by(&format!("{resource} {instance}"), &event);
    on(&format!("instance {instance}"), &event)
}

/// A receiver whose store keeps the pace.
fn paced(inflight: Option<usize>) -> Arc<World> {
    let world = World::with(|options| options.settings.limits.inflight = inflight);
    let store = Arc::clone(&world.store);
    tokio::spawn(async move { store.keep_pace(CALLS_IN_STEP, STEP).await });
    Arc::new(world)
}

/// What became of the requests of both clients.
#[derive(Debug, Default)]
struct Outcome {
    flood_created: u64,
    quiet_sent: u64,
    quiet_created: u64,
    /// In ms, sorted.
    quiet_latencies: Vec<u128>,
}

impl Outcome {
    fn goodput(&self) -> f64 {
        let created = self.flood_created + self.quiet_created;
        created as f64 / LOAD.as_secs_f64() / CALLS_PER_SECOND
    }

    fn quiet_share(&self) -> f64 {
        self.quiet_created as f64 / self.quiet_sent as f64
    }

    fn quiet_99(&self) -> u128 {
        self.quiet_latencies[self.quiet_latencies.len() * 99 / 100 - 1]
    }
}

/// Sends starts over so many connections, each the next one when the last one is answered; and beside
/// that one each 20 ms for another resource.
async fn flood(world: &Arc<World>, connections: u64) -> Outcome {
    let end = Instant::now() + LOAD;
    let created = Arc::new(AtomicU64::new(0));
    let mut clients = JoinSet::new();
    for connection in 0..connections {
        let (world, created) = (Arc::clone(world), Arc::clone(&created));
        clients.spawn(async move {
            for number in 0.. {
                let event = of(&start(NOW), "flood", connection * 1_000_000 + number);
                let answer = world.start(&event).await;
                if Instant::now() >= end {
                    return;
                }
                created.fetch_add(u64::from(answer.status == 201), Ordering::Relaxed);
                if answer.status == 503 {
                    tokio::time::sleep(PAUSE).await;
                }
            }
        });
    }
    let mut outcome = quiet(world, end).await;
    clients.shutdown().await;
    outcome.flood_created = created.load(Ordering::Relaxed);
    outcome
}

async fn quiet(world: &Arc<World>, end: Instant) -> Outcome {
    let mut outcome = Outcome::default();
    let (mut ticks, mut answers) = (interval(PAUSE), JoinSet::new());
    while Instant::now() < end {
        let sent_at = ticks.tick().await;
        let world = Arc::clone(world);
        outcome.quiet_sent += 1;
        let event = of(&start(NOW), "quiet", outcome.quiet_sent);
        answers.spawn(async move { (world.start(&event).await.status, sent_at.elapsed()) });
    }
    while let Some(answer) = answers.join_next().await {
        let (status, latency) = answer.unwrap();
        outcome.quiet_created += u64::from(status == 201);
        outcome.quiet_latencies.push(latency.as_millis());
    }
    outcome.quiet_latencies.sort_unstable();
    outcome
}

#[tokio::test(start_paused = true)]
async fn a_quiet_client_is_served_in_time_beside_a_flood_and_little_of_the_rate_is_lost() {
    for connections in [300, 3_000] {
        let outcome = flood(&paced(None), connections).await;
        assert!(outcome.quiet_share() >= 0.999, "{connections}: {outcome:?}");
        let (latency, goodput) = (outcome.quiet_99(), outcome.goodput());
        assert!(latency <= 250, "{connections}: {latency}");
        assert!(goodput >= 0.8, "{connections}: {goodput}");
    }
}

/// What it was before there was a queue: the test above can tell.
#[tokio::test(start_paused = true)]
async fn with_a_limit_in_flight_it_is_chance_who_is_served() {
    let outcome = flood(&paced(Some(200)), 300).await;
    assert!(outcome.quiet_share() < 0.999, "{}", outcome.quiet_share());
}

#[tokio::test(start_paused = true)]
async fn starts_of_a_flood_hold_up_no_stops() {
    let world = paced(None);
    for instance in 0..20 {
        let event = of(&start(NOW), "flood", instance);
        world.start(&event).await.is_created();
    }
    let flooding = Arc::clone(&world);
    let flooding = tokio::spawn(async move { flood(&flooding, 1_000).await });
    sleep_until(Instant::now() + LOAD / 4).await;
    for instance in 0..20 {
        let began = Instant::now();
        let event = of(&stop(NOW), "flood", instance);
        world.stop(&event).await.is_created();
        let took = began.elapsed();
        assert!(took <= Duration::from_millis(250), "{took:?}");
    }
    flooding.await.unwrap();
}

/// A body that begins like this and does not go on.
fn unending(path: &str, begun: impl Into<Bytes>) -> Request<Body> {
    let begun = stream::iter([Ok::<_, std::io::Error>(begun.into())]);
    request(path, Body::from_stream(begun.chain(stream::pending())))
}

/// A request counts once its body is there, by a limit in flight, too.
#[tokio::test(start_paused = true)]
async fn bodies_that_do_not_arrive_hold_up_nobody_and_take_no_places() {
    for (inflight, each) in [(None, 500), (Some(8), 8)] {
        let world = World::with(|options| options.settings.limits.inflight = inflight);
        let world = Arc::new(world);
        let mut slow = JoinSet::new();
        for path in [START, STOP, EVENTS, MAPPINGS].repeat(each) {
            let world = Arc::clone(&world);
            slow.spawn(async move { world.send(unending(path, "{")).await });
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        let event = of(&start(NOW), "honest", 1);
        world.start(&event).await.is_created();
        world.stop(&of(&stop(NOW), "honest", 1)).await.is_created();
        while let Some(answer) = slow.join_next().await {
            answer.unwrap().names(408, "request-timeout", &[]);
        }
    }
}

/// Of this size, and of no more than one value; it never ends.
fn huge(bytes: usize) -> Request<Body> {
    unending(START, format!("\"{}", "x".repeat(bytes - 1)))
}

#[tokio::test(start_paused = true)]
async fn bodies_that_fill_the_memory_are_turned_away_and_small_ones_are_not() {
    let world = Arc::new(World::new());
    let mut answers = JoinSet::new();
    for _ in 0..200 {
        let world = Arc::clone(&world);
        answers.spawn(async move { world.send(huge(400_000)).await });
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut turned_away = 0;
    while let Some(Ok(answer)) = answers.try_join_next() {
        answer.names(429, "throttled", &[]);
        answer.may_come_again_after(1);
        turned_away += 1;
    }
    // A client may have half of the 12 MB.
    assert_eq!(turned_away, 200 - (6 << 20) / 400_000);
    let honest = of(&start(NOW), "honest", 1);
    world.start(&honest).await.is_created();
}

/// Nearly as many values as a body may hold: a hundred times its size in memory.
fn of_many_values(instance: u64) -> Value {
    let lists = vec![json!([]); 48_900];
    let usage = json!([{ "measure": "memory", "quantity": lists }]);
    with(&of(&start(NOW), "flood", instance), "measured_usage", usage)
}

#[tokio::test(start_paused = true)]
async fn few_bodies_of_many_values_are_served_at_a_time_and_they_hold_up_no_others() {
    let world = Arc::new(World::new());
    world.store.set_behaviour(Behaviour::Held);
    let mut large = JoinSet::new();
    for instance in 0..20 {
        let (world, event) = (Arc::clone(&world), of_many_values(instance));
        large.spawn(async move { world.start(&event).await });
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    // Each weighs 8 MB, more than all may together.
    assert_eq!(world.store.calls(), 1);
    let quiet = of(&start(NOW), "quiet", 1).to_string();
    let quiet = world.begin(request(START, quiet));
    world.store.wait_until_held(2).await;
    world.store.release();
    quiet.await.unwrap().is_created();
    while let Some(answer) = large.join_next().await {
        answer.unwrap().is_created();
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_that_waits_too_long_is_turned_away_and_not_kept() {
    let world = Arc::new(World::new());
    world.store.set_behaviour(Behaviour::Held);
    let mut answers = JoinSet::new();
    for instance in 0..500 {
        let (world, event) = (Arc::clone(&world), of(&start(NOW), "flood", instance));
        answers.spawn(async move { world.start(&event).await });
    }
    tokio::time::sleep(Duration::from_secs(6)).await;
    let ended = std::iter::from_fn(|| answers.try_join_next());
    let turned_away: Vec<Answer> = ended.map(Result::unwrap).collect();
    for answer in &turned_away {
        answer.names(503, "overloaded", &[]);
    }
    assert!(turned_away.len() > 100);
    world.store.release();
    while let Some(answer) = answers.join_next().await {
        answer.unwrap().is_created();
    }
    assert_eq!(world.spans().len(), 500 - turned_away.len());
}

//! More requests than there is room for, and many of one client beside a few of another.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::task::{JoinHandle, JoinSet};

use crate::answer::Answer;
use crate::cloud_events::binary;
use crate::event::{mapping, on, start, stop, with};
use crate::store::Behaviour;
use crate::world::{EVENTS, HOUR, MAPPINGS, NOW, START, STOP, World, request};

/// The starts that one client may have at the store.
const OF_CLIENT: usize = 384;

fn of(instance: usize, event: &Value) -> Value {
    on(&format!("instance {instance}"), event)
}

/// An event of another client: without tokens they are told apart by their resources.
fn quiet(event: &Value) -> Value {
    with(event, "resource_id", "quiet")
}

fn begin(world: &Arc<World>, path: &str, event: &Value) -> JoinHandle<Answer> {
    world.begin(request(path, event.to_string()))
}

/// A receiver with room for eight, six places of which are taken by starts that wait.
async fn full_of_starts() -> (Arc<World>, Vec<JoinHandle<Answer>>) {
    let world = Arc::new(World::with(|options| {
        options.settings.limits.inflight = Some(8);
    }));
    for instance in 10..12 {
        world.start(&of(instance, &start(NOW))).await.is_created();
    }
    world.store.set_behaviour(Behaviour::Held);
    let starts = (0..6)
        .map(|instance| begin(&world, START, &of(instance, &start(NOW))))
        .collect();
    world.store.wait_until_held(6).await;
    (world, starts)
}

fn assert_overloaded(answer: &Answer) {
    answer.names(503, "overloaded", &[]);
    answer.may_come_again_after(1);
}

#[tokio::test(start_paused = true)]
async fn more_in_flight_than_there_is_room_for_are_turned_away_and_stops_keep_a_share() {
    let (world, starts) = full_of_starts().await;
    let calls = world.store.calls();
    assert_overloaded(&world.start(&of(6, &start(NOW))).await);
    assert_overloaded(&world.post(MAPPINGS, &mapping()).await);
    // They are turned away before their bodies are parsed.
    assert_overloaded(&world.send(request(START, "no json")).await);
    assert_eq!(world.store.calls(), calls);
    // A CloudEvent in binary mode, too, says in its headers that it is a stop.
    let binary = |kind: &str, instance| binary(kind, "/brokers/a", "1", &of(instance, &stop(NOW)));
    assert_overloaded(&world.send(binary("start", 6)).await);
    let stops = [
        begin(&world, STOP, &of(10, &stop(NOW + HOUR))),
        world.begin(binary("stop", 11)),
    ];
    world.store.wait_until_held(8).await;
    assert_overloaded(&world.stop(&of(0, &stop(NOW + HOUR))).await);
    assert_overloaded(&world.start(&of(6, &start(NOW))).await);
    world.store.release();
    for answer in starts.into_iter().chain(stops) {
        answer.await.unwrap().is_created();
    }
    assert_eq!((world.spans().len(), world.ended()), (8, 2));
    // All places are free again.
    for instance in 6..10 {
        world.start(&of(instance, &start(NOW))).await.is_created();
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_gives_up_its_place() {
    let (world, starts) = full_of_starts().await;
    for start in &starts {
        start.abort();
    }
    for start in starts {
        assert!(start.await.unwrap_err().is_cancelled());
    }
    world.store.set_behaviour(Behaviour::Served);
    for instance in 20..30 {
        world.start(&of(instance, &start(NOW))).await.is_created();
    }
}

/// Many starts of one client, of which as many as it may have are at the store. They hold up no other client and no
/// stop; who waits too long is turned away, and not kept.
#[tokio::test(start_paused = true)]
async fn a_flood_of_starts_holds_up_itself_alone() {
    let world = Arc::new(World::new());
    world.start(&of(500, &start(NOW))).await.is_created();
    world.store.set_behaviour(Behaviour::Held);
    let mut flood = JoinSet::new();
    for instance in 0..500 {
        let (world, event) = (Arc::clone(&world), of(instance, &start(NOW)));
        flood.spawn(async move { world.start(&event).await });
    }
    world.store.wait_until_held(OF_CLIENT).await;
    let another = begin(&world, START, &quiet(&start(NOW)));
    world.store.wait_until_held(OF_CLIENT + 1).await;
    let end = begin(&world, STOP, &of(500, &stop(NOW)));
    world.store.wait_until_held(OF_CLIENT + 2).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    for _ in OF_CLIENT..500 {
        assert_overloaded(&flood.join_next().await.unwrap().unwrap());
    }
    world.store.release();
    another.await.unwrap().is_created();
    end.await.unwrap().is_created();
    while let Some(answer) = flood.join_next().await {
        answer.unwrap().is_created();
    }
    assert_eq!(world.spans().len(), OF_CLIENT + 2);
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
        world.start(&start(NOW)).await.is_created();
        world.stop(&stop(NOW)).await.is_created();
        while let Some(answer) = slow.join_next().await {
            answer.unwrap().names(408, "request-timeout", &[]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn bodies_that_fill_the_memory_are_turned_away_and_small_ones_are_not() {
    let world = Arc::new(World::new());
    let mut answers = JoinSet::new();
    for _ in 0..200 {
        let world = Arc::clone(&world);
        // Of one value, which never ends.
        let huge = format!("\"{}", "x".repeat(399_999));
        answers.spawn(async move { world.send(unending(START, huge)).await });
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
    world.start(&start(NOW)).await.is_created();
}

/// Nearly as many values as a body may hold: a hundred times its size in memory.
fn of_many_values(instance: usize) -> Value {
    let lists = vec![json!([]); 48_900];
    let usage = json!([{ "measure": "memory", "quantity": lists }]);
    with(&of(instance, &start(NOW)), "measured_usage", usage)
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
    let small = begin(&world, START, &quiet(&start(NOW)));
    world.store.wait_until_held(2).await;
    world.store.release();
    small.await.unwrap().is_created();
    while let Some(answer) = large.join_next().await {
        answer.unwrap().is_created();
    }
}

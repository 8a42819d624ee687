//! More requests than there is room for.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::answer::Answer;
use crate::cloud_events::binary;
use crate::event::{mapping, on, start, stop};
use crate::log::Log;
use crate::store::Behaviour;
use crate::world::{HOUR, MAPPINGS, NOW, START, STOP, World, request};

fn of(instance: usize, event: &Value) -> Value {
    on(&format!("instance {instance}"), event)
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
    let stops: Vec<_> = (10..12)
        .map(|instance| begin(&world, STOP, &of(instance, &stop(NOW + HOUR))))
        .collect();
    world.store.wait_until_held(8).await;
    assert_overloaded(&world.stop(&of(0, &stop(NOW + HOUR))).await);
    assert_overloaded(&world.start(&of(6, &start(NOW))).await);
    world.store.release();
    for answer in starts.into_iter().chain(stops) {
        answer.await.unwrap().is_created();
    }
    let mut kept = world.kept();
    assert!(kept.drain(..2).all(|(_, stop)| stop.is_some()));
    let expected: Vec<_> = (0..6)
        .map(|instance| (of(instance, &start(NOW)), None))
        .collect();
    assert_eq!(kept, expected);
    // All places are free again.
    for instance in 6..10 {
        world.start(&of(instance, &start(NOW))).await.is_created();
    }
}

/// As at the address of its kind: its headers tell what it is.
#[tokio::test(start_paused = true)]
async fn a_cloud_event_in_binary_mode_that_is_a_stop_has_the_share_of_stops() {
    let (world, starts) = full_of_starts().await;
    let binary = |kind: &str, event: &Value| binary(kind, "/brokers/a", "1", event);
    assert_overloaded(&world.send(binary("start", &of(6, &start(NOW)))).await);
    let stop = world.begin(binary("stop", &of(10, &stop(NOW))));
    world.store.wait_until_held(7).await;
    world.store.release();
    for answer in starts.into_iter().chain([stop]) {
        answer.await.unwrap().is_created();
    }
}

#[tokio::test(start_paused = true)]
async fn stops_may_take_all_the_room() {
    let world = Arc::new(World::with(|options| {
        options.settings.limits.inflight = Some(8);
    }));
    world.store.set_behaviour(Behaviour::Held);
    let stops: Vec<_> = (0..8)
        .map(|instance| begin(&world, STOP, &of(instance, &stop(NOW))))
        .collect();
    world.store.wait_until_held(8).await;
    assert_overloaded(&world.stop(&of(8, &stop(NOW))).await);
    assert_overloaded(&world.start(&of(8, &start(NOW))).await);
    world.store.release();
    for answer in stops {
        answer.await.unwrap().names(422, "no-open-span", &[]);
    }
    world.assert_kept(&[]);
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

#[tokio::test]
async fn a_flood_of_refused_events_is_not_a_flood_of_lines() {
    let world = World::new();
    let log = Log::default();
    let logging = tracing::subscriber::set_default(log.subscriber());
    for _ in 0..500 {
        assert_eq!(world.stop(&stop(NOW)).await.status, 422);
    }
    let malformed = world.stop(&json!({})).await;
    drop(logging);
    assert_eq!(malformed.status, 400);
    let lines = log.lines("refused");
    let with = |status| lines.iter().filter(|line| line["status"] == status).count();
    assert_eq!((with(422), with(400)), (20, 1));
}

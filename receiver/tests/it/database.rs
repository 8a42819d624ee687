//! A database that is away, does not answer, refuses, or is not prepared yet.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use sampler_domain::Percent;
use sampler_store::{Operating, Work};

use crate::answer::Answer;
use crate::event::{by, on, start, stop};
use crate::store::Behaviour;
use crate::world::{DAY, HOUR, NOW, PAST, START, STOP, World};

/// A world with one open span and room for one request, and each kind of request that asks the store: within the
/// slack and, as repeats, outside it.
async fn world() -> (World, Value, [(&'static str, Value); 4]) {
    let world = World::with(|options| options.settings.limits.inflight = Some(1));
    let event = by("a", &start(NOW));
    world.start(&event).await.is_created();
    let requests = [
        (START, by("b", &start(NOW))),
        (STOP, by("z", &stop(NOW + HOUR))),
        (START, by("c", &start(NOW - PAST - 1))),
        (STOP, by("y", &stop(NOW - PAST - 1))),
    ];
    (world, event, requests)
}

/// How a store fails, and what that is answered: with which kind of problem, when to come again, and in which words.
#[rustfmt::skip]
const FAILURES: [(Behaviour, u16, &str, Option<u64>, &str); 5] = [
    (Behaviour::Unavailable, 503, "database-unavailable", Some(5), "Nothing was kept."),
    // Not before all that was sent is over: 15.5 s, as the options of the tests say.
    (Behaviour::Unknown, 503, "database-unavailable", Some(16), "may or may not have been kept"),
    // Too many writes are told from a database that is away.
    (Behaviour::Overloaded, 503, "overloaded", Some(1), ""),
    (Behaviour::Refused, 500, "internal", None, ""),
    (Behaviour::Panics, 500, "internal", None, ""),
];

#[tokio::test]
async fn each_failure_of_the_database_is_told_as_what_it_is_and_reveals_nothing() {
    for (behaviour, status, slug, seconds, words) in FAILURES {
        let (world, event, requests) = world().await;
        world.store.set_behaviour(behaviour);
        for (path, body) in &requests {
            let answer = world.post(path, body).await;
            answer.names(status, slug, &[]);
            answer.tells(status, slug, &[words]);
            if let Some(seconds) = seconds {
                answer.may_come_again_after(seconds);
            }
            assert_hides_the_cause(&answer);
        }
        world.assert_kept(&[(&event, None)]);
        world.store.set_behaviour(Behaviour::Served);
        world.stop(&requests[1].1).await.is_created();
        world.assert_kept(&[(&event, Some(&requests[1].1))]);
    }
}

fn assert_hides_the_cause(answer: &Answer) {
    let text = answer.text();
    let told = ["secret", "mongodb", "internal:"];
    assert!(told.iter().all(|word| !text.contains(word)), "{text}");
}

#[tokio::test]
async fn an_event_whose_answer_was_lost_is_recognised_when_it_comes_again() {
    let world = World::new();
    let (event, end) = (by("a", &start(NOW)), by("z", &stop(NOW + HOUR)));
    for (path, body) in [(START, &event), (STOP, &end)] {
        world.store.set_behaviour(Behaviour::Lost);
        let answer = world.post(path, body).await;
        answer.names(503, "database-unavailable", &[]);
        world.store.set_behaviour(Behaviour::Served);
        world.post(path, body).await.is_replayed();
    }
    world.assert_kept(&[(&event, Some(&end))]);
}

#[tokio::test]
async fn nothing_is_kept_before_the_database_is_prepared() {
    let world = World::unprepared(None);
    let (event, end) = (start(NOW), stop(NOW));
    let old = by("a", &start(NOW - PAST - 1));
    for (path, body) in [(START, &event), (STOP, &end), (START, &old), (STOP, &end)] {
        let answer = world.post(path, body).await;
        answer.names(503, "database-unavailable", &[]);
        answer.may_come_again_after(5);
    }
    assert_eq!(world.store.calls(), 0);
    world.assert_kept(&[]);
    assert!(!world.receiver.is_prepared());
    world.receiver.set_prepared();
    world.start(&event).await.is_created();
    world.stop(&end).await.is_created();
    world.assert_kept(&[(&event, Some(&end))]);
}

/// Where the ids of events are gone, a repeat would not be known. And a receiver that starts lets in as few starts as
/// the others.
#[tokio::test(start_paused = true)]
async fn nothing_is_kept_before_the_receiver_knows_how_old_events_may_be_and_how_many() {
    let world = World::unprepared(None);
    let mut control = world.store.memory.control().await.unwrap().control;
    control.starts.rate = Percent::NONE;
    let set = world.store.memory.set_control(&control, 0).await;
    assert!(set.unwrap());
    world.store.set_behaviour(Behaviour::Unavailable);
    let receiver = Arc::clone(&world.receiver);
    let preparing = tokio::spawn(async move { receiver.prepare(std::future::pending()).await });
    // It has asked more than once, in vain.
    while world.store.calls() < 10 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(!world.receiver.is_prepared());
    world.store.set_behaviour(Behaviour::Served);
    assert!(preparing.await.unwrap());
    let answer = world.start(&start(NOW)).await;
    answer.names(503, "throttled", &[]);
}

#[tokio::test]
async fn what_workers_may_have_forgotten_is_refused_unless_it_repeats_what_is_kept() {
    let world = World::new();
    let kept = by("kept", &start(NOW - 2 * DAY));
    world.start(&kept).await.is_created();
    world.store.memory.limit_event_age(DAY).await.unwrap();
    world.receiver.steering.poll().await;
    let recent = on("another", &start(NOW - DAY));
    world.start(&recent).await.is_created();
    let old = on("a third", &start(NOW - DAY - 1));
    let answer = world.start(&old).await;
    answer.names(422, "outside-slack", &["#/timestamp"]);
    world.start(&kept).await.is_replayed();
    // No worker takes it back.
    world.store.memory.limit_event_age(2 * DAY).await.unwrap();
    world.receiver.steering.poll().await;
    let answer = world.start(&old).await;
    answer.names(422, "outside-slack", &["#/timestamp"]);
}

/// Workers wait for ten minutes before they remove what they have named.
#[tokio::test(start_paused = true)]
async fn an_old_event_waits_while_it_is_unknown_how_old_events_may_be() {
    let world = World::new();
    world.receiver.steering.poll().await;
    let old = |instance| on(instance, &start(NOW - DAY));
    tokio::time::sleep(Duration::from_secs(299)).await;
    world.start(&old("a")).await.is_created();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let answer = world.start(&old("b")).await;
    answer.names(503, "database-unavailable", &[]);
    answer.may_come_again_after(5);
    let recent = on("c", &start(NOW - HOUR));
    world.start(&recent).await.is_created();
    world.receiver.steering.poll().await;
    world.start(&old("b")).await.is_created();
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_is_told_to_stop_waits_for_nothing() {
    let world = World::unprepared(None);
    world.store.set_behaviour(Behaviour::Unavailable);
    assert!(!world.receiver.prepare(std::future::ready(())).await);
    assert!(!world.receiver.is_prepared());
}

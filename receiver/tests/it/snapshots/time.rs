//! For how long others wait for a snapshot.

use std::time::Duration;

use axum::body::Body;
use futures_util::{StreamExt, stream};
use http_body_util::BodyExt;
use tokio::time::{interval, timeout};

use super::{lines, lists, posted, snapshot};
use crate::batches::{Typed, list};
use crate::event::{on, start};
use crate::store::Behaviour;
use crate::world::{EVENTS, HOUR, NOW, World, request};

const SECOND: Duration = Duration::from_secs(1);

/// Who adds up usages waits for a page of a snapshot, not for all of them.
#[tokio::test(start_paused = true)]
async fn a_snapshot_waits_for_its_turn_before_each_page_of_spans() {
    let world = World::new();
    let start = |number| ("start", on(&format!("i-{number}"), &start(NOW - HOUR)));
    let starts: Vec<Typed> = (0..10_001).map(start).collect();
    for batch in starts.chunks(1_000) {
        let batch = request(EVENTS, list(batch));
        assert_eq!(world.answer(batch).await.status, 200);
    }
    world.store.set_behaviour(Behaviour::Held);
    let snapshot = snapshot(NOW, &[]);
    let mut comparing = Box::pin(world.compare_once(&snapshot));
    let sum = async {
        world.store.wait_until_held(1).await;
        let mut sum = Box::pin(world.get("/v1/usages?organization_id=o"));
        // It waits for the first page.
        assert!(timeout(SECOND, &mut sum).await.is_err());
        let release = async {
            world.store.release_one();
            world.store.wait_until_held(2).await;
            world.store.release_one();
        };
        let (answer, ()) = tokio::join!(sum, release);
        assert_eq!(answer.status, 200);
    };
    tokio::select! {
        answer = &mut comparing => panic!("the sum came after all pages: {answer:?}"),
        () = sum => {}
    }
    world.store.release();
    let answer = comparing.await.json();
    assert_eq!(lists(&answer)[0].len(), 10_001);
}

/// One snapshot is in memory at a time: a client that goes away must leave room for the next one.
#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_leaves_room_for_the_next() {
    let world = World::new();
    let is_room = async || {
        let answer = world.send(posted(lines(1).into())).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    // While it sends.
    let begun = stream::iter([Ok::<_, std::io::Error>(lines(5))]).chain(stream::pending());
    let sending = world.send(posted(Body::from_stream(begun)));
    let sending = timeout(Duration::from_millis(50), sending);
    assert!(sending.await.is_err(), "its body has no end");
    is_room().await;
    // While it reads.
    let mut answer = world.respond(posted(lines(3_000).into())).await.into_body();
    assert!(answer.frame().await.unwrap().unwrap().is_data());
    drop(answer);
    is_room().await;
}

/// A receiver that waits for so long for bodies, and for clients to take an answer.
fn with_time(limit: Duration) -> World {
    World::with(|options| options.settings.limits.body_timeout = limit)
}

/// A client that reads little by little keeps others waiting, but not for ever.
#[tokio::test]
async fn the_time_to_read_an_answer_has_a_limit() {
    let world = with_time(Duration::ZERO);
    let answer = world.respond(posted(lines(3_000).into())).await;
    assert_eq!(answer.status(), 200);
    // A client must see that it is not whole.
    assert!(answer.into_body().collect().await.is_err());
}

/// Whether a client gets the answer to so many instances that takes a piece (64 KB) of it each time that so
/// long has passed.
async fn takes_all(world: &World, instances: usize, period: Duration) -> bool {
    let answer = world.respond(posted(lines(instances).into())).await;
    let (mut body, mut ticks) = (answer.into_body(), interval(period));
    while let Some(piece) = body.frame().await {
        if piece.is_err() {
            return false;
        }
        ticks.tick().await;
    }
    true
}

/// 1 MB a second on an average, as of the body.
#[tokio::test]
async fn a_client_that_takes_its_answer_slowly_is_cut_off() {
    let world = with_time(Duration::from_millis(500));
    let (quick, slow) = (Duration::from_millis(20), Duration::from_millis(250));
    assert!(!takes_all(&world, 4_000, slow).await, "250 KB a second");
    assert!(
        takes_all(&world, 20_000, quick).await,
        "3 MB a second, for longer than 500 ms"
    );
}

/// The next snapshot waits no longer than that, also where nothing of the answer is taken.
#[tokio::test]
async fn a_client_that_stops_reading_its_answer_leaves_room_for_the_next() {
    let world = with_time(Duration::from_millis(500));
    let unread = world.respond(posted(lines(3_000).into())).await;
    assert_eq!(unread.status(), 200);
    let next = world.send(posted(lines(1).into())).await;
    assert_eq!(next.status, 200, "{next:?}");
    assert!(unread.into_body().collect().await.is_err());
}

//! Taking the place of the original Sampler in its own collection: the order of `docs/migration.md`.

use bson::{Bson, Document, doc};
use sampler_testkit::build::{start_event, stop_event};
use sampler_testkit::{Program, now_millis, wait_until};

use crate::landscape::{HOUR, Landscape, MINUTE, PATIENCE, until_ready};
use crate::original::Original;

/// Spans that the original has started.
const SPANS: u64 = 60;

/// Its spans are new, planned, posted and not noted, sampled, stopped, or complete.
async fn with_original(label: &str, start: i64, end: i64) -> (Landscape, Original) {
    let world = Landscape::new(label).await;
    let original = Original::install(&world).await;
    for target in 0..40 {
        original.start(target, start).await;
    }
    for _ in 0..5 {
        original.poll().await;
    }
    for target in 0..10 {
        original.stop(target, end).await;
    }
    for _ in 0..4 {
        original.poll().await;
    }
    // Its worker dies between a post and the note of it, and stays away.
    original.poll_without_note().await;
    for target in 40..SPANS {
        original.start(target, start).await;
    }
    (world, original)
}

async fn assert_is_taken_over(world: &Landscape) {
    let unconverted = doc! { "processing.partition": Bson::Null };
    let control = world.database.database().await;
    let control = control.collection::<Document>("spans_control");
    let format = control.find_one(doc! { "_id": "format" }).await.unwrap();
    let left = world.spans().await.count_documents(unconverted).await;
    assert_eq!((format.is_some(), left.unwrap()), (true, 0));
}

/// Nothing is kept, and nothing says that there is nothing.
async fn is_put_off(world: &Landscape, receiver: &Program, start: i64) {
    for (path, event) in [
        ("/v1/events/start", start_event(100, start)),
        ("/v1/events/stop", stop_event(20, start + HOUR)),
    ] {
        let answer = world.post(receiver, path, &event).await;
        assert_eq!(answer.status(), 503);
        assert!(answer.headers().contains_key("retry-after"));
    }
    let list = format!("{}/v1/spans?resource_id=postgres", receiver.base_url());
    let answer = world.http.get(list).send().await.unwrap();
    assert_eq!(answer.status(), 503);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_landscape_moves_to_us_and_every_bill_is_right() {
    let start = now_millis() - 9 * HOUR - 7;
    let end = start + 3 * HOUR + MINUTE;
    let (world, original) = with_original("takeover", start, end).await;

    // Our receiver stands beside its receiver, which still writes.
    let receiver = world.receiver().start().await.unwrap();
    let waiting = "waiting until a worker has taken over the collection of the original Sampler";
    receiver.until_logged(waiting, 1).await;
    is_put_off(&world, &receiver, start).await;
    for target in 10..20 {
        original.stop(target, end).await;
    }
    is_put_off(&world, &receiver, start).await;

    // Its receiver is gone. Our worker converts.
    let _worker = world.ready(world.worker()).await;
    until_ready(&world.http, &receiver).await;
    assert_is_taken_over(&world).await;
    stop_and_bill(&world, &receiver, 20, start, end).await;
}

/// Stops the spans from this one on. Then each is billed.
async fn stop_and_bill(world: &Landscape, receiver: &Program, from: u64, start: i64, end: i64) {
    for target in from..SPANS {
        let stop = stop_event(target, end);
        world.take(receiver, "/v1/events/stop", &stop).await;
    }
    world.until_complete(SPANS).await;
    for target in 0..SPANS {
        let billed = world.billed(&format!("instance-{target}"));
        assert_eq!(billed, i128::from(end - start), "{target}");
    }
}

/// Workers are killed while they convert, and others start beside them.
#[tokio::test(flavor = "multi_thread")]
async fn workers_that_are_killed_while_they_convert_leave_nothing_behind() {
    let start = now_millis() - 9 * HOUR - 7;
    let end = start + 3 * HOUR + MINUTE;
    let (world, original) = with_original("takeover_killed", start, end).await;
    original.start_all(1_000..6_000, now_millis()).await;
    for some in [1, 1_500, 3_000] {
        let two = [world.worker(), world.worker()];
        let [first, second] = two.map(sampler_testkit::program::Launch::start);
        let (first, second) = (first.await.unwrap(), second.await.unwrap());
        wait_until("some are converted", PATIENCE, async || {
            let converted = doc! { "processing.partition": { "$ne": Bson::Null } };
            let spans = world.spans().await;
            spans.count_documents(converted).await.unwrap() >= some
        })
        .await;
        first.kill().unwrap();
        second.kill().unwrap();
    }
    let _worker = world.worker().start().await.unwrap();
    let receiver = world.ready_receiver().await;
    assert_is_taken_over(&world).await;
    stop_and_bill(&world, &receiver, 10, start, end).await;
}

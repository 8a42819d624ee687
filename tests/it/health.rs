//! Being asked how one is.

use sampler_testkit::build::{start_event, stop_event};
use sampler_testkit::mongod::{Options, ReplicaSet};
use sampler_testkit::{now_millis, wait_until};
use serde_json::json;

use crate::landscape::{HOUR, Landscape, MINUTE, PATIENCE, status, until_ready};

/// Fault 15 of the original: health did not recover, or saw nothing.
#[tokio::test(flavor = "multi_thread")]
async fn fault_15_health_follows_the_database_and_comes_back_by_itself() {
    let set = ReplicaSet::start(Options::single()).await.unwrap();
    let world = Landscape::new("health").await;
    let uri = set.uri_of("health");
    let receiver = world.receiver().env("HEALTHCHECK_THRESHOLD", "2s");
    let receiver = world.ready(receiver.env("DB_URI", &uri)).await;
    let worker = world
        .worker()
        .env("DB_URI", &uri)
        .env("SAMPLER_POST_TIMEOUT", "1s")
        .env("PROCESS_SPANS_MONITOR_THRESHOLD", "2s")
        .env("CLEANUP_SPANS_MONITOR_THRESHOLD", "2s");
    let worker = world.ready(worker).await;
    set.kill(0).await.unwrap();
    for program in [&receiver, &worker] {
        wait_until("it is not ready", PATIENCE, async || {
            status(&world.http, program, "/healthz/ready").await == 503
        })
        .await;
        assert_eq!(status(&world.http, program, "/healthcheck").await, 503);
        assert_eq!(status(&world.http, program, "/healthz/live").await, 200);
    }
    let stop = stop_event(1, now_millis());
    let away = world.post(&receiver, "/v1/events/stop", &stop).await;
    assert_eq!(away.status(), 503);
    assert!(away.headers().contains_key("retry-after"));
    assert!(away.text().await.unwrap().contains("database-unavailable"));
    set.restart(0).await.unwrap();
    until_ready(&world.http, &receiver).await;
    until_ready(&world.http, &worker).await;
    let start = start_event(1, now_millis());
    world.take(&receiver, "/v1/events/start", &start).await;
}

/// A `Date` that is an hour old, as a cache gives it, is a warning. It stops nothing.
#[tokio::test(flavor = "multi_thread")]
async fn the_upstreams_clock_is_compared_and_stops_nothing() {
    let world = Landscape::new("clocks").await;
    let receiver = world.ready_receiver().await;
    world.abacus.date_answers(-HOUR);
    let (start, length) = (now_millis() - 6 * HOUR, 6 * HOUR - MINUTE);
    world.use_between(&receiver, 1, start, start + length).await;
    let worker = world.worker().start().await.unwrap();
    world.until_complete(1).await;
    assert_eq!(world.billed("instance-1"), i128::from(length));
    let told = json!({"healthy": true, "warnings": ["clock"]});
    wait_until("it is told", PATIENCE, async || {
        world.json(&worker, "/healthcheck").await == told
    })
    .await;
    let metrics = world.read(&worker, "/metrics").await;
    let mut lines = metrics.lines();
    let offset = lines.find_map(|line| line.strip_prefix("sampler_clock_offset_seconds "));
    let offset: f64 = offset.expect("it is known").parse().unwrap();
    assert!((3_590.0..=3_610.0).contains(&offset), "{offset} s");
    let differ = "the clocks of the database and of the upstream differ";
    let line = &worker.until_logged(differ, 1).await[0];
    assert!(line["ahead_ms"].as_i64().unwrap() > 3_590_000, "{line}");
}

//! Being asked how one is.

use sampler_testkit::build::{start_event, stop_event};
use sampler_testkit::mongod::{Options, ReplicaSet};
use sampler_testkit::{now_millis, wait_until};

use crate::landscape::{Landscape, PATIENCE, status, until_ready};

/// Fault 15 of the original: health did not recover, or saw nothing.
#[tokio::test(flavor = "multi_thread")]
async fn fault_15_health_follows_the_database_and_comes_back_by_itself() {
    let set = ReplicaSet::start(Options::single()).await.unwrap();
    let world = Landscape::new("health").await;
    let uri = set.uri_of("health");
    let receiver = world
        .receiver()
        .env("DB_URI", &uri)
        .env("HEALTHCHECK_THRESHOLD", "2s");
    let receiver = receiver.start().await.unwrap();
    let worker = world
        .worker()
        .env("DB_URI", &uri)
        .env("SAMPLER_POST_TIMEOUT", "1s")
        .env("PROCESS_SPANS_MONITOR_THRESHOLD", "2s")
        .env("CLEANUP_SPANS_MONITOR_THRESHOLD", "2s");
    let worker = worker.start().await.unwrap();
    until_ready(&world.http, &receiver).await;
    until_ready(&world.http, &worker).await;
    set.kill(0).await.unwrap();
    for program in [&receiver, &worker] {
        wait_until("it is not ready", PATIENCE, async || {
            status(&world.http, program, "/healthz/ready").await == 503
        })
        .await;
        assert_eq!(status(&world.http, program, "/healthcheck").await, 503);
        assert_eq!(status(&world.http, program, "/healthz/live").await, 200);
    }
    let away = world
        .post(&receiver, "/v1/events/stop", &stop_event(1, now_millis()))
        .await;
    assert_eq!(away.status(), 503);
    assert!(away.headers().contains_key("retry-after"));
    assert!(away.text().await.unwrap().contains("database-unavailable"));
    set.restart(0).await.unwrap();
    until_ready(&world.http, &receiver).await;
    until_ready(&world.http, &worker).await;
    world
        .take(&receiver, "/v1/events/start", &start_event(1, now_millis()))
        .await;
}

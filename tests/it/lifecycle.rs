//! Starting, stopping, and being asked how one is.

use std::time::{Duration, Instant};

use sampler_testkit::abacus::Fault;
use sampler_testkit::build::{start_event, stop_event};
use sampler_testkit::program::Launch;
use sampler_testkit::{now_millis, wait_until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::landscape::{DAY, Landscape, PATIENCE, status, until_ready};

/// The platform kills after ten seconds; the programs promise eight.
const PROMISE: Duration = Duration::from_secs(8);

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_finishes_what_is_in_flight_before_it_stops() {
    let world = Landscape::new("sigterm_receiver").await;
    let receiver = world.receiver().start().await.unwrap();
    until_ready(&world.http, &receiver).await;
    let body = start_event(1, now_millis()).to_string();
    let address = receiver.address().to_owned();
    let mut slow = TcpStream::connect(&address).await.unwrap();
    let head = format!(
        "POST /v1/events/start HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    let (first, second) = body.as_bytes().split_at(body.len() / 2);
    slow.write_all(head.as_bytes()).await.unwrap();
    slow.write_all(first).await.unwrap();
    // The request has been taken in once the receiver counts it; it says so by waiting for more.
    wait_until("another request is answered", PATIENCE, async || {
        status(&world.http, &receiver, "/healthz/live").await == 200
    })
    .await;
    receiver.sigterm().unwrap();
    wait_until("nothing new is taken in", PATIENCE, async || {
        TcpStream::connect(&address).await.is_err()
    })
    .await;
    slow.write_all(second).await.unwrap();
    let mut answer = String::new();
    slow.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    assert_eq!(receiver.wait_exit(PROMISE).await.unwrap(), 0);
    assert_eq!(
        world
            .spans()
            .await
            .count_documents(bson::doc! {})
            .await
            .unwrap(),
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_notes_what_was_taken_before_it_stops() {
    let world = Landscape::new("sigterm_worker").await;
    let receiver = world.receiver().start().await.unwrap();
    until_ready(&world.http, &receiver).await;
    let start = now_millis() - 20 * DAY;
    for target in 0..40 {
        world
            .take(&receiver, "/v1/events/start", &start_event(target, start))
            .await;
    }
    world.abacus.fault(Fault::delay(Duration::from_millis(200)));
    let worker = world.worker().start().await.unwrap();
    wait_until("posts are on their way", PATIENCE, async || {
        world.abacus.counted_count() > 50
    })
    .await;
    let asked = Instant::now();
    worker.sigterm().unwrap();
    assert_eq!(worker.wait_exit(PROMISE).await.unwrap(), 0);
    assert!(asked.elapsed() < PROMISE);
    let counted = world.abacus.counted_count();
    let mut noted = 0;
    let mut cursor = world.spans().await.find(bson::doc! {}).await.unwrap();
    while cursor.advance().await.unwrap() {
        let span = cursor.deserialize_current().unwrap();
        let end = span
            .get_document("processing")
            .unwrap()
            .get_document("last_interval")
            .unwrap();
        let instance = span
            .get_document("target")
            .unwrap()
            .get_str("resource_instance_id")
            .unwrap();
        let sampled = i128::from(end.get_i64("end").unwrap() - start);
        assert_eq!(
            world.billed(instance),
            sampled,
            "each usage that was taken is noted"
        );
        noted += 1;
    }
    assert_eq!(noted, 40);
    assert!(
        counted < 40 * 24 * 20,
        "it stopped in the middle of its work"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_at_once() {
    let world = Landscape::new("second_signal").await;
    let receiver = world.receiver().start().await.unwrap();
    until_ready(&world.http, &receiver).await;
    world
        .take(
            &receiver,
            "/v1/events/start",
            &start_event(1, now_millis() - DAY),
        )
        .await;
    world.abacus.fault(Fault::hang());
    let worker = world.worker().start().await.unwrap();
    wait_until("a post hangs", PATIENCE, async || {
        world.abacus.post_count() > 0
    })
    .await;
    worker.sigterm().unwrap();
    wait_until("it is stopping", PATIENCE, async || {
        !worker.logs_of("stopping").is_empty()
    })
    .await;
    assert_eq!(worker.exit_code(), None, "it waits for the post");
    worker.sigterm().unwrap();
    assert_eq!(worker.wait_exit(Duration::from_secs(2)).await.unwrap(), 143);
}

/// Fault 14 of the original: settings were not checked.
#[tokio::test]
async fn fault_14_mistakes_in_the_settings_are_named_at_once_and_exit_64() {
    let worker = Launch::new("sampler-worker")
        .env("PROCESS_BATCH_SIZE", "ten")
        .env("SAMPLER_DIMENSION", "days")
        .env("SAMPLER_RETENTION", "60d")
        .env("DB_URI", "mongodb://user:hush@localhost/")
        .env("SAMPLER_CONCURENCY", "3")
        .spawn()
        .await
        .unwrap();
    assert_eq!(worker.wait_exit(PATIENCE).await.unwrap(), 64);
    let output = worker.lines().join("\n");
    for named in [
        "COLLECTOR_URL",
        "PROCESS_BATCH_SIZE",
        "SAMPLER_DIMENSION",
        "SAMPLER_RETENTION",
        "DB_URI",
        "SAMPLER_CONCURENCY",
    ] {
        assert!(output.contains(named), "{named} is not named in:\n{output}");
    }
    assert!(!output.contains("hush"), "{output}");
}

/// A program with `SECURED=true` is never open, in no state.
#[tokio::test]
async fn what_cannot_be_secured_does_not_start() {
    let api = ("AUTH_SERVER", "http://localhost:1");
    let receiver = "sampler-receiver";
    let provisioning = ("PROVISIONING_URL", "http://localhost:1");
    for (program, switch, more, named) in [
        (receiver, "SECURED", vec![], "JWTKEY"),
        (receiver, "SECURED", vec![api, provisioning], "CLIENT_ID"),
        ("sampler-worker", "SECURED", vec![], "CLIENT_SECRET"),
        (
            "sampler-worker",
            "HEALTHCHECK_SECURED",
            vec![],
            "AUTH_SERVER",
        ),
    ] {
        let mut launch = Launch::new(program).env("COLLECTOR_URL", "http://localhost:1");
        for (name, value) in more {
            launch = launch.env(name, value);
        }
        let program = launch.env(switch, "true").spawn().await.unwrap();
        assert_eq!(program.wait_exit(PATIENCE).await.unwrap(), 64, "{named}");
        let output = program.lines().join("\n");
        assert!(output.contains(named), "{output}");
    }
}

/// Fault 15 of the original: health did not recover, or saw nothing.
#[tokio::test(flavor = "multi_thread")]
async fn fault_15_health_follows_the_database_and_comes_back_by_itself() {
    let set =
        sampler_testkit::mongod::ReplicaSet::start(sampler_testkit::mongod::Options::single())
            .await
            .unwrap();
    let world = Landscape::new("health").await;
    let uri = set.uri_of("health");
    let receiver = world
        .receiver()
        .env("DB_URI", &uri)
        .env("HEALTHCHECK_THRESHOLD", "2s");
    let receiver = receiver.env("SAMPLER_DB_SERVER_SELECTION_TIMEOUT", "500ms");
    let receiver = receiver.start().await.unwrap();
    let worker = world
        .worker()
        .env("DB_URI", &uri)
        .env("SAMPLER_DB_SERVER_SELECTION_TIMEOUT", "500ms")
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

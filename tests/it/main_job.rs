//! Events go in, usages come out, and the difference is zero.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use sampler_testkit::build::{start_event, stop_event, with};
use sampler_testkit::{now_millis, wait_until};
use serde_json::{Value, json};

use crate::landscape::{DAY, HOUR, Landscape, MINUTE, PATIENCE, until_ready};

#[tokio::test(flavor = "multi_thread")]
async fn spans_are_billed_for_what_they_lasted_to_the_millisecond() {
    let world = Landscape::new("main_job").await;
    let receiver = world.receiver().start().await.unwrap();
    let worker = world.worker().start().await.unwrap();
    until_ready(&world.http, &receiver).await;
    let now = now_millis();
    let lengths = [0, 1, MINUTE + 17, HOUR, 5 * HOUR + 3, 3 * DAY + 4_321];
    for (target, length) in (0..).zip(lengths) {
        let start = now - 4 * DAY - 7;
        let id = format!("id-{target}");
        let event = with(start_event(target, start), "id", id.as_str());
        world.take(&receiver, "/v1/events/start", &event).await;
        let event = with(stop_event(target, start + length), "id", id.as_str());
        world.take(&receiver, "/v1/events/stop", &event).await;
    }
    world.until_complete(lengths.len() as u64).await;
    for (target, length) in lengths.iter().enumerate() {
        assert_eq!(
            world.billed(&format!("instance-{target}")),
            i128::from(*length)
        );
    }
    assert!(
        world
            .abacus
            .counted()
            .iter()
            .all(|counted| counted.usage.duration() != 0)
    );
    let counted = world.abacus.counted_count();
    assert_eq!(world.assert_ledger().await as u64, counted);
    // All of it is complete, so all of it expires.
    let usages = world.usages().await;
    wait_until("all entries expire", PATIENCE, async || {
        let lasting = bson::doc! { "expires_at": { "$exists": false } };
        usages.count_documents(lasting).await.unwrap() == 0
    })
    .await;
    drop(worker);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_stop_is_taken_back_and_an_update_changes_the_quantity() {
    let world = Landscape::new("late_stop").await;
    let receiver = world.receiver().start().await.unwrap();
    let worker = world.worker().start().await.unwrap();
    until_ready(&world.http, &receiver).await;
    let now = now_millis();
    let start = now - 2 * DAY;
    world
        .take(&receiver, "/v1/events/start", &start_event(7, start))
        .await;
    wait_until("it is sampled up to the last hour", PATIENCE, async || {
        world.billed("instance-7") > i128::from(2 * DAY - 2 * HOUR)
    })
    .await;
    // The customer has doubled the memory half a day ago, and stopped an hour later.
    let update = now - DAY / 2;
    world
        .take(&receiver, "/v1/events/stop", &stop_event(7, update))
        .await;
    let bigger = json!([{ "measure": "memory", "quantity": 1024 }]);
    let event = with(start_event(7, update), "measured_usage", bigger);
    world.take(&receiver, "/v1/events/start", &event).await;
    world
        .take(&receiver, "/v1/events/stop", &stop_event(7, update + HOUR))
        .await;
    world.until_complete(2).await;
    let amounts = world.abacus.amounts();
    assert_eq!(amounts["duration"], i128::from(DAY + DAY / 2 + HOUR));
    assert_eq!(
        amounts["memory"],
        i128::from((DAY + DAY / 2) * 512 + HOUR * 1024)
    );
    let negative = world
        .abacus
        .counted()
        .iter()
        .filter(|c| c.usage.duration() < 0)
        .count();
    assert!(negative >= 11, "{negative} negative usages");
    drop(worker);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_provider_meets_over_http() {
    let world = Landscape::new("answers").await;
    let receiver = world
        .receiver()
        .env("MAX_PAYLOAD", "2kb")
        .start()
        .await
        .unwrap();
    until_ready(&world.http, &receiver).await;
    let url = |path: &str| format!("{}{path}", receiver.base_url());
    let now = now_millis();
    let event = with(start_event(1, now), "id", "a");

    world.take(&receiver, "/v1/events/start", &event).await;
    let again = world.post(&receiver, "/v1/events/start", &event).await;
    assert_eq!(again.status(), 201);
    assert_eq!(again.headers()["idempotency-replayed"], "true");
    assert_eq!(again.text().await.unwrap(), "");

    let taken = with(event.clone(), "timestamp", now - 1);
    let problem = world.post(&receiver, "/v1/events/start", &taken).await;
    assert_eq!(problem.status(), 409);
    assert_eq!(
        problem.headers()["content-type"],
        "application/problem+json"
    );
    let problem: Value = problem.json().await.unwrap();
    assert_eq!(problem["type"], "urn:sampler:problem:id-taken");
    assert_eq!(problem["errors"][0]["pointer"], "#/timestamp");

    let open = world
        .post(&receiver, "/v1/events/start", &start_event(1, now))
        .await;
    assert_eq!(open.status(), 409);
    let stop = stop_event(1, now);
    let body = serde_json::to_vec(&stop).unwrap();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(&body).unwrap();
    let packed = world
        .http
        .post(url("/v1/events/stop"))
        .body(gzip.finish().unwrap());
    let packed = packed.header("content-type", "application/json; charset=UTF-8");
    let answer = packed
        .header("content-encoding", "gzip")
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 201);

    let wrong = world
        .http
        .get(url("/v1/events/start"))
        .send()
        .await
        .unwrap();
    assert_eq!(
        (wrong.status().as_u16(), &wrong.headers()["allow"]),
        (405, &"POST".parse().unwrap())
    );
    let large = with(start_event(3, now), "id", "x".repeat(3_000));
    let large = world.post(&receiver, "/v1/events/start", &large).await;
    assert_eq!(large.status(), 413);
    let text = world
        .http
        .post(url("/v1/events/start"))
        .body("{}")
        .send()
        .await
        .unwrap();
    assert_eq!(text.status(), 415);
    let mapping = json!({ "resource_id": "postgres", "plan_id": "large",
        "metering_plan": "m", "rating_plan": "r", "pricing_plan": "p" });
    world.take(&receiver, "/v1/mappings", &mapping).await;
    let again = world.post(&receiver, "/v1/mappings", &mapping).await;
    assert_eq!(again.status(), 409);
    let health = world.http.get(url("/healthcheck")).send().await.unwrap();
    assert_eq!(health.text().await.unwrap(), r#"{"healthy":true}"#);
}

#[tokio::test(flavor = "multi_thread")]
async fn several_workers_share_the_work_and_one_that_is_killed_is_replaced() {
    let world = Landscape::new("workers").await;
    let receiver = world.receiver().start().await.unwrap();
    until_ready(&world.http, &receiver).await;
    let start = now_millis() - 3 * DAY;
    for target in 0..60 {
        world
            .take(&receiver, "/v1/events/start", &start_event(target, start))
            .await;
        let stop = stop_event(target, start + 2 * DAY + i64::try_from(target).unwrap());
        world.take(&receiver, "/v1/events/stop", &stop).await;
    }
    let workers = [
        world.worker().start().await.unwrap(),
        world.worker().start().await.unwrap(),
        world.worker().start().await.unwrap(),
    ];
    wait_until("work has begun", PATIENCE, async || {
        world.abacus.counted_count() > 300
    })
    .await;
    workers[0].kill().unwrap();
    world.until_complete(60).await;
    for target in 0..60 {
        assert_eq!(
            world.billed(&format!("instance-{target}")),
            i128::from(2 * DAY + target)
        );
    }
}

//! What operators set reaches every program, and costs nobody a millisecond of a bill.

use std::time::Duration;

use sampler_testkit::build::{start_event, stop_event};
use sampler_testkit::{Program, now_millis, wait_until};
use serde_json::{Value, json};

use crate::landscape::{HOUR, Landscape, PATIENCE, until_ready};

/// Within this time all instances follow.
const FOLLOWED: Duration = Duration::from_secs(5);

impl Landscape {
    async fn started(&self) -> Program {
        let receiver = self.receiver().start().await.unwrap();
        until_ready(&self.http, &receiver).await;
        receiver
    }

    async fn set(&self, receiver: &Program, rate: u8, paused: bool) {
        let control = json!({
            "starts": { "rate": rate, "resources": {} },
            "sampling": { "paused": paused },
            "controller": { "enabled": false, "target_seconds": 600, "kp": 8, "ki": 0, "kd": 0 },
            "reason": "A trial.",
        });
        let put = self
            .http
            .put(format!("{}/v1/control", receiver.base_url()))
            .header("if-match", "*");
        let answer = put.json(&control).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{}", answer.text().await.unwrap());
    }

    /// Whether this start is admitted. Where it is not, the answer says when to come again.
    async fn is_let_in(&self, receiver: &Program, event: &Value) -> bool {
        let answer = self.post(receiver, "/v1/events/start", event).await;
        let has_time = answer.headers().contains_key("retry-after");
        match answer.status().as_u16() {
            201 => true,
            503 => {
                let problem: Value = answer.json().await.unwrap();
                assert_eq!(problem["type"], "urn:sampler:problem:throttled");
                assert!(has_time);
                false
            }
            other => panic!("{other}: {}", answer.text().await.unwrap()),
        }
    }

    /// The share of starts that a receiver says that it admits.
    async fn admission_rate(&self, receiver: &Program) -> Option<f64> {
        let metrics = self
            .http
            .get(format!("{}/metrics", receiver.base_url()))
            .send();
        let metrics = metrics.await.unwrap().text().await.unwrap();
        let rate = |line: &str| line.strip_prefix("sampler_admission_rate ")?.parse().ok();
        metrics.lines().find_map(rate)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_instances_drain_within_seconds_and_after_a_restart_and_stops_pass() {
    let world = Landscape::new("drain").await;
    let (one, two) = (world.started().await, world.started().await);
    let start = now_millis() - 9 * HOUR;
    let mut kept = start_event(0, start);
    kept["id"] = json!("kept");
    world.take(&one, "/v1/events/start", &kept).await;

    world.set(&one, 0, false).await;
    wait_until("both have heard of it", FOLLOWED, async || {
        world.admission_rate(&one).await == Some(0.0)
            && world.admission_rate(&two).await == Some(0.0)
    })
    .await;
    drop(two);
    let three = world.started().await;
    for receiver in [&one, &three] {
        assert!(!world.is_let_in(receiver, &start_event(1, start)).await);
    }
    // A repeat with an id and a stop are admitted at any rate.
    world.take(&three, "/v1/events/start", &kept).await;
    let end = start + 2 * HOUR;
    world
        .take(&three, "/v1/events/stop", &stop_event(0, end))
        .await;

    world.set(&three, 100, false).await;
    wait_until("the start gets in", FOLLOWED, async || {
        world.is_let_in(&one, &start_event(1, start)).await
    })
    .await;
    world
        .take(&one, "/v1/events/stop", &stop_event(1, end))
        .await;
    let worker = world.worker().start().await.unwrap();
    world.until_complete(2).await;
    for instance in ["instance-0", "instance-1"] {
        assert_eq!(world.billed(instance), i128::from(2 * HOUR));
    }
    drop(worker);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_turned_away_comes_again_with_its_own_time_and_the_bill_is_exact() {
    let world = Landscape::new("throttle").await;
    let receiver = world.started().await;
    let worker = world.worker().start().await.unwrap();
    world.set(&receiver, 30, false).await;
    wait_until("the receiver follows", FOLLOWED, async || {
        world.admission_rate(&receiver).await == Some(30.0)
    })
    .await;
    let start = now_millis() - 9 * HOUR - 7;
    let mut waiting: Vec<u64> = (0..60).collect();
    let mut left = Vec::new();
    for target in waiting.drain(..) {
        let moment = start + i64::try_from(target).unwrap();
        if !world
            .is_let_in(&receiver, &start_event(target, moment))
            .await
        {
            left.push(target);
        }
    }
    assert!((20..60).contains(&left.len()), "{} of 60 wait", left.len());
    world.set(&receiver, 100, false).await;
    for target in left {
        let event = start_event(target, start + i64::try_from(target).unwrap());
        wait_until("it gets in", PATIENCE, async || {
            world.is_let_in(&receiver, &event).await
        })
        .await;
    }
    for target in 0..60 {
        let event = stop_event(target, start + 3 * HOUR);
        world.take(&receiver, "/v1/events/stop", &event).await;
    }
    world.until_complete(60).await;
    for target in 0..60 {
        let billed = world.billed(&format!("instance-{target}"));
        assert_eq!(billed, i128::from(3 * HOUR) - i128::from(target));
    }
    drop(worker);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_pauses_and_goes_on_as_it_is_told_and_after_a_restart() {
    let world = Landscape::new("pause").await;
    let receiver = world.started().await;
    let worker = world.worker().start().await.unwrap();
    until_ready(&world.http, &worker).await;
    world.set(&receiver, 100, true).await;
    drop(worker);
    let worker = world.worker().start().await.unwrap();
    until_ready(&world.http, &worker).await;
    let start = now_millis() - 9 * HOUR;
    for target in 0..4 {
        world
            .take(&receiver, "/v1/events/start", &start_event(target, start))
            .await;
        let event = stop_event(target, start + HOUR);
        world.take(&receiver, "/v1/events/stop", &event).await;
    }
    // It counts what waits, so it is alive; and it leaves that alone.
    wait_until("the backlog is counted", PATIENCE, async || {
        let url = format!("{}/v1/backlog", receiver.base_url());
        let backlog = world.http.get(url).send().await.unwrap();
        let backlog: Value = backlog.json().await.unwrap();
        backlog["due"] == 4
    })
    .await;
    assert_eq!(world.abacus.post_count(), 0);
    world.set(&receiver, 100, false).await;
    world.until_complete(4).await;
    for target in 0..4 {
        assert_eq!(
            world.billed(&format!("instance-{target}")),
            i128::from(HOUR)
        );
    }
    drop(worker);
}

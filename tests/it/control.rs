//! What operators set reaches every receiver, and costs nobody a millisecond of a bill.

use std::time::Duration;

use sampler_testkit::build::{start_event, stop_event};
use sampler_testkit::{Program, now_millis, wait_until};
use serde_json::{Value, json};

use crate::landscape::{HOUR, Landscape, until_ready};

/// Within this time all instances follow.
const FOLLOWED: Duration = Duration::from_secs(5);

impl Landscape {
    async fn started(&self) -> Program {
        let receiver = self.receiver().start().await.unwrap();
        until_ready(&self.http, &receiver).await;
        receiver
    }

    async fn set(&self, receiver: &Program, rate: u8) {
        let control = json!({
            "starts": { "rate": rate, "resources": {} },
            "sampling": { "paused": false },
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
                assert_eq!(problem["type"], "/problems/throttled");
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

    world.set(&one, 0).await;
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

    world.set(&three, 100).await;
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

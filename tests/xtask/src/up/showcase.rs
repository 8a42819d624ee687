//! What is worth looking at in the console once the replay is done: a late stop, an update, a plan that
//! Abacus refuses, and a backlog that drains while one watches.
//!
//! It is of organizations and resources of its own, so that it is not part of the table and of what is
//! verified.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use reqwest::Client;
use reqwest::header::LOCATION;
use sampler_testkit::abacus::Fault;
use sampler_testkit::now_millis;
use serde_json::{Value, json};

use super::system::System;

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

/// The plan that has no mapping.
const UNMAPPED: &str = "experimental";
/// Spans of that plan.
const REFUSED: i64 = 12;
/// Spans that are behind, each more than the one before, and by how much the last one is.
const BEHIND: i64 = 400;
const AGE: i64 = 45 * DAY;
/// How long Abacus takes for each of their usages, so that one can watch.
const SLOWNESS: Duration = Duration::from_millis(600);
/// How long an answer may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// How long workers may take until there is something to look at.
const WAIT_LIMIT: Duration = Duration::from_secs(30);

/// How long ago the usage with the late stop began and ended. Several windows begin in between, and one has
/// ended since: so the stop is late.
const LATE: (i64, i64) = (9 * HOUR + HOUR / 3, 3 * HOUR + HOUR / 4);

/// Sends the events. Answers the id of the span with the late stop.
pub(crate) async fn begin(system: &System) -> Result<String> {
    let sender = Sender::new(system)?;
    let late = sender.late_stop(LATE).await?;
    sender.update().await?;
    let refused = Fault::status(400).only_where("plan_id", UNMAPPED);
    system.abacus.fault(refused);
    let refused = (1..=REFUSED).map(|number| {
        let start = sender.now - 3 * DAY - number * HOUR;
        sender.start("search", UNMAPPED, &format!("index-{number}"), start)
    });
    sender.send_all(refused.collect()).await?;
    sender.wait_until_suspended().await?;
    Ok(late)
}

/// Sends the events of spans that are behind, for one who watches by now.
pub(crate) async fn fall_behind(system: &System) -> Result<()> {
    let sender = Sender::new(system)?;
    let slow = Fault::delay(SLOWNESS).only_where("resource_id", "cache");
    system.abacus.fault(slow);
    let behind = (1..=BEHIND).map(|number| {
        let start = sender.now - number * AGE / BEHIND;
        sender.start("cache", "small", &format!("cache-{number}"), start)
    });
    sender.send_all(behind.collect()).await
}

struct Sender {
    client: Client,
    base_url: String,
    now: i64,
}

impl Sender {
    fn new(system: &System) -> Result<Self> {
        let client = Client::builder().timeout(ANSWER_LIMIT);
        Ok(Self {
            client: client.build().context("making an HTTP client")?,
            base_url: system.receiver.base_url(),
            now: now_millis(),
        })
    }

    fn start(&self, resource: &str, plan: &str, instance: &str, at: i64) -> Value {
        json!({
            "type": "start", "id": format!("{instance}-{}", self.now), "timestamp": at,
            "organization_id": "fabrikam", "space_id": "production", "consumer_id": "shop",
            "resource_id": resource, "plan_id": plan, "resource_instance_id": instance,
            "measured_usage": [{ "measure": "memory", "quantity": 512 }],
        })
    }

    /// A stop that comes when more is billed already than was used. Answers the id of the span.
    async fn late_stop(&self, ago: (i64, i64)) -> Result<String> {
        let (begin, end) = (self.now - ago.0, self.now - ago.1);
        let mut event = self.start("search", "small", "products-index", begin);
        let location = self.send("start", &event).await?;
        let location = location.context("a start without a Location")?;
        self.wait_until_overtaken(&location, end).await?;
        event["timestamp"] = json!(end);
        if let Some(event) = event.as_object_mut() {
            event.remove("measured_usage");
        }
        self.send("stop", &event).await?;
        let id = location.rsplit('/').next();
        Ok(id.unwrap_or_default().to_owned())
    }

    /// A span that waits for its next window is sampled as far as it can be.
    async fn wait_until_overtaken(&self, location: &str, end: i64) -> Result<()> {
        let is_overtaken = |span: &Value| {
            span["sampled_to"].as_i64() > Some(end) || span["due_at"].as_i64() > Some(now_millis())
        };
        self.wait_until(location, is_overtaken).await
    }

    /// All spans of the plan that is refused are suspended, which takes some attempts.
    async fn wait_until_suspended(&self) -> Result<()> {
        let is_suspended = |causes: &Value| {
            let causes = causes["items"].as_array().into_iter().flatten();
            let spans = causes.filter_map(|cause| cause["spans"].as_i64());
            spans.sum::<i64>() >= REFUSED
        };
        self.wait_until("/v1/suspended", is_suspended).await
    }

    /// Waits until the document there is as wanted. What takes longer is only missing from what is shown.
    async fn wait_until(&self, path: &str, is_so: impl Fn(&Value) -> bool) -> Result<()> {
        let begin = Instant::now();
        let url = format!("{}{path}", self.base_url);
        while begin.elapsed() < WAIT_LIMIT {
            let document: Value = self.client.get(&url).send().await?.json().await?;
            if is_so(&document) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    /// A plan grows in the middle of its use.
    async fn update(&self) -> Result<()> {
        let begin = self.start("search", "small", "orders-index", self.now - 5 * DAY);
        self.send("start", &begin).await?;
        let mut grown = self.start("search", "large", "orders-index", self.now - 2 * DAY);
        grown["id"] = json!(format!("orders-index-grown-{}", self.now));
        grown["measured_usage"][0]["quantity"] = json!(2_048);
        grown["previous"] = json!({ "plan_id": "small" });
        self.send("update", &grown).await?;
        Ok(())
    }

    /// Sends one event; answers the `Location`.
    async fn send(&self, kind: &str, event: &Value) -> Result<Option<String>> {
        let mut body = event.clone();
        if let Some(body) = body.as_object_mut() {
            body.remove("type");
        }
        let url = format!("{}/v1/events/{kind}", self.base_url);
        let response = self.client.post(url).json(&body).send().await?;
        let status = response.status();
        let location = response.headers().get(LOCATION);
        let location = location.and_then(|it| Some(it.to_str().ok()?.to_owned()));
        let told = response.text().await?;
        ensure!(status == 201, "a {kind} of the showcase: {status} {told}");
        Ok(location)
    }

    async fn send_all(&self, events: Vec<Value>) -> Result<()> {
        let url = format!("{}/v1/events", self.base_url);
        let count = events.len();
        let response = self.client.post(url).json(&events).send().await?;
        let told: Value = response.json().await?;
        ensure!(told["accepted"] == count, "events of the showcase: {told}");
        Ok(())
    }
}

//! The stand-in for Abacus answers as the real one does. How it fails on demand is shown where something is
//! tested with that: in `crates/upstream` and in the end-to-end tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use reqwest::{Client, Response, StatusCode};
use sampler_testkit::abacus::{Fault, Options, Outcome, StandInAbacus};
use sampler_testkit::build::with;
use serde_json::{Value, json};

const DAY: i64 = 86_400_000;
const USAGES: &str = "/v1/metering/collected/usage";

/// A usage of that id and moment: 10 units over 5 ms.
fn usage(id: &str, at: i64) -> Value {
    json!({
        "dedup_id": id, "start": at, "end": at, "organization_id": "o", "space_id": "s",
        "consumer_id": "c", "resource_id": "r", "plan_id": "p", "resource_instance_id": "i",
        "measured_usage": [
            { "measure": "units", "quantity": 10 },
            { "measure": "duration", "quantity": 5 },
        ],
    })
}

async fn post(abacus: &StandInAbacus, usage: &Value) -> Response {
    let client = Client::builder().build().unwrap();
    let request = client.post(abacus.base_url() + USAGES).json(usage);
    request.send().await.unwrap()
}

async fn start() -> StandInAbacus {
    StandInAbacus::start(Options::default()).await.unwrap()
}

#[tokio::test]
async fn a_repeat_is_accepted_and_not_counted() {
    let abacus = start().await;
    let elsewhere = with(usage("1", 7), "space_id", "another");
    let more = with(
        usage("1", 7),
        "measured_usage",
        json!([{ "measure": "m", "quantity": 1 }]),
    );
    for repeat in [usage("1", 7), usage("1", 7), elsewhere, more] {
        assert_eq!(post(&abacus, &repeat).await.status(), 202);
    }
    assert_eq!((abacus.counted_count(), abacus.post_count()), (1, 4));
    assert_eq!(abacus.posts()[3].outcome, Outcome::Repeat);
    for another in [
        usage("2", 7),
        usage("1", 8),
        with(usage("1", 7), "plan_id", "q"),
    ] {
        assert_eq!(post(&abacus, &another).await.status(), 202);
    }
    assert_eq!(abacus.counted_count(), 4);
}

#[tokio::test]
async fn puts_tomorrow_aside_until_it_is_today() {
    let clock = Arc::new(AtomicI64::new(10 * DAY + 5));
    let hand = Arc::clone(&clock);
    let options = Options {
        clock: Arc::new(move || hand.load(Ordering::Relaxed)),
        ..Options::default()
    };
    let abacus = StandInAbacus::start(options).await.unwrap();
    post(&abacus, &usage("1", 11 * DAY - 1)).await;
    assert_eq!(post(&abacus, &usage("2", 11 * DAY)).await.status(), 202);
    assert_eq!((abacus.counted_count(), abacus.put_aside().len()), (1, 1));
    clock.store(11 * DAY, Ordering::Relaxed);
    post(&abacus, &usage("2", 11 * DAY)).await;
    assert_eq!(abacus.counted_count(), 2);
}

#[tokio::test]
async fn refusals_have_the_bodies_of_the_real_one() {
    let abacus = start().await;
    let name = |what| format!(r#"{{"name":"Invalid usage: invalid {what}"}}"#);
    let schema = with(usage("1", 7), "more", 1);
    let instance = with(usage("1", 7), "space_id", "");
    for (usage, what) in [(schema, "schema"), (instance, "resource instance")] {
        let response = post(&abacus, &usage).await;
        assert_eq!(response.status(), StatusCode::BAD_REQUEST);
        assert_eq!(response.text().await.unwrap(), name(what));
    }
    assert_eq!(abacus.counted_count(), 0);
    for (fault, kind, body) in [
        (
            Fault::status(400),
            Some("application/json"),
            name("resource instance"),
        ),
        (Fault::status(451), None, String::new()),
        (
            Fault::status_retry_after(429, "60"),
            Some("text/html; charset=utf-8"),
            "<!DOCTYPE html>".to_owned(),
        ),
    ] {
        abacus.fault(fault.times(1));
        let response = post(&abacus, &usage("1", 7)).await;
        let given = response.headers().get("content-type").cloned();
        assert_eq!(given.as_ref().map(|it| it.to_str().unwrap()), kind);
        assert!(response.text().await.unwrap().starts_with(&body));
    }
}

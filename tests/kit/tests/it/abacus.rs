//! The stand-in for Abacus answers, counts and fails as configured.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

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

fn client() -> Client {
    Client::builder()
        .timeout(Duration::from_secs(20))
        .build()
        .unwrap()
}

async fn post(abacus: &StandInAbacus, usage: &Value) -> reqwest::Result<Response> {
    client()
        .post(abacus.base_url() + USAGES)
        .json(usage)
        .send()
        .await
}

async fn status(abacus: &StandInAbacus, usage: &Value) -> u16 {
    post(abacus, usage).await.unwrap().status().as_u16()
}

async fn located(response: &Response) -> Response {
    let location = response.headers()["location"].to_str().unwrap();
    client().get(location).send().await.unwrap()
}

async fn start() -> StandInAbacus {
    StandInAbacus::start(Options::default()).await.unwrap()
}

/// A stand-in whose clock stands at `now`.
async fn start_at(now: i64, options: Options) -> (StandInAbacus, Arc<AtomicI64>) {
    let clock = Arc::new(AtomicI64::new(now));
    let hand = Arc::clone(&clock);
    let options = Options {
        clock: Arc::new(move || hand.load(Ordering::Relaxed)),
        ..options
    };
    (StandInAbacus::start(options).await.unwrap(), clock)
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
        assert_eq!(status(&abacus, &repeat).await, 202);
    }
    assert_eq!((abacus.counted_count(), abacus.post_count()), (1, 4));
    assert_eq!(abacus.posts()[3].outcome, Outcome::Repeat);
    for another in [
        usage("2", 7),
        usage("1", 8),
        with(usage("1", 7), "plan_id", "q"),
    ] {
        assert_eq!(status(&abacus, &another).await, 202);
    }
    assert_eq!(abacus.counted_count(), 4);
}

#[tokio::test]
async fn refuses_what_does_not_fit_the_schema() {
    let abacus = start().await;
    let response = post(&abacus, &with(usage("1", 7), "more", 1))
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    let body: Value = response.json().await.unwrap();
    assert_eq!(body, json!({ "name": "Invalid usage: invalid schema" }));
    let response = post(&abacus, &with(usage("1", 7), "space_id", ""))
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    let body: Value = response.json().await.unwrap();
    assert_eq!(
        body,
        json!({ "name": "Invalid usage: invalid resource instance" })
    );
    assert_eq!(abacus.counted_count(), 0);
    assert_eq!(abacus.posts()[0].status, Some(400));
}

#[tokio::test]
async fn puts_tomorrow_aside_until_it_is_today() {
    let (abacus, clock) = start_at(10 * DAY + 5, Options::default()).await;
    assert_eq!(status(&abacus, &usage("1", 11 * DAY - 1)).await, 202);
    let response = post(&abacus, &usage("2", 11 * DAY)).await.unwrap();
    assert_eq!(response.status(), StatusCode::ACCEPTED);
    let document: Value = located(&response).await.json().await.unwrap();
    assert!(document["error"].is_string(), "{document}");
    assert_eq!(abacus.counted_count(), 1);
    assert_eq!(abacus.put_aside().len(), 1);
    clock.store(11 * DAY, Ordering::Relaxed);
    assert_eq!(status(&abacus, &usage("2", 11 * DAY)).await, 202);
    assert_eq!(abacus.counted_count(), 2);
}

#[tokio::test]
async fn closes_months_after_their_slack() {
    let february = 31 * DAY;
    let slack = Some(Duration::from_mins(10));
    let options = Options {
        month_slack: slack,
        ..Options::default()
    };
    let (abacus, clock) = start_at(february + 600_000, options).await;
    assert_eq!(status(&abacus, &usage("1", february - 1)).await, 202);
    assert_eq!(abacus.counted_count(), 1);
    clock.fetch_add(1, Ordering::Relaxed);
    assert_eq!(status(&abacus, &usage("2", february - 1)).await, 202);
    assert_eq!(status(&abacus, &usage("3", february)).await, 202);
    assert_eq!(abacus.counted_count(), 2);
    assert!(matches!(abacus.posts()[1].outcome, Outcome::PutAside(_)));
    // A repeat of what counted before is a repeat still.
    assert_eq!(status(&abacus, &usage("1", february - 1)).await, 202);
    assert_eq!(abacus.posts()[3].outcome, Outcome::Repeat);
}

#[tokio::test]
async fn documents_are_not_found_at_first() {
    let options = Options {
        confirms_after: Duration::from_secs(1),
        ..Options::default()
    };
    let (abacus, clock) = start_at(0, options).await;
    let response = post(&abacus, &usage("1", 0)).await.unwrap();
    assert_eq!(located(&response).await.status(), StatusCode::NOT_FOUND);
    clock.store(1000, Ordering::Relaxed);
    assert_eq!(located(&response).await.status(), StatusCode::OK);
}

/// The real one passes over a repeat, and keeps no document of it.
#[tokio::test]
async fn a_repeat_has_no_document() {
    let abacus = start().await;
    let first = post(&abacus, &usage("1", 7)).await.unwrap();
    let repeat = post(&abacus, &usage("1", 7)).await.unwrap();
    let next = post(&abacus, &usage("2", 7)).await.unwrap();
    assert_eq!(located(&first).await.status(), StatusCode::OK);
    assert_eq!(located(&repeat).await.status(), StatusCode::NOT_FOUND);
    let next: Value = located(&next).await.json().await.unwrap();
    assert_eq!(next["dedup_id"], "2");
    assert_eq!(abacus.counted_count(), 2);
}

#[tokio::test]
async fn documents_are_for_those_who_may_read_and_have_faults_of_their_own() {
    let options = Options {
        bearer: Some("good".to_owned()),
        ..Options::default()
    };
    let (abacus, _) = start_at(0, options).await;
    let url = abacus.base_url() + USAGES;
    let posted = client().post(&url).bearer_auth("good").json(&usage("1", 0));
    let posted = posted.send().await.unwrap();
    assert_eq!(located(&posted).await.status(), StatusCode::UNAUTHORIZED);
    abacus.fault(Fault::status_retry_after(429, "7").on_documents().times(1));
    let busy = located(&posted).await;
    assert_eq!(busy.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(busy.headers()["retry-after"], "7");
    let location = posted.headers()["location"].to_str().unwrap();
    let found = client().get(location).bearer_auth("good").send().await;
    assert_eq!(found.unwrap().status(), StatusCode::OK);
    assert_eq!(abacus.questions().len(), 3);
    assert_eq!(abacus.questions()[2].as_deref(), Some("Bearer good"));
}

#[tokio::test]
async fn ordered_answers_have_the_bodies_of_the_real_one() {
    let abacus = start().await;
    let name = r#"{"name":"Invalid usage: invalid resource instance"}"#;
    for (fault, kind, body) in [
        (Fault::status(400), Some("application/json"), name),
        (Fault::status(451), None, ""),
    ] {
        abacus.fault(fault.times(1));
        let response = post(&abacus, &usage("1", 7)).await.unwrap();
        let given = response.headers().get("content-type").cloned();
        assert_eq!(given.as_ref().map(|it| it.to_str().unwrap()), kind);
        assert_eq!(response.text().await.unwrap(), body);
    }
    abacus.fault(Fault::status_retry_after(429, "60").times(1));
    let response = post(&abacus, &usage("1", 7)).await.unwrap();
    assert!(
        response.headers()["content-type"]
            .to_str()
            .unwrap()
            .starts_with("text/html")
    );
    assert!(
        response
            .text()
            .await
            .unwrap()
            .starts_with("<!DOCTYPE html>")
    );
}

#[tokio::test]
async fn loses_answers_before_and_after_counting() {
    let abacus = start().await;
    abacus.fault(Fault::close_before().times(1));
    abacus.fault(Fault::lose_answer().times(1));
    assert!(post(&abacus, &usage("1", 7)).await.is_err());
    assert_eq!(abacus.counted_count(), 0);
    assert!(post(&abacus, &usage("1", 7)).await.is_err());
    assert_eq!(abacus.counted_count(), 1);
    assert_eq!(status(&abacus, &usage("1", 7)).await, 202);
    assert_eq!(abacus.counted_count(), 1);
    let statuses: Vec<_> = abacus.posts().iter().map(|post| post.status).collect();
    assert_eq!(statuses, [None, None, Some(202)]);
}

#[tokio::test]
async fn mappings_are_made_once_and_wanted_on_demand() {
    let options = Options {
        requires_mappings: true,
        ..Options::default()
    };
    let abacus = StandInAbacus::start(options).await.unwrap();
    let slashed = with(usage("1", 7), "plan_id", "a/b ü");
    let url = |kind: &str, plan: &str| {
        let base = abacus.base_url();
        format!("{base}/v1/provisioning/mappings/{kind}/resources/r/plans/a%2Fb%20%C3%BC/{plan}")
    };
    abacus.fault(Fault::status_retry_after(429, "3").on_mappings().times(1));
    let send = async |url: String| client().post(url).send().await.unwrap().status().as_u16();
    assert_eq!(send(url("metering", "x")).await, 429);
    for kind in ["metering", "rating", "pricing"] {
        assert_eq!(status(&abacus, &slashed).await, 400);
        assert_eq!(send(url(kind, "x")).await, 200);
        assert_eq!(send(url(kind, "y")).await, 409);
    }
    assert_eq!(send(url("other", "x")).await, 404);
    assert_eq!(abacus.mappings().len(), 3);
    assert_eq!(abacus.mappings()[2].plan, "x");
    assert_eq!(status(&abacus, &slashed).await, 202);
}

#[tokio::test]
async fn sums_what_counts() {
    let abacus = start().await;
    let back =
        json!([{ "measure": "duration", "quantity": -3 }, { "measure": "text", "quantity": "x" }]);
    status(&abacus, &usage("1", DAY - 1)).await;
    status(&abacus, &usage("1", DAY - 1)).await;
    status(&abacus, &with(usage("2", DAY), "plan_id", "q")).await;
    status(&abacus, &with(usage("3", DAY), "measured_usage", back)).await;
    let by_plan = abacus.duration_sum_by(|usage| usage.plan_id.clone());
    assert_eq!(
        by_plan,
        BTreeMap::from([("p".to_owned(), 2), ("q".to_owned(), 5)])
    );
    let amounts = |duration, units| {
        BTreeMap::from([
            ("duration".to_owned(), duration),
            ("units".to_owned(), units),
        ])
    };
    assert_eq!(abacus.amounts(), amounts(7, 100));
    let days = BTreeMap::from([(0, amounts(5, 50)), (1, amounts(2, 50))]);
    assert_eq!(abacus.amounts_per_day(), days);
}

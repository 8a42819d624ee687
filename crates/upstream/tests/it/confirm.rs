//! Whether usages count, answer of a stand-in that answers as the collector does.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use sampler_testkit::abacus::{Fault, Options, StandInAbacus};
use sampler_upstream::{Answer, HttpCollector, HttpConfirmer, LookupAnswer};

use crate::{ClientOptions, NOW, options, serve, usage};

async fn stand_in(confirms_after: i64) -> (StandInAbacus, Arc<AtomicI64>, ClientOptions) {
    let clock = Arc::new(AtomicI64::new(NOW.as_millis() + 7_200_000));
    let seen = Arc::clone(&clock);
    let abacus = StandInAbacus::start(Options {
        clock: Arc::new(move || seen.load(Ordering::Relaxed)),
        confirms_after: Duration::from_millis(confirms_after.unsigned_abs()),
        ..Options::default()
    });
    let abacus = abacus.await.unwrap();
    let address = abacus.base_url().replace("http://", "").parse().unwrap();
    (abacus, clock, options(address))
}

/// Posts the usage; answers with its `Location`.
async fn accepted(options: &ClientOptions) -> String {
    let collector = HttpCollector::new(options).unwrap();
    let posted = collector.post(&usage(), NOW).await;
    assert_eq!(posted.answer, Answer::Accepted);
    posted.details.location.unwrap()
}

async fn ask(options: &ClientOptions, location: &str) -> LookupAnswer {
    let confirmer = HttpConfirmer::new(options).unwrap();
    confirmer.ask(location, &usage().dedup_id, NOW).await.answer
}

#[tokio::test]
async fn a_usage_is_not_there_for_a_while_and_then_counts() {
    let (_abacus, clock, options) = stand_in(1_000).await;
    let location = accepted(&options).await;
    assert_eq!(ask(&options, &location).await, LookupAnswer::NotFound);
    clock.fetch_add(1_000, Ordering::Relaxed);
    assert_eq!(ask(&options, &location).await, LookupAnswer::Counts);
    // Nobody knows the Location of a repeat.
    let repeat = accepted(&options).await;
    assert_ne!(repeat, location);
    assert_eq!(ask(&options, &repeat).await, LookupAnswer::NotFound);
}

#[tokio::test]
async fn a_usage_that_was_put_aside_says_why() {
    let (abacus, _, options) = stand_in(0).await;
    abacus.fault(Fault::put_aside("plan not found"));
    let location = accepted(&options).await;
    let error = "plan not found".to_owned();
    assert_eq!(
        ask(&options, &location).await,
        LookupAnswer::SetAside { error }
    );
}

#[tokio::test]
async fn the_document_of_another_usage_says_nothing() {
    let (_abacus, _, options) = stand_in(0).await;
    let location = accepted(&options).await;
    let confirmer = HttpConfirmer::new(&options).unwrap();
    let answer = confirmer.ask(&location, "another", NOW).await.answer;
    assert!(
        matches!(answer, LookupAnswer::Mismatch { .. }),
        "{answer:?}"
    );
}

#[tokio::test]
async fn what_is_no_document_says_nothing() {
    let large = format!("{{\"dedup_id\":\"{}\"}}", "x".repeat(3 << 20));
    for body in ["<html>Log in</html>".to_owned(), large, String::new()] {
        let router = Router::new().fallback(move || async move { body });
        let answer = ask(&serve(router).await, "/v1/usage/1").await;
        assert!(
            matches!(answer, LookupAnswer::Mismatch { .. }),
            "{answer:?}"
        );
    }
    let router = Router::new().fallback(|| async { (StatusCode::FOUND, [("location", "/login")]) });
    let answer = ask(&serve(router).await, "/v1/usage/1").await;
    assert!(
        matches!(answer, LookupAnswer::Mismatch { .. }),
        "{answer:?}"
    );
}

/// Another server never sees a question, and so never our token.
#[tokio::test]
async fn only_the_collector_is_asked() {
    let (abacus, _, options) = stand_in(0).await;
    let (foreign, _, _) = stand_in(0).await;
    let location = accepted(&options).await;
    let elsewhere = location.replace(&abacus.base_url(), &foreign.base_url());
    assert_ne!(elsewhere, location);
    assert_eq!(ask(&options, &elsewhere).await, LookupAnswer::Counts);
    assert_eq!(foreign.questions(), 0);
    assert_eq!(abacus.questions(), 1);
}

#[tokio::test]
async fn an_abacus_that_does_not_answer_says_nothing() {
    let (abacus, _, options) = stand_in(0).await;
    let location = accepted(&options).await;
    abacus.fault(Fault::status_retry_after(429, "17").on_documents().times(1));
    let after = Duration::from_secs(17);
    assert_eq!(ask(&options, &location).await, LookupAnswer::Wait { after });
    abacus.fault(Fault::status_retry_after(503, "9").on_documents().times(1));
    let answer = ask(&options, &location).await;
    let nine = Some(Duration::from_secs(9));
    assert!(matches!(answer, LookupAnswer::Failed { after, .. } if after == nine));
    for fault in [
        Fault::status(401),
        Fault::status(500),
        Fault::hang(),
        Fault::close_before(),
    ] {
        abacus.fault(fault.on_documents().times(1));
        let answer = ask(&options, &location).await;
        let is_failed = matches!(answer, LookupAnswer::Failed { after: None, .. });
        assert!(is_failed, "{answer:?}");
    }
    abacus.go_away().await;
    let answer = ask(&options, &location).await;
    assert!(matches!(answer, LookupAnswer::Failed { after: None, .. }));
}

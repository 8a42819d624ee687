//! Requests that carry a token.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use sampler_service::oauth::http::client;
use sampler_service::oauth::{
    CaBundle, Client, ClientCredentials, Discoverer, HttpOptions, TokenServer,
};
use sampler_testkit::uaa::{Discovery, Offer, StandInUaa, Trouble};
use sampler_upstream::{Answer, HttpCollector, LookupAnswer, Upstream};

use crate::{NOW, cloud_events, find, serve, tried_again, usage};

const SCOPE: &str = "abacus.usage.sampler.write";

async fn tokens() -> (StandInUaa, Arc<ClientCredentials>) {
    let uaa = StandInUaa::start(Discovery::Info).await.unwrap();
    uaa.add_client("sampler", "hush", &[SCOPE]);
    let options = HttpOptions {
        timeout: std::time::Duration::from_secs(5),
        skip_ssl_validation: false,
        authorities: CaBundle::default(),
    };
    let api = TokenServer::CloudFoundry(uaa.base_url().parse().unwrap());
    let sampler = Client {
        id: "sampler".to_owned(),
        secret: "hush".into(),
        scope: SCOPE.to_owned(),
        audience: None,
        server: Discoverer::new(api, client(&options).unwrap(), None),
    };
    (uaa, ClientCredentials::new(sampler))
}

/// A collector that takes usages with this token alone, and counts what it is sent.
async fn collector_for(
    wanted: &'static str,
    tokens: Arc<ClientCredentials>,
) -> (HttpCollector, Arc<AtomicUsize>) {
    let posts = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&posts);
    let router = Router::new().fallback(move |headers: HeaderMap| async move {
        seen.fetch_add(1, Ordering::Relaxed);
        let token = headers
            .get("authorization")
            .map(|value| value.as_bytes().to_vec());
        if token == Some(format!("Bearer {wanted}").into_bytes()) {
            StatusCode::ACCEPTED
        } else {
            StatusCode::UNAUTHORIZED
        }
    });
    let mut options = serve(router).await;
    options.tokens = Some(tokens);
    (HttpCollector::new(&options).unwrap(), posts)
}

#[tokio::test]
async fn a_usage_carries_the_token_of_the_moment() {
    let (uaa, tokens) = tokens().await;
    uaa.give_out("one");
    let (collector, posts) = collector_for("one", tokens).await;
    for _ in 0..10 {
        assert_eq!(collector.post(&usage(), NOW).await.answer, Answer::Accepted);
    }
    assert_eq!(posts.load(Ordering::Relaxed), 10);
    assert_eq!(uaa.asked(Offer::Token), 1);
}

/// Fault 16 of the original: tokens were not fetched again on a 401.
#[tokio::test]
async fn fault_16_a_token_that_is_refused_is_replaced_and_the_usage_sent_once_more() {
    let (uaa, tokens) = tokens().await;
    uaa.give_out("one");
    let (collector, posts) = collector_for("two", tokens).await;
    // A young token is not replaced: its successor would be no better.
    tried_again(collector.post(&usage(), NOW).await.answer);
    assert_eq!(posts.load(Ordering::Relaxed), 1);
    assert_eq!(uaa.asked(Offer::Token), 1);
    uaa.give_out("two");
    let post = async || collector.post(&usage(), NOW).await.answer == Answer::Accepted;
    let limit = std::time::Duration::from_secs(30);
    sampler_testkit::wait_until("it is older", limit, post).await;
    assert_eq!(uaa.asked(Offer::Token), 2);
}

#[tokio::test]
async fn without_a_token_nothing_is_posted_and_nothing_lost() {
    let (uaa, tokens) = tokens().await;
    uaa.trouble(Some(Trouble::Status(503)));
    let (collector, posts) = collector_for("one", tokens).await;
    for _ in 0..20 {
        let error = tried_again(collector.post(&usage(), NOW).await.answer);
        assert!(error.contains("503"), "{error}");
    }
    assert_eq!(posts.load(Ordering::Relaxed), 0);
    assert!(uaa.asked(Offer::Token) <= 2);
}

/// By its time limit a post is over, whatever it waited for: an operator's skip counts on that.
#[tokio::test]
async fn the_wait_for_a_token_is_within_the_time_limit_of_a_post() {
    let (uaa, tokens) = tokens().await;
    uaa.trouble(Some(Trouble::Hang));
    let (collector, posts) = collector_for("one", tokens).await;
    match collector.post(&usage(), NOW).await.answer {
        Answer::TryAgain { error, .. } => assert!(error.contains("too long"), "{error}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(posts.load(Ordering::Relaxed), 0);
}

/// Gateways exist that answer with what they were sent.
#[tokio::test]
async fn an_answer_that_repeats_the_request_is_not_repeated() {
    let (_uaa, tokens) = tokens().await;
    let router = Router::new().fallback(move |headers: HeaderMap, body: String| async move {
        let token = headers["authorization"].to_str().unwrap().to_owned();
        let text = format!("cannot take {body} with {token}");
        let echo = serde_json::json!({ "name": text, "error": text, "headers": token });
        (StatusCode::BAD_REQUEST, echo.to_string())
    });
    let mut options = serve(router).await;
    let token = tokens.token().await.unwrap().header();
    options.tokens = Some(tokens);
    let collector = HttpCollector::new(&options).unwrap();
    let Answer::Refused { error } = collector.post(&usage(), NOW).await.answer else {
        panic!("not refused");
    };
    assert_eq!(error, "Abacus answered 400: cannot take … with Bearer …");
    let token = token.to_str().unwrap().strip_prefix("Bearer ").unwrap();
    for secret in [token, &usage().dedup_id] {
        assert!(!error.contains(secret), "{error}");
    }
}

#[tokio::test]
async fn events_and_finds_carry_the_token_of_the_client_where_none_is_set() {
    let (uaa, tokens) = tokens().await;
    uaa.give_out("one");
    let router = Router::new().fallback(|headers: HeaderMap| async move {
        let token = headers.get("authorization");
        if token.is_some_and(|token| token == "Bearer one") {
            (StatusCode::OK, "[]")
        } else {
            (StatusCode::UNAUTHORIZED, "")
        }
    });
    let mut options = serve(router).await;
    options.tokens = Some(tokens);
    let events = cloud_events(&options);
    assert_eq!(events.post(&usage(), NOW).await.answer, Answer::Accepted);
    assert_eq!(find(&events).await.answer, LookupAnswer::NotFound);
}

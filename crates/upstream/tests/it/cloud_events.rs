//! A receiver of CloudEvents: what its answers to posts and lookups mean.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, StatusCode, Uri};
use sampler_domain::Contract;
use sampler_upstream::{
    Answer, CloudEvents, EventAttributes, FindUrl, LookupAnswer, LookupResult, Sought, Upstream,
};
use secrecy::SecretString;

use crate::{NOW, options, serve, usage};

const SOURCE: &str = "urn:a b";

/// A receiver that answers everything so, and the client for it. What was asked for is noted.
async fn upstream(answer: (u16, &'static str, &'static str)) -> (CloudEvents, Asking) {
    let asked = Asking::default();
    let seen = Arc::clone(&asked);
    let router = Router::new().fallback(move |uri: Uri, headers: HeaderMap| async move {
        let token = headers["authorization"].to_str().unwrap().to_owned();
        seen.lock().unwrap().push((uri.to_string(), token));
        let (status, media_type, body) = answer;
        let status = StatusCode::from_u16(status).unwrap();
        (status, [("content-type", media_type)], body)
    });
    let mut options = serve(router).await;
    let find_url = format!("{}find?id={{id}}&source={{source}}", options.url);
    options.url = options.url.join("events?tenant=a%20b").unwrap();
    let attributes = EventAttributes::new(SOURCE, "sampler.usage");
    let events = CloudEvents::new(&options, attributes, Contract::Forever).unwrap();
    let find_url = FindUrl::new(&find_url).unwrap();
    let token = SecretString::from("t0k3n");
    let events = events
        .found_at(Some(find_url), Duration::ZERO)
        .with_token(Some(&token));
    (events, asked)
}

/// The addresses that were asked for, each with its token.
type Asking = Arc<Mutex<Vec<(String, String)>>>;

async fn find(answer: (u16, &'static str, &'static str)) -> LookupResult {
    let (events, asked) = upstream(answer).await;
    let sought = Sought {
        usage_guid: "u/1",
        location: "",
    };
    let found = events.look_up(sought, NOW).await;
    let expected = ("/find?id=u%2F1&source=urn%3Aa%20b", "Bearer t0k3n");
    let asked = asked.lock().unwrap();
    assert_eq!(asked.len(), 1);
    assert_eq!((asked[0].0.as_str(), asked[0].1.as_str()), expected);
    found
}

const JSON: &str = "application/json";

#[tokio::test]
async fn only_the_same_id_and_source_is_there() {
    for (status, body, expected) in [
        (
            200,
            r#"{"items":[{"event":{"id":"u/1","source":"urn:a b"}}]}"#,
            LookupAnswer::Counts,
        ),
        (
            200,
            r#"[{"id":"u/1","source":"urn:a b"}]"#,
            LookupAnswer::Counts,
        ),
        (
            200,
            r#"{"items":[{"event":{"id":"u/11","source":"urn:a b"}}]}"#,
            LookupAnswer::NotFound,
        ),
        (
            200,
            r#"{"items":[{"event":{"id":"u/1","source":"other"}}]}"#,
            LookupAnswer::NotFound,
        ),
        (200, r#"{"data":[]}"#, LookupAnswer::NotFound),
        (404, r#"{"title":"not found"}"#, LookupAnswer::NotFound),
    ] {
        let found = find((status, JSON, body)).await;
        assert_eq!(
            (found.answer, found.status),
            (expected, Some(status)),
            "{body}"
        );
    }
}

#[tokio::test]
async fn anything_else_is_no_answer() {
    for answer in [
        (200, "text/html", "<!DOCTYPE html><title>Log in</title>"),
        (200, JSON, r#"{"error":"x"}"#),
        (200, JSON, r#"{"items":[{"event":{"id":"u/1","#),
        (204, JSON, ""),
        (302, "text/plain", ""),
        (400, JSON, "[]"),
        (401, JSON, "[]"),
        (404, "text/plain", "404 page not found"),
        (404, "text/html", "<html></html>"),
        (429, JSON, "[]"),
        (503, JSON, "[]"),
    ] {
        let found = find(answer).await;
        let is_clear = matches!(found.answer, LookupAnswer::Counts | LookupAnswer::NotFound);
        assert!(!is_clear, "{answer:?}: {found:?}");
        assert_eq!(found.status, Some(answer.0));
    }
}

#[tokio::test]
async fn a_find_that_hangs_or_breaks_off_is_no_answer() {
    let hangs = Router::new().fallback(std::future::pending::<StatusCode>);
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gone_at = options(gone.local_addr().unwrap());
    drop(gone);
    for options in [serve(hangs).await, gone_at] {
        let attributes = EventAttributes::new(SOURCE, "sampler.usage");
        let find_url = FindUrl::new(&format!("{}{{id}}", options.url)).unwrap();
        let events = CloudEvents::new(&options, attributes, Contract::Forever).unwrap();
        let events = events.found_at(Some(find_url), Duration::ZERO);
        let sought = Sought {
            usage_guid: "u",
            location: "",
        };
        let found = events.look_up(sought, NOW).await;
        assert!(
            matches!(found.answer, LookupAnswer::Failed { .. }),
            "{found:?}"
        );
        assert_eq!(found.status, None);
    }
}

#[tokio::test]
async fn each_2xx_but_a_page_accepts_a_usage() {
    for (status, media_type, body, is_accepted) in [
        (200, JSON, "{}", true),
        (201, JSON, "", true),
        (202, JSON, "", true),
        (204, JSON, "", true),
        (299, "text/plain", "ok", true),
        (200, "text/html", "Log in", false),
        (
            200,
            "text/plain",
            "<!DOCTYPE html><title>Log in</title>",
            false,
        ),
        (302, JSON, "", false),
        (409, JSON, "", false),
        (503, JSON, "", false),
    ] {
        let (events, asked) = upstream((status, media_type, body)).await;
        let posted = events.post(&usage(), NOW).await;
        let accepted = posted.answer == Answer::Accepted;
        assert_eq!(accepted, is_accepted, "{status} {body}: {posted:?}");
        assert_eq!(posted.details.location, None);
        let asked = asked.lock().unwrap();
        assert_eq!(asked[0].0, "/events?tenant=a%20b", "exactly as it is set");
    }
    let (events, _) = upstream((409, JSON, "")).await;
    let posted = events.accept_conflict(true).post(&usage(), NOW).await;
    assert_eq!(posted.answer, Answer::Accepted);
}

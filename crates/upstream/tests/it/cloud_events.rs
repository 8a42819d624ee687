//! A receiver of CloudEvents: what its answers to posts and lookups mean.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::http::{HeaderMap, StatusCode, Uri};
use sampler_upstream::{Answer, CloudEvents, LookupAnswer, Upstream};
use secrecy::SecretString;

use crate::{NOW, cloud_events, find, nowhere, serve, usage};

/// The addresses that were asked for, each with its token.
type Asking = Arc<Mutex<Vec<(String, String)>>>;

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
    options.url = options.url.join("events?tenant=a%20b").unwrap();
    let token = SecretString::from("t0k3n");
    (cloud_events(&options).with_token(Some(&token)), asked)
}

const JSON: &str = "application/json";

/// What bodies mean, the tests in `cloudevents::answer` show.
#[tokio::test]
async fn only_the_same_id_and_source_is_there_and_anything_else_is_no_answer() {
    let there = Some(LookupAnswer::Counts);
    let gone = || Some(LookupAnswer::NotFound);
    let same = r#"{"items":[{"event":{"id":"u/1","source":"urn:a b"}}]}"#;
    let (other_id, other_source) = (
        r#"[{"id":"u/11","source":"urn:a b"}]"#,
        r#"[{"id":"u/1","source":"other"}]"#,
    );
    for (answer, expected) in [
        ((200, JSON, same), there),
        ((200, JSON, other_id), gone()),
        ((200, JSON, other_source), gone()),
        ((404, JSON, r#"{"title":"not found"}"#), gone()),
        ((200, "text/html", "<!DOCTYPE html>Log in"), None),
        ((200, JSON, r#"{"items":[{"event":{"id":"u/1","#), None),
        ((204, JSON, ""), None),
        ((302, "text/plain", ""), None),
        ((400, JSON, "[]"), None),
        ((401, JSON, "[]"), None),
        ((404, "text/plain", "404 page not found"), None),
        ((404, "text/html", "<html></html>"), None),
        ((429, JSON, "[]"), None),
        ((503, JSON, "[]"), None),
    ] {
        let (events, asked) = upstream(answer).await;
        let found = find(&events).await;
        assert_eq!(found.status, Some(answer.0));
        let clear = [LookupAnswer::Counts, LookupAnswer::NotFound];
        let clear = clear.into_iter().find(|clear| *clear == found.answer);
        assert_eq!(clear, expected, "{answer:?}: {found:?}");
        let expected = ["/find?id=u%2F1&source=urn%3Aa%20b", "Bearer t0k3n"];
        let asked = asked.lock().unwrap().clone();
        assert_eq!(asked, [expected.map(str::to_owned).into()]);
    }
}

#[tokio::test]
async fn a_find_that_hangs_or_breaks_off_is_no_answer() {
    let hangs = Router::new().fallback(std::future::pending::<StatusCode>);
    for options in [serve(hangs).await, nowhere().await] {
        let found = find(&cloud_events(&options)).await;
        let is_failed = matches!(found.answer, LookupAnswer::Failed { .. });
        assert!(is_failed && found.status.is_none(), "{found:?}");
    }
}

#[tokio::test]
async fn what_accepts_a_usage_and_what_does_not() {
    let page = "<!DOCTYPE html><title>Log in</title>";
    for (status, media_type, body, is_accepted) in [
        (200, JSON, "{}", true),
        (201, JSON, "", true),
        (202, JSON, "", true),
        (204, JSON, "", true),
        (202, "text/plain", "ok", true),
        (203, JSON, "", false),
        (207, JSON, "", false),
        (299, "text/plain", "ok", false),
        (200, "text/html", "Log in", false),
        (200, "text/plain", page, false),
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
}

//! A platform that is not what it seems.

use std::sync::{Arc, Mutex};

use axum::http::header::LOCATION;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::IntoResponse;
use axum::{Json, Router};
use sampler_domain::text::is_invisible;
use sampler_testkit::cloud_foundry::{CLIENT, Fault};
use serde_json::json;
use tokio::net::TcpListener;

use super::foundation::{Foundation, run_with};
use super::write;

/// A Cloud Controller that is not what it seems, and another host that it leads to.
async fn hostile_platform(foundation: &Foundation) -> (String, Arc<Mutex<Vec<String>>>) {
    const HOSTILE: &str = "\u{1b}]0;x\u{7}\u{9b}31m\u{202e}";
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&asked);
    let other = Router::new().fallback(async move |headers: HeaderMap, uri: Uri| {
        seen.lock().unwrap().push(format!("{uri} {headers:?}"));
        Json(json!({ "pagination": { "next": null }, "resources": [] }))
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let elsewhere = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, other).await });
    let uaa = foundation.platform.uaa.base_url();
    let platform = Router::new().fallback(async move |uri: Uri| {
        if uri.path() == "/" {
            return Json(json!({ "links": { "uaa": { "href": uaa } } })).into_response();
        }
        if uri.path().ends_with("app_usage_events") {
            // Its page names another host as the next.
            let next = json!({ "href": format!("{elsewhere}{uri}") });
            let event = json!({ "guid": HOSTILE, "created_at": HOSTILE });
            let page = json!({ "pagination": { "next": next }, "resources": [event] });
            return Json(page).into_response();
        }
        let errors = json!({ "errors": [{ "detail": HOSTILE }] });
        let away = [(LOCATION, format!("{elsewhere}{uri}"))];
        (StatusCode::TEMPORARY_REDIRECT, away, Json(errors)).into_response()
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let api = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, platform).await });
    (api, asked)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cloud_controller_that_leads_elsewhere_gets_neither_token_nor_terminal() {
    let foundation = Foundation::new("feed_hostile").await;
    let (api, elsewhere) = hostile_platform(&foundation).await;
    for more in [
        &["--once"][..],
        &["--once", "--json"],
        &["--once", "--dry-run"],
    ] {
        let ended = foundation.run_at(&api, more).await;
        assert_eq!(ended.code, 3, "{}", ended.errors);
        for text in [&ended.output, &ended.errors] {
            let is_safe = text.chars().all(|it| it == '\n' || !is_invisible(it));
            assert!(is_safe, "{text:?}");
            assert!(!text.contains(CLIENT.1), "{text:?}");
        }
    }
    assert_eq!(*elsewhere.lock().unwrap(), Vec::<String>::new());
    // A secret is not sent in the clear either.
    let clear = foundation
        .run_at("http://cf.example.com", &["--once"])
        .await;
    assert_eq!(clear.code, 2, "{}", clear.errors);
    assert!(clear.errors.contains("https"), "{}", clear.errors);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_that_cannot_be_read_is_named_at_once() {
    let foundation = Foundation::unread("feed_start").await;
    let uaa = &foundation.platform.uaa;
    for (secret, fault, words) in [
        ("wrong", None, "UAA|token server answered 401"),
        (CLIENT.1, Some(Fault::Forbidden), "is answered 403"),
        (CLIENT.1, Some(Fault::Gateway(200)), "cannot be read"),
    ] {
        foundation.platform.faults(fault.as_slice());
        let ended = foundation.run_as(secret, &["--once"]).await;
        assert_eq!(ended.code, 3, "{}", ended.errors);
        let is_named = ended.errors.contains("Cloud Foundry at");
        assert!(is_named, "{}", ended.errors);
        assert!(
            words.split('|').any(|it| ended.errors.contains(it)),
            "{}",
            ended.errors
        );
    }
    uaa.remove_client(CLIENT.0);
    uaa.add_client(CLIENT.0, CLIENT.1, &["cloud_controller.read"]);
    let ended = foundation.run(&[]).await;
    assert_eq!(ended.code, 3, "{}", ended.errors);
    assert!(ended.errors.contains("global_auditor"), "{}", ended.errors);
    uaa.remove_client(CLIENT.0);
    uaa.add_client(CLIENT.0, CLIENT.1, &["cloud_controller.admin_read_only"]);
    assert_eq!(foundation.run(&["--once"]).await.code, 0);

    // The other API is not a receiver.
    let other = foundation.folder.path().join("other.json");
    let arguments = foundation.arguments_of(&foundation.platform.api(), &other, &["--once"]);
    let ended = run_with(&arguments, CLIENT.1).await;
    assert_eq!(ended.code, 3, "{}", ended.errors);
    assert!(ended.errors.contains("Sampler at"), "{}", ended.errors);

    let mapping = foundation.folder.path().join("mapping.toml");
    write(&mapping, "[tasks]\nplan_id = \"\"\n");
    let asked = foundation.platform.asked().len();
    let ended = foundation
        .run(&["--mapping", mapping.to_str().unwrap()])
        .await;
    assert_eq!(ended.code, 2, "{}", ended.errors);
    assert!(ended.errors.contains("line 2"), "{}", ended.errors);
    assert_eq!(
        foundation.platform.asked().len(),
        asked,
        "nothing is asked before"
    );
}

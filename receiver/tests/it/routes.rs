//! What is served, and how.

use axum::body::Body;
use axum::http::Request;

use crate::event::{start, stop};
use crate::world::{ALL, MAPPINGS, NOW, START, STOP, World, request};

#[tokio::test]
async fn another_method_is_answered_with_the_one_that_is_right() {
    let world = World::new();
    for path in ALL {
        for method in ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"] {
            let (mut parts, body) = request(path, start(NOW).to_string()).into_parts();
            parts.method = method.parse().unwrap();
            let answer = world.send(Request::from_parts(parts, body)).await;
            assert_eq!(answer.status, 405, "{method} {path}");
            assert_eq!(answer.header("allow"), Some("POST"), "{method} {path}");
            if method != "HEAD" {
                answer.names(405, "method-not-allowed", &[]);
            }
        }
    }
    world.assert_kept(&[]);
}

#[tokio::test]
async fn an_unknown_path_is_not_found() {
    let world = World::new();
    let odd = [
        "/",
        "/v1",
        "/v1/event",
        "/v1/events/start//",
        "/v1//events/start",
        "/v1/events/./start",
        "/v1/events/start/x",
    ];
    for path in
        odd.into_iter()
            .chain(["/V1/events/start", "/v1/Events/Start", "/v1/events/%73tart"])
    {
        let answer = world.send(request(path, start(NOW).to_string())).await;
        answer.names(404, "not-found", &[]);
        let get = Request::get(path).body(Body::empty()).unwrap();
        world.send(get).await.names(404, "not-found", &[]);
    }
    world.assert_kept(&[]);
}

/// The original takes it, too.
#[tokio::test]
async fn a_slash_behind_an_address_changes_nothing() {
    let world = World::new();
    let (event, end) = (start(NOW), stop(NOW));
    for (path, event) in [(START, &event), (STOP, &end)] {
        let answer = world
            .send(request(&format!("{path}/"), event.to_string()))
            .await;
        answer.is_created();
    }
    world.assert_kept(&[(&event, Some(&end))]);
    let get = Request::get(format!("{MAPPINGS}/")).body(Body::empty());
    let answer = world.send(get.unwrap()).await;
    answer.names(405, "method-not-allowed", &[]);
    assert_eq!(answer.header("allow"), Some("POST"));
}

//! What is served, and how.

use axum::body::Body;
use axum::http::Request;

use crate::event::start;
use crate::world::{ALL, NOW, START, World, request};

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
    world.holds(&[]);
}

#[tokio::test]
async fn an_unknown_path_is_not_found() {
    let world = World::new();
    let odd = [
        "/",
        "/v1",
        "/v1/events",
        "/v1/events/start/",
        "/v1/events/start/x",
    ];
    for path in odd
        .into_iter()
        .chain(["/V1/events/start", "/v1/events/%73tart"])
    {
        let answer = world.send(request(path, start(NOW).to_string())).await;
        answer.names(404, "not-found", &[]);
        let get = Request::get(path).body(Body::empty()).unwrap();
        world.send(get).await.names(404, "not-found", &[]);
    }
    world.holds(&[]);
}

#[tokio::test]
async fn a_query_is_not_looked_at() {
    let world = World::new();
    let path = format!("{START}?id=x&timestamp=y");
    let answer = world.send(request(&path, start(NOW).to_string())).await;
    answer.is_created();
    world.holds(&[(&start(NOW), None)]);
}

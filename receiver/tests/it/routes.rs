//! What is served, and how.

use axum::body::Body;
use axum::http::Request;

use crate::event::{start, stop};
use crate::world::{MAPPINGS, NOW, START, STOP, World, request};

#[tokio::test]
async fn an_unknown_path_is_not_found() {
    let world = World::new();
    for path in [
        "/",
        "/v1",
        "/v1//events/start",
        "/v1/events/start/x",
        "/V1/events/start",
        "/v1/events/%73tart",
        "/v1/spans/",
    ] {
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

//! Habits of HTTP APIs: moments as texts, and a description of the API.

use serde_json::json;

use crate::event::{start, with};
use crate::world::{NOW, World};

#[tokio::test]
async fn moments_of_bodies_may_be_texts_with_an_offset() {
    let world = World::new();
    let plain = with(&start(NOW), "id", "a");
    let event = with(&plain, "timestamp", "2018-08-03T02:00:00+02:00");
    world.start(&event).await.is_created();
    world.start(&plain).await.is_replayed();
    world.assert_kept(&[(&plain, None)]);
}

#[tokio::test]
async fn the_description_has_a_server_and_what_cloud_events_carry() {
    let world = World::new();
    let document = world.get("/openapi.json").await.json();
    assert_eq!(document["servers"][0]["url"], ".");
    let data = &document["components"]["schemas"]["CloudEvent"]["properties"]["data"];
    assert_eq!(data["$ref"], "#/components/schemas/CloudEventData");
    let data = &document["components"]["schemas"]["CloudEventData"]["allOf"][0];
    assert_eq!(data["$ref"], "#/components/schemas/Target");
    let data = &document["components"]["schemas"]["Target"];
    let required = data["required"].as_array().unwrap();
    assert!(required.contains(&json!("resource_id")));
}

//! The list of causes.

use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn the_causes_of_one_resource_are_listed() {
    let world = World::new();
    world.suspended("mine", "redis").await;
    world.suspended("0", "postgres").await;
    for (query, resources) in [
        ("", vec!["postgres", "redis"]),
        ("?resource_id=redis", vec!["redis"]),
        ("?resource_id=unknown", vec![]),
    ] {
        let items = world.items(&format!("/v1/suspended{query}")).await;
        let mut shown: Vec<_> = items
            .iter()
            .map(|it| it["resource_id"].as_str().unwrap())
            .collect();
        shown.sort_unstable();
        assert_eq!(shown, resources, "{query}");
    }
}

#[tokio::test]
async fn one_cause_is_shown_as_in_the_list() {
    let world = World::new();
    let (_, cause) = world.suspended("1", "redis").await;
    world.suspended("2", "redis").await;
    world.suspended("3", "postgres").await;
    let all = world.read("/v1/suspended").await;
    let answer = world.get(&format!("/v1/suspended/{cause}")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let shown = answer.json();
    assert_eq!(shown, all["items"][0]);
    assert_eq!(
        (&shown["cause"], &shown["spans"]),
        (&json!(cause.to_string()), &json!(2))
    );
    let unknown = "00000000-0000-5000-8000-000000000000";
    for id in [unknown, "x", "%FF"] {
        let answer = world.get(&format!("/v1/suspended/{id}")).await;
        answer.problem(404, "no-such-cause");
    }
}

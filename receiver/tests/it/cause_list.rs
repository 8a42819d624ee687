//! The list of causes.

use sampler_store::{Causes, Reading};
use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn a_resource_lists_a_hundred_causes_beside_others_and_a_thousand_by_itself() {
    let world = World::new();
    world.suspended("mine", "redis").await;
    let (_, oldest) = world.suspended("0", "postgres").await;
    let memory = &world.store.memory;
    let first = memory.cause(oldest).await.unwrap().unwrap().kept;
    for number in 1..1_005 {
        let mut cause = first.cause.clone();
        cause.error = format!("invented {number}");
        let since = first.since.plus(number);
        memory.register(&cause, since, since).await.unwrap();
    }
    // Those without spans are not shown.
    let all = world.items("/v1/suspended").await;
    let mut shown: Vec<_> = all
        .iter()
        .map(|it| (it["resource_id"].as_str().unwrap(), it["more"].as_u64()))
        .collect();
    shown.sort_unstable();
    let expected = [("postgres", None), ("postgres", Some(905)), ("redis", None)];
    assert_eq!(shown, expected);
    let own = world.read("/v1/suspended?resource_id=postgres").await;
    assert_eq!(own["items"][1]["more"], 5, "{own}");
    let mut resources = own["items"].as_array().unwrap().iter();
    assert!(resources.all(|it| it["resource_id"] == "postgres"), "{own}");
    let none = world.items("/v1/suspended?resource_id=unknown").await;
    assert!(none.is_empty(), "{none:?}");
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

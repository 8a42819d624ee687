//! Causes are listed page by page.

use serde_json::{Value, json};

use crate::acts::json_of;
use crate::world::World;

impl World {
    /// The resources of the causes on a page, and the address of the next one.
    async fn causes(&self, path: &str) -> (Vec<String>, Option<String>) {
        let answer = self.shown(path).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let next = answer.header("link").map(|link| {
            let (address, relation) = link.split_once(">; ").unwrap();
            assert_eq!(relation, "rel=\"next\"");
            address.trim_start_matches('<').to_owned()
        });
        let page = json_of(&answer);
        let items = page["items"].as_array().unwrap().iter();
        let resource = |item: &Value| item["resource_id"].as_str().unwrap().to_owned();
        (items.map(resource).collect(), next)
    }
}

#[tokio::test]
async fn the_largest_cause_comes_first_page_by_page() {
    let world = World::new();
    for (instance, resource) in [
        ("1", "redis"),
        ("2", "postgres"),
        ("3", "postgres"),
        ("4", "postgres"),
        ("5", "mongo"),
        ("6", "mongo"),
    ] {
        world.suspended(instance, resource).await;
    }
    let all = world.causes("/v1/suspended").await;
    let names = ["postgres", "mongo", "redis"].map(str::to_owned);
    assert_eq!(all, (names.to_vec(), None));
    let (first, next) = world.causes("/v1/suspended?limit=1").await;
    assert_eq!(first, ["postgres"]);
    let next = next.unwrap();
    assert!(next.starts_with("/v1/suspended?limit=1&cursor="), "{next}");
    // Meanwhile the smallest becomes the largest: still, each is shown once.
    for instance in ["7", "8", "9"] {
        world.suspended(instance, "redis").await;
    }
    let (second, next) = world.causes(&next).await;
    assert_eq!(second, ["redis"]);
    let (third, next) = world.causes(&next.unwrap()).await;
    assert_eq!((third, next), (vec!["mongo".to_owned()], None));
}

#[tokio::test]
async fn wrong_parameters_of_a_page_of_causes_are_named() {
    let world = World::new();
    world.suspended("1", "redis").await;
    for (query, wrong) in [
        (
            "limit=0&cursor=z&state=open",
            &["limit", "cursor", "state"][..],
        ),
        ("limit=1001", &["limit"]),
        // A cursor of another list.
        ("cursor=eyJ2ZXJzaW9uIjoxLCJhZnRlciI6MX0", &["cursor"]),
    ] {
        let answer = world.shown(&format!("/v1/suspended?{query}")).await;
        let problem = answer.problem(400, "invalid-query");
        let errors = problem["errors"].as_array().unwrap().iter();
        let mut named: Vec<&str> = errors
            .map(|error| error["parameter"].as_str().unwrap())
            .collect();
        let mut wrong = wrong.to_vec();
        named.sort_unstable();
        wrong.sort_unstable();
        assert_eq!(named, wrong, "{query}");
    }
    // A cursor that is made up is another beginning, and nothing else.
    let first = "eyJ2ZXJzaW9uIjoxLCJhZnRlciI6eyJiZWdpbiI6bnVsbCwiZW5kIjpudWxsLCJwcm9ncmVzcyI6eyJTaG93biI6W119fX0";
    let (resources, next) = world.causes(&format!("/v1/suspended?cursor={first}")).await;
    assert_eq!((resources.len(), next), (1, None));
    let last = "eyJ2ZXJzaW9uIjoxLCJhZnRlciI6eyJiZWdpbiI6eyJzaW5jZSI6MjUzNDAyMzAwODAwMD\
                AwLCJpZCI6ImZmZmZmZmZmLWZmZmYtZmZmZi1mZmZmLWZmZmZmZmZmZmZmZiJ9LCJlbmQi\
                Om51bGwsInByb2dyZXNzIjp7IlNob3duIjpbXX19fQ";
    let none = world.shown(&format!("/v1/suspended?cursor={last}")).await;
    assert_eq!(json_of(&none), json!({ "items": [] }));
}

#[tokio::test]
async fn one_cause_is_shown_as_in_the_list() {
    let world = World::new();
    let (_, cause) = world.suspended("1", "redis").await;
    world.suspended("2", "redis").await;
    world.suspended("3", "postgres").await;
    let all = json_of(&world.shown("/v1/suspended").await);
    let answer = world.shown(&format!("/v1/suspended/{cause}")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let shown = json_of(&answer);
    assert_eq!(shown, all["items"][0]);
    assert_eq!(
        (&shown["cause"], &shown["spans"]),
        (&json!(cause.to_string()), &json!(2))
    );
    let unknown = "00000000-0000-5000-8000-000000000000";
    for id in [unknown, "x", "%FF"] {
        let answer = world.shown(&format!("/v1/suspended/{id}")).await;
        answer.problem(404, "no-such-cause");
    }
    // A parameter that is none.
    let wide = world.shown(&format!("/v1/suspended/{cause}?limit=1")).await;
    wide.problem(400, "invalid-query");
}

#[tokio::test]
async fn the_causes_of_one_resource_are_listed_by_themselves() {
    let world = World::new();
    for (instance, resource) in [("1", "postgres"), ("2", "mysql")] {
        world.suspended(instance, resource).await;
    }
    for (resource, expected) in [
        ("mysql", &["mysql"][..]),
        ("postgres", &["postgres"]),
        ("redis", &[]),
    ] {
        let (listed, next) = world
            .causes(&format!("/v1/suspended?resource_id={resource}"))
            .await;
        assert_eq!(
            (&listed[..], next),
            (
                &expected.iter().map(ToString::to_string).collect::<Vec<_>>()[..],
                None
            )
        );
    }
}

//! Snapshots that are refused.

use serde_json::{Value, json};

use super::{SNAPSHOTS, forms, instance, posted, snapshot};
use crate::bodies::headed;
use crate::event::{with, without};
use crate::store::Behaviour;
use crate::world::{HOUR, NOW, PAST, World, request, request_as};

#[tokio::test]
async fn wrong_fields_of_a_snapshot_are_named() {
    let world = World::new();
    let named = ["i", "j", "x"].map(|name| instance(name, "large"));
    let [first, second, last] = &named;
    let changed = |name: &str, value: Value| with(second, name, value);
    let unnamed = without(second, "plan_id");
    let unmeasured = changed("measured_usage", json!([{ "measure": "a" }]));
    let later = changed("since", json!(NOW - HOUR + 1));
    let head = |head: Value| with(&head, "instances", json!([]));
    let three = |second: Value| snapshot(NOW - HOUR, &[first.clone(), second, last.clone()]);
    let of_postgres = |at: i64| head(json!({ "resource_id": "postgres", "at": at }));
    for (wrong, fields) in [
        (three(unnamed.clone()), &["#/instances/1/plan_id"][..]),
        (
            three(changed("space_id", json!(""))),
            &["#/instances/1/space_id"],
        ),
        (three(later), &["#/instances/1/since"]),
        (
            three(changed("since", json!("today"))),
            &["#/instances/1/since"],
        ),
        (
            three(changed("resource_id", json!("redis"))),
            &["#/instances/1/resource_id"],
        ),
        (three(changed("id", json!("a"))), &["#/instances/1/id"]),
        (
            three(changed("timestamp", json!(1))),
            &["#/instances/1/timestamp"],
        ),
        (three(changed("nope", json!(1))), &["#/instances/1/nope"]),
        (
            three(unmeasured),
            &["#/instances/1/measured_usage/0/quantity"],
        ),
        (three(json!([])), &["#/instances/1"]),
        (three(first.clone()), &["#/instances/1"]),
        // Each is named by its place in the body, also behind one that is wrong.
        (
            snapshot(NOW - HOUR, &[unnamed, first.clone(), first.clone()]),
            &["#/instances/0/plan_id", "#/instances/2"],
        ),
        (head(json!({})), &["#/resource_id", "#/at"]),
        (
            head(json!({ "resource_id": 7, "at": "now", "x": 1 })),
            &["#/resource_id", "#/at", "#/x"],
        ),
        (
            head(json!({ "resource_id": "", "at": NOW + 1 })),
            &["#/resource_id", "#/at"],
        ),
        (of_postgres(NOW - PAST - 1), &["#/at"]),
    ] {
        for form in forms(&wrong) {
            let answer = world.send(form).await;
            answer.names(400, "invalid-snapshot", fields);
        }
    }
    let none = without(&of_postgres(NOW), "instances");
    let answer = world.compare_once(&none).await;
    answer.names(400, "invalid-snapshot", &["#/instances"]);
    let many = vec![json!(7); 1_000];
    let answer = world.compare_once(&snapshot(NOW, &many)).await;
    let problem = answer.problem(400, "invalid-snapshot");
    assert_eq!(problem["errors"].as_array().unwrap().len(), 100);
}

#[tokio::test]
async fn what_is_no_snapshot_is_refused() {
    let world = World::with(|options| options.settings.limits.snapshot_payload = 10_000);
    // Wherever the instances are, they and the head are checked alike, and nothing is there twice.
    let head = format!("\"resource_id\":\"postgres\",\"at\":{NOW}");
    for body in [
        String::new(),
        "[]x".to_owned(),
        "{\"instances\":[{]}".to_owned(),
        "{\"instances\":[{},]}".to_owned(),
        "{\"at\":1,\"at\":2,\"instances\":[]}".to_owned(),
        format!("{{{head},\"instances\":[],\"instances\":[]}}"),
        format!("{{{head},\"instances\":[],\"inst\\u0061nces\":[]}}"),
        format!("{{{head},\"instances\":[,]}}"),
        format!("{{{head},\"instances\":[{{}} {{}}]}}"),
        format!("{{{head},\"instances\":[{{}}}}]}}"),
        format!("{{{head},\"instances\":[]}} x"),
        format!("{{{head},\"instances\":[{{}}"),
        format!("{{{head},\"instances\" []}}"),
        format!("{{{head},instances:[]}}"),
    ] {
        let answer = world.send(request(SNAPSHOTS, body.clone())).await;
        answer.names(400, "malformed-json", &[]);
    }
    let head = json!({ "resource_id": "postgres", "at": NOW });
    for body in [
        "\n\n".to_owned(),
        format!("{head}\n{{"),
        format!("{head}\nnope\n"),
    ] {
        let answer = world.send(posted(body.into())).await;
        answer.names(400, "malformed-json", &[]);
    }
    let large = format!("{head}\n{}", "\n".repeat(10_000));
    let answer = world.send(posted(large.into())).await;
    answer.names(413, "payload-too-large", &[]);
    let text = world.send(request_as("text/plain", SNAPSHOTS, "{}")).await;
    text.names(415, "unsupported-media-type", &[]);
    for coding in ["br", "deflate", "gzip, gzip"] {
        let plain = request(SNAPSHOTS, "{}");
        let packed = headed(plain, "content-encoding", coding.as_bytes());
        let answer = world.send(packed).await;
        answer.names(415, "unsupported-media-type", &[]);
        assert_eq!(answer.header("accept-encoding"), Some("gzip"));
    }
    let asked = request(&format!("{SNAPSHOTS}?dry_run=true"), "{}");
    world.send(asked).await.problem(400, "invalid-query");
    let get = world.get(SNAPSHOTS).await;
    get.names(405, "method-not-allowed", &[]);
    for (behaviour, status, slug) in [
        (Behaviour::Unavailable, 503, "database-unavailable"),
        (Behaviour::Refused, 500, "internal"),
    ] {
        world.store.set_behaviour(behaviour);
        let answer = world.compare_once(&snapshot(NOW, &[])).await;
        answer.names(status, slug, &[]);
    }
}

/// An object is read whole, so it may not be as long as lines may.
#[tokio::test]
async fn json_has_a_limit_of_its_own_and_is_told_what_to_send_instead() {
    let world = World::with(|options| options.settings.limits.snapshot_payload = 64 << 20);
    let one = instance("i", "large").to_string();
    let body = |length: usize| {
        let (begin, end) = (format!("{{\"instances\":[{one}"), ']');
        let head = format!("\"resource_id\":\"postgres\",\"at\":{NOW}}}");
        let space = " ".repeat(length - begin.len() - head.len() - 2);
        format!("{begin}{space}{end},{head}")
    };
    let largest = world.send(request(SNAPSHOTS, body(16 << 20))).await;
    assert_eq!(largest.status, 200, "{largest:?}");
    let beyond = world.send(request(SNAPSHOTS, body((16 << 20) + 1))).await;
    beyond.tells(413, "payload-too-large", &["application/x-ndjson"]);
    // Neither the head nor an instance may be larger than an event.
    let long = "x".repeat(600_000);
    let mut head = snapshot(NOW, &[]);
    head["x"] = json!(long);
    for body in [head, snapshot(NOW, &[json!({ "x": long })])] {
        let answer = world.compare_once(&body).await;
        answer.names(413, "payload-too-large", &[]);
    }
}

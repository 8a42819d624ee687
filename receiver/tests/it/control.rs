//! How operators steer, and what becomes of starts while few are admitted.

use axum::body::Body;
use axum::http::Request;
use sampler_store::Operating;
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::event::{by, on, put, start, stop, with, without};
use crate::store::Behaviour;
use crate::world::{HOUR, MINUTE, NOW, World};

/// What is set at first.
fn default() -> Value {
    json!({
        "starts": {"rate": 100, "resources": {}},
        "sampling": {"paused": false},
        "controller": {"enabled": false, "target_seconds": 600, "kp": 8, "ki": 0, "kd": 0},
    })
}

/// The same, with another value somewhere, and a reason.
fn body(pointer: &str, value: Value) -> Value {
    let mut body = default();
    if !pointer.is_empty() {
        *body.pointer_mut(pointer).unwrap() = value;
    }
    body["reason"] = json!("The backlog is too long.");
    body
}

/// A start of an instance, with an id.
fn start_of(instance: &str, timestamp: i64) -> Value {
    by(
        &format!("start {instance}"),
        &on(instance, &start(timestamp)),
    )
}

fn stop_of(instance: &str, timestamp: i64) -> Value {
    on(instance, &stop(timestamp))
}

impl World {
    async fn control(&self) -> Answer {
        self.get("/v1/control").await
    }

    /// A new start has to wait.
    async fn throttles(&self, event: &Value) {
        let answer = self.start(event).await;
        answer.problem(503, "throttled");
    }

    async fn put(&self, tag: Option<&str>, body: &Value) -> Answer {
        self.change("PUT", "/v1/control", tag, body).await
    }

    /// Sets the rate of all starts.
    pub(crate) async fn let_in(&self, rate: f64) {
        let change = body("/starts/rate", json!(rate));
        shown(&self.put(Some("*"), &change).await);
    }
}

/// What is shown, and its version.
#[track_caller]
fn shown(answer: &Answer) -> (Value, Option<&str>) {
    assert_eq!(answer.status, 200, "{answer:?}");
    (answer.json(), answer.header("etag"))
}

#[tokio::test]
async fn what_is_set_is_shown_with_its_version_and_changed_by_whom_has_seen_it() {
    let world = World::new();
    let answer = world.control().await;
    assert_eq!(shown(&answer), (default(), Some("\"0\"")));
    let change = body("/starts/resources", json!({"postgres": 12.5}));
    let unseen = world.put(None, &change).await;
    unseen.problem(428, "precondition-required");
    let stale = world.put(Some("\"1\""), &change).await;
    stale.problem(412, "precondition-failed");
    let set = world.put(Some("\"0\""), &change).await;
    let mut expected = default();
    expected["starts"]["resources"]["postgres"] = json!(12.5);
    for answer in [&set, &world.control().await] {
        assert_eq!(shown(answer), (expected.clone(), Some("\"1\"")));
    }
    let stale = world.put(Some("\"0\""), &body("", json!(null))).await;
    stale.problem(412, "precondition-failed");
    let records = world.items("/v1/audit").await;
    assert_eq!(records.len(), 1);
    for (name, value) in [
        ("act", json!("control.set")),
        ("subject", json!("/v1/control")),
        ("reason", json!("The backlog is too long.")),
        ("before", default()),
        ("outcome", json!("done")),
    ] {
        assert_eq!(records[0][name], value, "{name}");
    }
    assert_eq!(records[0]["after"]["starts"], expected["starts"]);
}

#[tokio::test]
async fn every_wrong_value_is_named() {
    let world = World::new();
    let wrong = json!({
        "starts": {"rate": 101, "resources": {"a": -1, "": 5, "c": 100}},
        "sampling": {"paused": true},
        "controller": {"enabled": true, "target_seconds": 0, "kp": -1, "ki": 1e9, "kd": -1},
        "reason": " ",
    });
    let all = [
        "#/starts/rate",
        "#/starts/resources/",
        "#/starts/resources/a",
        "#/controller/target_seconds",
        "#/controller/kp",
        "#/controller/ki",
        "#/controller/kd",
        "#/reason",
    ];
    // Also where the tag is not that of now: the console asks so before an operator confirms.
    for tag in ["*", "\"none\""] {
        let answer = world.put(Some(tag), &wrong).await;
        answer.names(400, "invalid-body", &all);
    }
    let rate = |number| (format!("r{number}"), json!(1));
    let many: Value = (0..1_001).map(rate).collect();
    for (pointer, value) in [
        ("/controller/target_seconds", json!(0)),
        ("/controller/kp", json!(-1)),
        ("/controller/kp", json!(0)),
        ("/controller/ki", json!(1e9)),
        ("/starts/rate", json!(100.0001)),
        ("/starts/resources", many),
    ] {
        let answer = world.put(Some("*"), &body(pointer, value)).await;
        answer.names(400, "invalid-body", &[&format!("#{pointer}")]);
    }
    assert_eq!(shown(&world.control().await).0, default());
}

/// A member that was forgotten would be set back to its default.
#[rustfmt::skip]
fn misfits() -> Vec<(&'static str, Option<Value>, &'static str)> {
    let (missing, unknown) = ("The field is missing.", "There is no field of this name.");
    let (object, number) = ("The value must be an object.", "The value must be a number.");
    vec![
        ("/starts", Some(json!([100, {}])), object),
        ("/starts/rate", Some(json!("5")), number),
        ("/starts/rate", Some(json!(null)), number),
        ("/starts/rate", None, missing),
        ("/starts/resources", Some(json!([])), object),
        ("/starts/resources/a", Some(json!("5")), number),
        ("/sampling", None, missing),
        ("/sampling/paused", Some(json!(1)), "The value must be true or false."),
        ("/controller", Some(json!([])), object),
        ("/controller/kd", None, missing),
        ("/reason", Some(json!(["why"])), "The value must be a string."),
        ("/more", Some(json!(1)), unknown),
        ("/starts/more", Some(json!(1)), unknown),
        ("/controller/x", Some(json!(1)), unknown),
    ]
}

#[tokio::test]
async fn what_is_missing_unknown_or_of_another_type_is_named() {
    let world = World::new();
    let default = body("", json!(null));
    for (pointer, value, words) in misfits() {
        let answer = world.put(Some("*"), &put(&default, pointer, value)).await;
        answer.names(400, "invalid-body", &[&format!("#{pointer}")]);
        assert_eq!(answer.json()["errors"][0]["detail"], words, "{pointer}");
    }
    let twice = default.to_string().replace("{}", r#"{"a":1,"a":2}"#);
    let twice = Request::put("/v1/control")
        .header("content-type", "application/json")
        .header("if-match", "*")
        .body(Body::from(twice));
    let answer = world.send(twice.unwrap()).await;
    answer.names(400, "malformed-json", &["#/starts/resources"]);
    assert_eq!(shown(&world.control().await).0, self::default());
}

#[tokio::test]
async fn nothing_is_set_where_the_trail_cannot_be_written() {
    let world = World::new();
    world.store.set_behaviour(Behaviour::Unavailable);
    let change = body("/starts/rate", json!(1));
    let answer = world.put(Some("\"0\""), &change).await;
    answer.problem(503, "database-unavailable");
    world.store.set_behaviour(Behaviour::Served);
    assert_eq!(world.store.memory.control().await.unwrap().version, 0);
}

#[tokio::test]
async fn at_rate_0_new_starts_wait_and_stops_and_repeats_pass() {
    let world = World::new();
    let kept = start_of("kept", NOW - HOUR);
    world.start(&kept).await.is_created();
    world.let_in(0.0).await;
    world.throttles(&start_of("new", NOW)).await;
    world.start(&kept).await.is_replayed();
    // While the store is away nobody is told that a start is new.
    world.store.set_behaviour(Behaviour::Unavailable);
    let answer = world.start(&kept).await;
    answer.problem(503, "database-unavailable");
    world.store.set_behaviour(Behaviour::Served);
    let other = with(&kept, "timestamp", NOW - HOUR - 1);
    let taken = world.start(&other).await;
    taken.names(409, "id-taken", &["#/timestamp"]);
    world.throttles(&without(&start_of("new", NOW), "id")).await;
    let stopped = stop_of("kept", NOW);
    world.stop(&stopped).await.is_created();
    world.assert_kept(&[(&kept, Some(&stopped))]);
    world.let_in(100.0).await;
    world.start(&start_of("new", NOW)).await.is_created();
}

#[tokio::test]
async fn a_resource_has_a_rate_of_its_own() {
    let world = World::new();
    let resource = start(NOW)["resource_id"].as_str().unwrap().to_owned();
    let mut change = body("", json!(null));
    change["starts"]["resources"][&resource] = json!(0);
    shown(&world.put(Some("*"), &change).await);
    world.throttles(&start_of("a", NOW)).await;
    let other = with(&start_of("a", NOW), "resource_id", "another");
    world.start(&other).await.is_created();
}

/// Each start comes again each minute until it is admitted, with its own timestamp.
#[tokio::test]
async fn whoever_comes_again_gets_in_in_time() {
    let world = World::new();
    world.let_in(30.0).await;
    let instances = (0..60).map(|number| start_of(&format!("i{number}"), NOW));
    let (mut waiting, mut refused): (Vec<Value>, _) = (instances.collect(), 0);
    for minute in 0..5 {
        world.clock.set(NOW + minute * MINUTE + 20_000);
        for event in std::mem::take(&mut waiting) {
            let answer = world.start(&event).await;
            if answer.status != 201 {
                answer.problem(503, "throttled");
                waiting.push(event);
            }
        }
        refused += waiting.len();
    }
    assert!(refused > 0 && waiting.is_empty(), "{waiting:?}");
    assert_eq!(world.spans().len(), 60);
}

#[tokio::test]
async fn other_instances_follow() {
    let world = World::new();
    world.receiver.steering.poll().await;
    let mut control = world.store.memory.control().await.unwrap();
    control.control.starts.rate = sampler_domain::Percent::NONE;
    let set = world.store.memory.set_control(&control.control, 0).await;
    assert!(set.unwrap());
    world.start(&start_of("a", NOW)).await.is_created();
    world.receiver.steering.poll().await;
    world.throttles(&start_of("b", NOW)).await;
}

//! What really runs, compared with the spans.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::Request;
use sampler_store_testing::support::{Changing, done};
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::bodies::gzip;
use crate::event::{on, start, stop, with, without};
use crate::store::Behaviour;
use crate::world::{DAY, HOUR, NOW, World, request};

mod limits;
mod quantities;
mod refused;
mod scopes;
mod starts;
mod time;

const SNAPSHOTS: &str = "/v1/snapshots";

/// The instances of a snapshot as they are sent in each form, and compressed.
fn forms(snapshot: &Value) -> Vec<Request<Body>> {
    let mut head = snapshot.clone();
    let instances = head.as_object_mut().unwrap().remove("instances").unwrap();
    let lines = [&head].into_iter().chain(instances.as_array().unwrap());
    let lines: String = lines.map(|line| format!("{line}\n")).collect();
    let post = |kind: &str, coding: &str, body: Vec<u8>| {
        let post = Request::post(SNAPSHOTS).header("content-type", kind);
        post.header("content-encoding", coding)
            .body(body.into())
            .unwrap()
    };
    let text = snapshot.to_string();
    let ndjson = "application/x-ndjson";
    vec![
        post("application/json", "identity", text.clone().into()),
        post(
            "application/json; charset=utf-8",
            "gzip",
            gzip(text.as_bytes()),
        ),
        post(ndjson, "identity", lines.clone().into()),
        post(ndjson, "gzip", gzip(lines.as_bytes())),
    ]
}

impl World {
    /// What a snapshot is answered in each form: the same.
    async fn compare(&self, snapshot: &Value) -> Value {
        let mut answers = Vec::new();
        for form in forms(snapshot) {
            let answer = self.send(form).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            assert_eq!(answer.header("content-type"), Some("application/json"));
            answers.push(answer.json());
        }
        let first = answers.remove(0);
        assert!(
            answers.iter().all(|answer| *answer == first),
            "{answers:#?}"
        );
        first
    }

    async fn compare_once(&self, snapshot: &Value) -> Answer {
        self.send(request(SNAPSHOTS, snapshot.to_string())).await
    }

    async fn starts_one(&self, instance: &str, plan: &str, timestamp: i64) -> Value {
        let event = on(instance, &start(timestamp));
        let event = with(&event, "plan_id", plan);
        self.start(&event).await.is_created();
        event
    }

    async fn stops_one(&self, instance: &str, plan: &str, timestamp: i64) {
        let event = on(instance, &stop(timestamp));
        self.stop(&with(&event, "plan_id", plan)).await.is_created();
    }

    /// Posts a proposal over the address of its kind.
    async fn apply(&self, proposal: &Value) -> u16 {
        let mut event = proposal.clone();
        let kind = event.as_object_mut().unwrap().remove("type").unwrap();
        let path = format!("/v1/events/{}", kind.as_str().unwrap());
        self.post(&path, &event).await.status
    }

    /// Posts proposals together, as they are.
    async fn apply_all(&self, proposals: &[Value]) -> Vec<u64> {
        let answer = self.post("/v1/events", &json!(proposals)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let answer = answer.json();
        let results = answer["results"].as_array().unwrap().iter();
        results
            .map(|result| result["status"].as_u64().unwrap())
            .collect()
    }
}

fn instance(name: &str, plan: &str) -> Value {
    let event = with(&on(name, &stop(0)), "plan_id", plan);
    without(&without(&event, "timestamp"), "resource_id")
}

/// `i-0` and so on.
fn instances(count: usize, plan: &str) -> Vec<Value> {
    let name = |number| format!("i-{number}");
    (0..count).map(|it| instance(&name(it), plan)).collect()
}

fn snapshot(at: i64, instances: &[Value]) -> Value {
    json!({ "resource_id": "postgres", "at": at, "instances": instances })
}

/// The instances in the three lists, and the kinds of the proposals.
fn lists(answer: &Value) -> [Vec<String>; 3] {
    ["open_without_instance", "instance_without_span", "differs"].map(|list| {
        let items = answer[list].as_array().unwrap().iter();
        let name = |item: &Value| {
            item["proposal"]["resource_instance_id"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        items.map(name).collect()
    })
}

/// Nothing is in any of the lists.
#[track_caller]
fn assert_agrees(answer: &Value) {
    assert_eq!(lists(answer), [const { Vec::<String>::new() }; 3]);
}

fn proposals(answer: &Value) -> Vec<Value> {
    let lists = ["open_without_instance", "instance_without_span", "differs"].into_iter();
    let items = lists.flat_map(|list| answer[list].as_array().unwrap());
    items.map(|item| item["proposal"].clone()).collect()
}

#[tokio::test]
async fn a_snapshot_is_compared_with_what_ran_then() {
    let world = World::new();
    let at = NOW - HOUR;
    world.starts_one("agrees", "large", at - 5).await;
    world.starts_one("gone", "large", at - 4).await;
    world.starts_one("plan", "small", at - 3).await;
    world.starts_one("measures", "large", at - 2).await;
    let mut measures = instance("measures", "large");
    measures["measured_usage"] = json!([{ "measure": "memory", "quantity": 2 }]);
    let mut new = instance("new", "large");
    new["since"] = json!(at - DAY);
    new["measured_usage"] = json!([{ "measure": "memory", "quantity": 1 }]);
    let mut agrees = instance("agrees", "large");
    agrees["resource_id"] = json!("postgres");
    agrees["measured_usage"] = json!([
        { "measure": "memory", "quantity": 0.5 }, { "measure": "instances", "quantity": 1.0 },
    ]);
    let all = [
        agrees,
        instance("plan", "large"),
        measures,
        new,
        instance("bare", "large"),
    ];
    let answer = world.compare(&snapshot(at, &all)).await;
    assert_eq!((&answer["at"], &answer["checked"]), (&json!(at), &json!(5)));
    let expected = [vec!["gone"], vec!["new", "bare"], vec!["plan", "measures"]];
    assert_eq!(
        lists(&answer),
        expected.map(|list| list.into_iter().map(str::to_owned).collect::<Vec<_>>())
    );
    let names: BTreeSet<&String> = answer.as_object().unwrap().keys().collect();
    assert_eq!(names.len(), 5, "{names:?}");

    let target = |name: &str, plan: &str| with(&instance(name, plan), "resource_id", "postgres");
    let id = |item: &Value| item["proposal"]["id"].clone();
    let proposed = |item: &Value, kind: &str, timestamp: i64, fields: &[(&str, Value)]| {
        let mut event = item["target"].clone();
        event["type"] = json!(kind);
        event["id"] = id(item);
        event["timestamp"] = json!(timestamp);
        for (name, value) in fields {
            event[name] = value.clone();
        }
        event
    };
    let gone = &answer["open_without_instance"][0];
    let span = world
        .spans()
        .into_iter()
        .find(|span| span.start.as_millis() == at - 4)
        .unwrap();
    let expected = json!({
        "span": span.id.to_string(), "target": target("gone", "large"), "start": at - 4,
        "proposal": proposed(gone, "stop", at, &[]),
    });
    assert_eq!(*gone, expected);
    let [new, bare] = [0, 1].map(|place| &answer["instance_without_span"][place]);
    let memory = |quantity: i64| json!([{ "measure": "memory", "quantity": quantity }]);
    assert_eq!(
        *new,
        json!({
            "target": target("new", "large"),
            "proposal": proposed(new, "start", at - DAY, &[("measured_usage", memory(1))]),
        })
    );
    assert_eq!(
        bare["proposal"],
        proposed(bare, "start", at, &[("measured_usage", json!([]))])
    );
    let [plan, measures] = [0, 1].map(|place| &answer["differs"][place]);
    assert_eq!(
        (&plan["expected"], &plan["kept"]),
        (
            &json!({ "plan_id": "large" }),
            &json!({ "plan_id": "small" })
        )
    );
    let kept = start(0)["measured_usage"].clone();
    let mut update = target("plan", "large");
    for (name, value) in [
        ("type", json!("update")),
        ("id", id(plan)),
        ("timestamp", json!(at)),
        ("measured_usage", kept.clone()),
        ("previous", json!({ "plan_id": "small" })),
    ] {
        update[name] = value;
    }
    assert_eq!(plan["proposal"], update);
    assert_eq!(measures["expected"], json!({ "measured_usage": memory(2) }));
    assert_eq!(measures["kept"], json!({ "measured_usage": kept }));
    assert_eq!(measures["proposal"]["previous"], Value::Null);
    assert_eq!(measures["proposal"]["measured_usage"], memory(2));
    let ids: BTreeSet<String> = proposals(&answer)
        .iter()
        .map(|it| it["id"].to_string())
        .collect();
    assert!(
        ids.len() == 5 && ids.iter().all(|id| id.starts_with("\"snapshot-")),
        "{ids:?}"
    );
}

#[tokio::test]
async fn applied_proposals_leave_nothing_to_propose_and_may_be_applied_twice() {
    let world = World::new();
    let at = NOW - HOUR;
    world.starts_one("gone", "large", at - 4).await;
    world.starts_one("plan", "small", at - 3).await;
    let mut new = instance("new", "large");
    new["since"] = json!(at - DAY);
    let truth = snapshot(at, &[instance("plan", "large"), new]);
    let answer = world.compare(&truth).await;
    let proposals = proposals(&answer);
    assert_eq!(proposals.len(), 3);
    // Asking changes nothing, and asking again proposes the same.
    assert_eq!(world.compare(&truth).await, answer);
    for _ in 0..2 {
        assert_eq!(world.apply_all(&proposals).await, [201, 201, 201]);
        for proposal in &proposals {
            assert_eq!(world.apply(proposal).await, 201, "{proposal}");
        }
    }
    assert_agrees(&world.compare(&truth).await);
    assert_eq!(world.spans().len(), 4, "two that ended, two that run");
    let open = world.spans().into_iter().filter(|span| span.end.is_none());
    let open: BTreeSet<(String, i64)> = open
        .map(|span| (span.target.plan_id.to_string(), span.start.as_millis()))
        .collect();
    assert_eq!(
        open,
        [("large".to_owned(), at), ("large".to_owned(), at - DAY)].into()
    );
}

/// What the world has overtaken is refused, and spoils nothing.
#[tokio::test]
async fn proposals_that_come_late_are_refused() {
    let world = World::new();
    let at = NOW - HOUR;
    for name in ["stopped", "again", "plan"] {
        world.starts_one(name, "small", at - 10).await;
    }
    let all = [
        instance("plan", "large"),
        instance("new", "large"),
        instance("new-2", "large"),
    ];
    let answer = world.compare(&snapshot(at, &all)).await;
    assert_eq!(proposals(&answer).len(), 5);
    // Meanwhile all of it takes place, with its own moments.
    world.stops_one("stopped", "small", at - 5).await;
    world.stops_one("again", "small", at + 5).await;
    world.starts_one("again", "small", at + 6).await;
    world.stops_one("plan", "small", at - 1).await;
    world.starts_one("plan", "large", at - 1).await;
    world.starts_one("new", "large", at - 2).await;
    world.starts_one("new-2", "large", at - 7).await;
    world.stops_one("new-2", "large", at + 7).await;
    let before = world.kept();
    for proposal in proposals(&answer) {
        let status = world.apply(&proposal).await;
        assert!([409, 422].contains(&status), "{proposal} {status}");
    }
    assert_eq!(world.kept(), before);
}

#[tokio::test]
async fn the_moment_of_the_snapshot_decides() {
    let world = World::new();
    let at = NOW - HOUR;
    world.starts_one("later", "large", at + 1).await;
    world.starts_one("at", "large", at).await;
    world.starts_one("ran", "large", at - 9).await;
    world.stops_one("ran", "large", at + 1).await;
    world.starts_one("over", "large", at - 9).await;
    world.stops_one("over", "large", at).await;
    world.starts_one("complete", "large", at - 9).await;
    world.stops_one("complete", "large", at + 2).await;
    let mut spans = world.spans().into_iter();
    let complete = spans.find(|span| span.end.is_some_and(|end| end.as_millis() == at + 2));
    let now = sampler_domain::Timestamp::clamped(NOW);
    done(world.store.memory.complete(&complete.unwrap(), now).await);
    // Ran with another plan until now: a start would bill it twice.
    world.starts_one("moved", "small", at - 9).await;
    world.stops_one("moved", "small", at + 3).await;
    // Two plans at once.
    world.starts_one("two", "small", at - 9).await;
    world.starts_one("two", "large", at - 9).await;
    let all = ["at", "ran", "over", "complete", "moved"].map(|name| instance(name, "large"));
    let all = [
        &all[..],
        &[instance("two", "large"), instance("two", "huge")],
    ]
    .concat();
    let answer = world.compare(&snapshot(at, &all)).await;
    let [open, alone, differs] = lists(&answer);
    assert_eq!(open, Vec::<String>::new());
    assert_eq!(alone, ["over"]);
    assert_eq!(differs, ["two"]);
    assert_eq!(answer["differs"][0]["kept"], json!({ "plan_id": "small" }));
    let none = world.compare(&snapshot(at, &[])).await;
    let [mut open, alone, differs] = lists(&none);
    open.sort();
    assert_eq!(
        (open, alone.len() + differs.len()),
        (["at", "two", "two"].map(str::to_owned).to_vec(), 0)
    );
    // Spans of another resource are none of it.
    let other = json!({ "resource_id": "redis", "at": at, "instances": [] });
    assert_agrees(&world.compare(&other).await);
}

#[tokio::test(start_paused = true)]
async fn one_snapshot_is_compared_at_a_time() {
    let world = World::new();
    world.store.set_behaviour(Behaviour::Held);
    let body = snapshot(NOW, &[]);
    let others = async {
        world.store.wait_until_held(1).await;
        let beyond = world.compare_once(&body).await;
        beyond.names(503, "overloaded", &[]);
        world.store.release();
    };
    let (first, ()) = tokio::join!(world.compare_once(&body), others);
    assert_eq!(first.status, 200);
    assert_eq!(world.compare_once(&body).await.status, 200);
}

/// Instances come and go all the while; what ran at the moment of the snapshot is known exactly.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_starts_and_stops_meanwhile_leads_to_no_proposal() {
    let world = World::new();
    let at = NOW - HOUR;
    let names: Vec<String> = (0..200).map(|number| format!("i-{number}")).collect();
    for name in &names {
        world.starts_one(name, "large", at - 5).await;
    }
    let truth: Vec<Value> = names.iter().map(|name| instance(name, "large")).collect();
    let truth = snapshot(at, &truth);
    let changes = async {
        for name in &names {
            world.stops_one(name, "large", at + 10).await;
            world.starts_one(name, "small", at + 20).await;
            world
                .starts_one(&format!("new {name}"), "small", at + 20)
                .await;
            tokio::task::yield_now().await;
        }
    };
    let compares = async {
        for _ in 0..20 {
            let answer = world.compare_once(&truth).await;
            let answer = answer.json();
            assert_agrees(&answer);
        }
    };
    tokio::join!(changes, compares);
}

/// Many more than fit into one page of spans or one piece of the answer.
#[tokio::test]
async fn a_large_snapshot_is_answered_in_full() {
    let world = World::with(|options| options.settings.limits.snapshot_payload = 64 << 20);
    let all = instances(30_000, "large");
    let answer = world.compare_once(&snapshot(NOW, &all)).await;
    let answer = answer.json();
    assert_eq!(answer["checked"], 30_000);
    let [_, alone, _] = lists(&answer);
    assert!(
        alone
            .iter()
            .enumerate()
            .all(|(number, name)| *name == format!("i-{number}"))
    );
    assert_eq!(alone.len(), 30_000);
}

fn posted(body: Body) -> Request<Body> {
    let post = Request::post(SNAPSHOTS).header("content-type", "application/x-ndjson");
    post.body(body).unwrap()
}

fn lines(count: usize) -> String {
    let head = json!({ "resource_id": "postgres", "at": NOW });
    let lines = [head].into_iter().chain(instances(count, "large"));
    lines.map(|line| format!("{line}\n")).collect()
}

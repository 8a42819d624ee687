//! What really runs, compared with the spans.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::Request;
use sampler_store_testing::support::{Changing, done};
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::batches::{NDJSON, statuses};
use crate::bodies::{gzip, headed};
use crate::event::{on, start, stop, with, without};
use crate::store::Behaviour;
use crate::world::{DAY, EVENTS, HOUR, NOW, World, request, request_as};

mod limits;
mod quantities;
mod refused;
mod scopes;
mod starts;
mod time;

const SNAPSHOTS: &str = "/v1/snapshots";

/// The moment of most snapshots.
const AT: i64 = NOW - HOUR;

/// The instances of a snapshot as they are sent in each form, and compressed.
fn forms(snapshot: &Value) -> Vec<Request<Body>> {
    let mut head = snapshot.clone();
    let instances = head.as_object_mut().unwrap().remove("instances").unwrap();
    let lines = [&head].into_iter().chain(instances.as_array().unwrap());
    let lines: String = lines.map(|line| format!("{line}\n")).collect();
    let text = snapshot.to_string();
    let zipped = |kind: &str, text: &str| {
        let request = request_as(kind, SNAPSHOTS, gzip(text.as_bytes()));
        headed(request, "content-encoding", b"gzip")
    };
    vec![
        zipped("application/json; charset=utf-8", &text),
        zipped(NDJSON, &lines),
        headed(request(SNAPSHOTS, text), "content-encoding", b"identity"),
        posted(lines.into()),
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
        let are_alike = answers.iter().all(|answer| *answer == first);
        assert!(are_alike, "{answers:#?}");
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
        statuses(&self.post(EVENTS, &json!(proposals)).await)
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

/// The proposals of the three lists.
fn proposed(answer: &Value) -> [Vec<Value>; 3] {
    ["open_without_instance", "instance_without_span", "differs"].map(|list| {
        let items = answer[list].as_array().unwrap().iter();
        items.map(|item| item["proposal"].clone()).collect()
    })
}

/// The instances in the three lists.
fn lists(answer: &Value) -> [Vec<String>; 3] {
    proposed(answer).map(|proposals| {
        let names = proposals.iter().map(|it| &it["resource_instance_id"]);
        names.map(|it| it.as_str().unwrap().to_owned()).collect()
    })
}

/// These instances are in the three lists.
#[track_caller]
fn assert_lists(answer: &Value, expected: [&[&str]; 3]) {
    assert_eq!(lists(answer), expected, "{answer:#}");
}

/// Nothing is in any of the lists.
#[track_caller]
fn assert_agrees(answer: &Value) {
    assert_lists(answer, [&[], &[], &[]]);
}

fn proposals(answer: &Value) -> Vec<Value> {
    proposed(answer).concat()
}

fn memory(quantity: i64) -> Value {
    json!([{ "measure": "memory", "quantity": quantity }])
}

#[tokio::test]
async fn a_snapshot_is_compared_with_what_ran_then() {
    let world = World::new();
    world.starts_one("agrees", "large", AT - 5).await;
    world.starts_one("gone", "large", AT - 4).await;
    world.starts_one("plan", "small", AT - 3).await;
    world.starts_one("measures", "large", AT - 2).await;
    let measures = with(&instance("measures", "large"), "measured_usage", memory(2));
    let new = with(&instance("new", "large"), "since", AT - DAY);
    let new = with(&new, "measured_usage", memory(1));
    let mut agrees = with(&instance("agrees", "large"), "resource_id", "postgres");
    agrees["measured_usage"] = json!([
        { "measure": "memory", "quantity": 0.5 }, { "measure": "instances", "quantity": 1.0 },
    ]);
    let (plan, bare) = (instance("plan", "large"), instance("bare", "large"));
    let all = [agrees, plan, measures, new, bare];
    let answer = world.compare(&snapshot(AT, &all)).await;
    assert_eq!((&answer["at"], &answer["checked"]), (&json!(AT), &json!(5)));
    assert_lists(
        &answer,
        [&["gone"], &["new", "bare"], &["plan", "measures"]],
    );
    assert_eq!(answer.as_object().unwrap().len(), 5, "{answer:#}");

    let target = |name: &str, plan: &str| with(&instance(name, plan), "resource_id", "postgres");
    let proposed = |item: &Value, name: &str, kind: &str, timestamp: i64, fields: Value| {
        let mut event = target(name, "large");
        event["type"] = json!(kind);
        event["id"] = item["proposal"]["id"].clone();
        event["timestamp"] = json!(timestamp);
        let members = event.as_object_mut().unwrap();
        members.extend(fields.as_object().unwrap().clone());
        event
    };
    let gone = &answer["open_without_instance"][0];
    let mut spans = world.spans().into_iter();
    let span = spans.find(|span| span.start.as_millis() == AT - 4).unwrap();
    let expected = json!({
        "span": span.id.to_string(), "target": target("gone", "large"), "start": AT - 4,
        "proposal": proposed(gone, "gone", "stop", AT, json!({})),
    });
    assert_eq!(*gone, expected);
    let usage = |usage: Value| json!({ "measured_usage": usage });
    let [new, bare] = [0, 1].map(|place| &answer["instance_without_span"][place]);
    let start = proposed(new, "new", "start", AT - DAY, usage(memory(1)));
    assert_eq!(
        *new,
        json!({ "target": target("new", "large"), "proposal": start })
    );
    let start = proposed(bare, "bare", "start", AT, usage(json!([])));
    assert_eq!(bare["proposal"], start);
    let [plan, measures] = [0, 1].map(|place| &answer["differs"][place]);
    assert_eq!(plan["expected"], json!({ "plan_id": "large" }));
    assert_eq!(plan["kept"], json!({ "plan_id": "small" }));
    let kept = usage(crate::event::start(0)["measured_usage"].clone());
    let mut update = proposed(plan, "plan", "update", AT, kept.clone());
    update["previous"] = json!({ "plan_id": "small" });
    assert_eq!(plan["proposal"], update);
    assert_eq!(measures["expected"], usage(memory(2)));
    assert_eq!(measures["kept"], kept);
    assert_eq!(measures["proposal"]["previous"], Value::Null);
    assert_eq!(measures["proposal"]["measured_usage"], memory(2));
    let ids = proposals(&answer)
        .into_iter()
        .map(|it| it["id"].to_string());
    let ids: BTreeSet<String> = ids.collect();
    assert_eq!(ids.len(), 5);
    assert!(
        ids.iter().all(|id| id.starts_with("\"snapshot-")),
        "{ids:?}"
    );
}

#[tokio::test]
async fn applied_proposals_leave_nothing_to_propose_and_may_be_applied_twice() {
    let world = World::new();
    world.starts_one("gone", "large", AT - 4).await;
    world.starts_one("plan", "small", AT - 3).await;
    let new = with(&instance("new", "large"), "since", AT - DAY);
    let truth = snapshot(AT, &[instance("plan", "large"), new]);
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
    let open = open.map(|span| (span.target.plan_id.to_string(), span.start.as_millis()));
    let large = |at| ("large".to_owned(), at);
    let expected: BTreeSet<(String, i64)> = [large(AT), large(AT - DAY)].into();
    assert_eq!(open.collect::<BTreeSet<_>>(), expected);
}

/// What the world has overtaken is refused, and spoils nothing.
#[tokio::test]
async fn proposals_that_come_late_are_refused() {
    let world = World::new();
    for name in ["stopped", "again", "plan"] {
        world.starts_one(name, "small", AT - 10).await;
    }
    let all = ["plan", "new", "new-2"].map(|name| instance(name, "large"));
    let answer = world.compare(&snapshot(AT, &all)).await;
    assert_eq!(proposals(&answer).len(), 5);
    // Meanwhile all of it takes place, with its own moments.
    world.stops_one("stopped", "small", AT - 5).await;
    world.stops_one("again", "small", AT + 5).await;
    world.starts_one("again", "small", AT + 6).await;
    world.stops_one("plan", "small", AT - 1).await;
    world.starts_one("plan", "large", AT - 1).await;
    world.starts_one("new", "large", AT - 2).await;
    world.starts_one("new-2", "large", AT - 7).await;
    world.stops_one("new-2", "large", AT + 7).await;
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
    for (name, start, end) in [
        ("later", AT + 1, None),
        ("at", AT, None),
        ("ran", AT - 9, Some(AT + 1)),
        ("over", AT - 9, Some(AT)),
        ("complete", AT - 9, Some(AT + 2)),
    ] {
        world.starts_one(name, "large", start).await;
        if let Some(end) = end {
            world.stops_one(name, "large", end).await;
        }
    }
    let mut spans = world.spans().into_iter();
    let complete = spans.find(|span| span.end.is_some_and(|end| end.as_millis() == AT + 2));
    let now = sampler_domain::Timestamp::clamped(NOW);
    done(world.store.memory.complete(&complete.unwrap(), now).await);
    // Ran with another plan until now: a start would bill it twice.
    world.starts_one("moved", "small", AT - 9).await;
    world.stops_one("moved", "small", AT + 3).await;
    // Two plans at once.
    world.starts_one("two", "small", AT - 9).await;
    world.starts_one("two", "large", AT - 9).await;
    let all = ["at", "ran", "over", "complete", "moved"].map(|name| instance(name, "large"));
    let two = ["large", "huge"].map(|plan| instance("two", plan));
    let all = [&all[..], &two].concat();
    let answer = world.compare(&snapshot(AT, &all)).await;
    assert_lists(&answer, [&[], &["over"], &["two"]]);
    assert_eq!(answer["differs"][0]["kept"], json!({ "plan_id": "small" }));
    let none = world.compare(&snapshot(AT, &[])).await;
    let mut listed = lists(&none);
    listed[0].sort();
    assert_eq!(listed, [&["at", "two", "two"][..], &[], &[]]);
    // Spans of another resource are none of it.
    let other = json!({ "resource_id": "redis", "at": AT, "instances": [] });
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
    let names: Vec<String> = (0..200).map(|number| format!("i-{number}")).collect();
    for name in &names {
        world.starts_one(name, "large", AT - 5).await;
    }
    let truth: Vec<Value> = names.iter().map(|name| instance(name, "large")).collect();
    let truth = snapshot(AT, &truth);
    let changes = async {
        for name in &names {
            world.stops_one(name, "large", AT + 10).await;
            world.starts_one(name, "small", AT + 20).await;
            let new = format!("new {name}");
            world.starts_one(&new, "small", AT + 20).await;
            tokio::task::yield_now().await;
        }
    };
    let compares = async {
        for _ in 0..20 {
            assert_agrees(&world.compare_once(&truth).await.json());
        }
    };
    tokio::join!(changes, compares);
}

/// Many more than fit into one page of spans or one piece of the answer.
#[tokio::test]
async fn a_large_snapshot_is_answered_in_full() {
    let world = World::with(|options| options.settings.limits.snapshot_payload = 64 << 20);
    let all = instances(30_000, "large");
    let answer = world.compare_once(&snapshot(NOW, &all)).await.json();
    assert_eq!(answer["checked"], 30_000);
    let [_, alone, _] = lists(&answer);
    let names = (0..30_000).map(|number| format!("i-{number}"));
    assert!(alone.into_iter().eq(names));
}

fn posted(body: Body) -> Request<Body> {
    request_as(NDJSON, SNAPSHOTS, body)
}

fn lines(count: usize) -> String {
    let head = json!({ "resource_id": "postgres", "at": NOW });
    let lines = [head].into_iter().chain(instances(count, "large"));
    lines.map(|line| format!("{line}\n")).collect()
}

//! Dry runs and snapshots, on a real MongoDB.

use std::collections::BTreeSet;

use bson::{Document, doc};
use futures_util::TryStreamExt;
use mongodb::Client;
use sampler_testkit::mongod::{Options, ReplicaSet};
use sampler_testkit::program::Launch;
use sampler_testkit::uaa::StandInUaa;
use sampler_testkit::{Program, now_millis};
use serde_json::{Value, json};

use crate::landscape::{HOUR, Landscape, client, until_ready};
use crate::secured::{secured, uaa};

/// The fields of an event of this kind.
fn event(kind: &str, instance: &str, timestamp: i64) -> Value {
    let mut event = json!({
        "type": kind, "id": format!("{kind}-{instance}"), "timestamp": timestamp,
        "organization_id": "o", "space_id": "s", "consumer_id": "c",
        "resource_id": "postgres", "plan_id": "small", "resource_instance_id": instance,
    });
    if kind != "stop" {
        event["measured_usage"] = json!([{ "measure": "memory", "quantity": 512 }]);
    }
    event
}

/// As it is sent by itself.
fn alone(mut event: Value) -> Value {
    event.as_object_mut().unwrap().shift_remove("type");
    event
}

fn lines(values: &[Value]) -> String {
    values.iter().map(|value| format!("{value}\n")).collect()
}

async fn post(receiver: &Program, path: &str, media_type: &str, body: String) -> (u16, Value) {
    let url = format!("{}{path}", receiver.base_url());
    let request = client().post(url).header("content-type", media_type);
    let response = request.body(body).send().await.unwrap();
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or_default())
}

async fn post_json(receiver: &Program, path: &str, body: &Value) -> (u16, Value) {
    post(receiver, path, "application/json", body.to_string()).await
}

/// All that a database holds, but how the receiver is: it reports that by itself.
async fn contents(client: &Client) -> Vec<(String, Vec<Document>)> {
    let database = client.database("sampler");
    let mut names = database.list_collection_names().await.unwrap();
    names.retain(|name| name != "spans_instances");
    names.sort();
    let mut all = Vec::new();
    for name in names {
        let found = database.collection::<Document>(&name).find(doc! {}).await;
        let documents = found.unwrap().try_collect().await.unwrap();
        all.push((name, documents));
    }
    all
}

/// A dry run has no need of the right to write, so it cannot write.
#[tokio::test(flavor = "multi_thread")]
async fn dry_runs_and_snapshots_need_no_right_to_write() {
    let options = Options {
        key: Some("a2V5IG9mIHRoZSBzZXQ".to_owned()),
        ..Options::single()
    };
    let set = ReplicaSet::start(options).await.unwrap();
    for (user, role) in [("sampler", "dbOwner"), ("witness", "read")] {
        let roles = [doc! { "role": role, "db": "sampler" }];
        let create = doc! { "createUser": user, "pwd": "secret", "roles": roles };
        set.command(0, create).await.unwrap();
    }
    let port = set.ports()[0];
    let uri = |user: &str| {
        let rest = format!("127.0.0.1:{port}/sampler?directConnection=true&authSource=admin");
        format!("mongodb://{user}:secret@{rest}")
    };
    let receiver = Launch::new("sampler-receiver").env("DB_URI", uri("sampler"));
    let receiver = receiver.env("SAMPLER_DIMENSION", "hour").start().await;
    let receiver = receiver.unwrap();
    until_ready(&client(), &receiver).await;
    let began = now_millis() - 5 * HOUR;
    let kept = alone(event("start", "kept", began));
    let (status, _) = post_json(&receiver, "/v1/events/start", &kept).await;
    assert_eq!(status, 201);

    let roles = [doc! { "role": "read", "db": "sampler" }];
    let demote = doc! { "updateUser": "sampler", "roles": roles };
    set.command(0, demote).await.unwrap();
    let witness = Client::with_uri_str(uri("witness")).await.unwrap();
    let before = contents(&witness).await;
    assert!(before.iter().any(|(name, _)| name == "spans"));

    let mut larger = event("update", "kept", began + HOUR);
    larger["plan_id"] = json!("large");
    larger["previous"] = json!({ "plan_id": "small" });
    for (path, body) in [
        ("start", event("start", "new", began)),
        ("start", event("start", "kept", began)),
        ("stop", event("stop", "kept", began + HOUR)),
        ("update", larger.clone()),
    ] {
        let path = format!("/v1/events/{path}?dry_run=true");
        let (status, would) = post_json(&receiver, &path, &alone(body)).await;
        assert_eq!((status, &would["would"]), (200, &json!(201)), "{would:#}");
        assert_ne!(would["usages"], json!([]), "{path}");
    }
    let batch = [
        event("start", "new", began),
        event("stop", "new", began + HOUR),
        larger,
    ];
    for (media_type, body) in [
        ("application/json", Value::from(batch.to_vec()).to_string()),
        ("application/x-ndjson", lines(&batch)),
    ] {
        let (status, would) = post(&receiver, "/v1/events?dry_run=true", media_type, body).await;
        assert_eq!(status, 200);
        let would: Vec<_> = would.as_array().unwrap().iter().collect();
        assert!(would.iter().all(|one| one["would"] == 201), "{would:#?}");
    }
    let snapshot = json!({ "resource_id": "postgres", "at": now_millis(), "instances": [] });
    let (status, difference) = post_json(&receiver, "/v1/snapshots", &snapshot).await;
    assert_eq!(status, 200);
    assert_eq!(
        difference["open_without_instance"]
            .as_array()
            .unwrap()
            .len(),
        1
    );

    assert_eq!(contents(&witness).await, before);
    // What is no dry run is not kept, and says so.
    let new = alone(event("start", "new", began));
    let (status, problem) = post_json(&receiver, "/v1/events/start", &new).await;
    assert_eq!(status, 500, "{problem:#}");
    assert_eq!(contents(&witness).await, before);
}

fn instance(name: &str, plan: &str) -> Value {
    json!({ "organization_id": "o", "space_id": "s", "consumer_id": "c", "plan_id": plan,
        "resource_instance_id": name, "measured_usage": [{ "measure": "memory", "quantity": 512 }] })
}

/// The instances in each of the three lists.
fn lists(answer: &Value) -> [BTreeSet<String>; 3] {
    ["open_without_instance", "instance_without_span", "differs"].map(|list| {
        let items = answer[list].as_array();
        let items = items.unwrap_or_else(|| panic!("{list} of {answer:#}"));
        let name = |item: &Value| {
            item["proposal"]["resource_instance_id"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        items.iter().map(name).collect()
    })
}

fn proposals(answer: &Value) -> Vec<Value> {
    ["open_without_instance", "instance_without_span", "differs"]
        .iter()
        .flat_map(|list| answer[list].as_array().unwrap())
        .map(|item| item["proposal"].clone())
        .collect()
}

fn names(kind: &str, numbers: std::ops::Range<u64>) -> BTreeSet<String> {
    numbers.map(|number| format!("{kind}-{number}")).collect()
}

/// The statuses of a batch, and how many of its events were kept before.
async fn apply(receiver: &Program, events: &[Value]) -> (Vec<u64>, u64) {
    let (status, answer) = post(
        receiver,
        "/v1/events",
        "application/x-ndjson",
        lines(events),
    )
    .await;
    assert_eq!(status, 200, "{answer:#}");
    let results = answer["results"].as_array().unwrap().iter();
    let statuses = results.map(|result| result["status"].as_u64().unwrap());
    (statuses.collect(), answer["replayed"].as_u64().unwrap())
}

/// Instances come and go while snapshots are compared: each snapshot names exactly what was wrong at
/// its moment. Its proposals can be applied twice, and not after something else has happened.
#[tokio::test(flavor = "multi_thread")]
async fn snapshots_are_exactly_right_while_instances_come_and_go() {
    let world = Landscape::new("snapshots").await;
    let receiver = world.receiver().start().await.unwrap();
    until_ready(&world.http, &receiver).await;
    let at = now_millis() - HOUR;
    let all = |kind: &str, count| names(kind, 0..count).into_iter();
    let starts: Vec<Value> = all("same", 300)
        .chain(all("gone", 20))
        .chain(all("plan", 20))
        .map(|name| event("start", &name, at - HOUR))
        .collect();
    let (statuses, _) = apply(&receiver, &starts).await;
    assert!(statuses.iter().all(|status| *status == 201));
    let running: Vec<Value> = all("same", 300)
        .map(|name| instance(&name, "small"))
        .chain(all("new", 20).map(|name| instance(&name, "small")))
        .chain(all("plan", 20).map(|name| instance(&name, "large")))
        .collect();
    let mut body = vec![json!({ "resource_id": "postgres", "at": at })];
    body.extend(running);
    let compare = async || {
        let body = lines(&body);
        post(&receiver, "/v1/snapshots", "application/x-ndjson", body).await
    };

    // All of this takes place after the moment of the snapshot.
    let changes = async {
        for number in 0..150 {
            let name = format!("same-{number}");
            let mut again = event("start", &name, at + 2);
            again["id"] = json!("again");
            let later = [
                event("stop", &name, at + 1),
                again,
                event("start", &format!("later-{number}"), at + 1),
            ];
            assert_eq!(apply(&receiver, &later).await.0, [201, 201, 201]);
        }
    };
    let compares = async {
        let mut answers = Vec::new();
        while answers.len() < 12 {
            answers.push(compare().await);
        }
        answers
    };
    let (answers, ()) = tokio::join!(compares, changes);
    let expected = [
        names("gone", 0..20),
        names("new", 0..20),
        names("plan", 0..20),
    ];
    for (status, answer) in &answers {
        assert_eq!((*status, &answer["checked"]), (200, &json!(340)));
        assert_eq!(lists(answer), expected);
    }

    let proposed = proposals(&answers[0].1);
    // The world overtakes three of them.
    let mut overtaking = event("stop", "plan-0", at + 1);
    overtaking["id"] = json!("own");
    let overtaken = [
        event("stop", "gone-0", at - 1),
        event("start", "new-0", at - 1),
        overtaking,
    ];
    assert_eq!(apply(&receiver, &overtaken).await.0, [201, 201, 201]);
    for replayed in [0, 57] {
        let (statuses, seen) = apply(&receiver, &proposed).await;
        assert_eq!(seen, replayed);
        for (proposal, status) in proposed.iter().zip(&statuses) {
            let name = proposal["resource_instance_id"].as_str().unwrap();
            let is_late = name.ends_with("-0");
            assert_eq!([409, 422].contains(status), is_late, "{status} {proposal}");
            assert!(is_late || *status == 201, "{status} {proposal}");
        }
    }
    // What has stopped since cannot be changed any more: nothing is proposed for it.
    let (_, after) = compare().await;
    assert_eq!(lists(&after), [const { BTreeSet::new() }; 3]);
}

/// Time that spans have billed is not billed again, and a quantity is the same to its last bit.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_is_proposed_from_where_the_last_span_ended() {
    let world = Landscape::new("snapshot_starts").await;
    let receiver = world.receiver().start().await.unwrap();
    until_ready(&world.http, &receiver).await;
    let at = now_millis() - HOUR;
    let (began, ended) = (at - 48 * HOUR, at - 24 * HOUR);
    let (given, exact) = ("\"quantity\":512", "\"quantity\":31.245270191439438");
    let exact = |value: Value| value.to_string().replace(given, exact);
    let mut events: Vec<Value> = ["moved", "same"]
        .iter()
        .flat_map(|name| [event("start", name, began), event("stop", name, ended)])
        .collect();
    events.push(event("start", "runs", began));
    let body: String = events
        .into_iter()
        .map(|event| exact(event) + "\n")
        .collect();
    let (status, answer) = post(&receiver, "/v1/events", "application/x-ndjson", body).await;
    assert_eq!((status, &answer["accepted"]), (200, &json!(5)));
    let since = |name: &str, plan: &str| {
        let mut instance = instance(name, plan);
        instance["since"] = json!(began);
        instance
    };
    let body = exact(json!({ "resource_id": "postgres", "at": at, "instances": [
        since("moved", "large"), since("same", "small"), since("runs", "small"), since("new", "large"),
    ] }));
    let compare = async || {
        let url = format!("{}/v1/snapshots", receiver.base_url());
        let request = client()
            .post(url)
            .header("content-type", "application/json");
        let response = request.body(body.clone()).send().await.unwrap();
        response.text().await.unwrap()
    };
    let text = compare().await;
    let answer: Value = serde_json::from_str(&text).unwrap();
    let starts: Vec<(&str, i64)> = answer["instance_without_span"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["proposal"])
        .map(|start| {
            (
                start["resource_instance_id"].as_str(),
                start["timestamp"].as_i64(),
            )
        })
        .map(|(name, timestamp)| (name.unwrap(), timestamp.unwrap()))
        .collect();
    assert_eq!(starts, [("moved", ended), ("same", ended), ("new", began)]);
    assert_eq!(text.matches("31.245270191439438").count(), 3, "{text}");
    assert_eq!(proposals(&answer).len(), 3);
    // Each is sent as it stands in the answer.
    let events: Vec<&str> = text
        .split("\"proposal\":")
        .skip(1)
        .map(|rest| rest.split_inclusive("]}").next().unwrap().trim_end())
        .collect();
    let body = format!("[{}]", events.join(","));
    let (status, applied) = post(&receiver, "/v1/events", "application/json", body).await;
    assert_eq!(
        (status, &applied["accepted"]),
        (200, &json!(3)),
        "{applied:#}"
    );
    let after: Value = serde_json::from_str(&compare().await).unwrap();
    assert_eq!(lists(&after), [const { BTreeSet::new() }; 3]);
}

/// The statuses that a snapshot is answered with, by scopes.
async fn asked(receiver: &Program, uaa: &StandInUaa, scopes: &[&str]) -> (u16, String) {
    let body = json!({ "resource_id": "postgres", "at": now_millis(), "instances": [] });
    let url = format!("{}/v1/snapshots", receiver.base_url());
    let mut request = client().post(url).json(&body);
    if !scopes.is_empty() {
        request = request.bearer_auth(uaa.token(scopes));
    }
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_are_for_those_who_may_read_the_resource() {
    let (world, uaa) = (Landscape::new("snapshot_scopes").await, uaa().await);
    let receiver = secured(world.receiver(), &uaa).start().await.unwrap();
    until_ready(&world.http, &receiver).await;
    let own = |scope: &str| format!("abacus.sampler.postgres.{scope}");
    for scope in [
        "abacus.sampler.read",
        "abacus.sampler.write",
        "abacus.sampler.admin",
        &own("read"),
        &own("write"),
    ] {
        let (status, body) = asked(&receiver, &uaa, &[scope]).await;
        assert_eq!(status, 200, "{scope}: {body}");
    }
    for scope in [
        "abacus.sampler.redis.read",
        "abacus.sampler.redis.write",
        "abacus.sampler.postgres",
        "openid",
    ] {
        let (status, body) = asked(&receiver, &uaa, &[scope]).await;
        assert_eq!(status, 403, "{scope}: {body}");
        assert!(body.contains("urn:sampler:problem:forbidden"), "{body}");
    }
    assert_eq!(asked(&receiver, &uaa, &[]).await.0, 401);
}

//! Dry runs and snapshots, on a real MongoDB.

use bson::{Document, doc};
use futures_util::TryStreamExt;
use mongodb::Client;
use sampler_testkit::build::without;
use sampler_testkit::mongod::{Options, ReplicaSet};
use sampler_testkit::program::Launch;
use sampler_testkit::{Program, now_millis};
use serde_json::{Value, json};

use crate::cli::event;
use crate::landscape::{HOUR, client, until_ready};

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
    let kept = without(event("start", "kept", began), "type");
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
    larger["measured_usage"] = json!([{ "measure": "memory", "quantity": 512 }]);
    larger["previous"] = json!({ "plan_id": "p" });
    for (path, body) in [
        ("start", event("start", "new", began)),
        ("start", event("start", "kept", began)),
        ("stop", event("stop", "kept", began + HOUR)),
        ("update", larger.clone()),
    ] {
        let path = format!("/v1/events/{path}?dry_run=true");
        let (status, would) = post_json(&receiver, &path, &without(body, "type")).await;
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
    let new = without(event("start", "new", began), "type");
    let (status, problem) = post_json(&receiver, "/v1/events/start", &new).await;
    assert_eq!(status, 500, "{problem:#}");
    assert_eq!(contents(&witness).await, before);
}
